"""A game for a person in a browser: programs of a world and of the agents beside, with the world's drawing."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

from torchrl.envs import EnvBase

from torchrl_agent.core.abilities import abilities, world_name
from torchrl_agent.core.checkpoint import find_checkpoint
from torchrl_agent.core.run_names import find_run, run_name_of
from torchrl_agent.evaluation.ablation import removable
from torchrl_agent.experiment import Experiment
from torchrl_agent.explain import reward_unit
from torchrl_agent.explain.episode import number_of_agents
from torchrl_agent.explain.thinking import world_names
from torchrl_agent.export.game import policy_program, world_programs, world_record
from torchrl_agent.models.agent import Agent
from torchrl_agent.modules.specs import action_bounds, action_heads
from torchrl_agent.replay.record import hexadecimal_of
from torchrl_agent.runs.film import film_rate
from torchrl_agent.runs.load import load_agent

IDLE = ("idle", "wait")
"""Names of the action of a player who presses no key."""


def game_of(source: Path | str, which: str = "last", overrides: tuple[str, ...] = (), trust: bool = False) -> dict:
    """Return a game as plain values, for :func:`~torchrl_agent.replay.page.as_page`.

    Args:
        source: a run, whose agent plays beside the person, or a configuration, whose world is played alone.
        which: ``last`` or ``best``.
        overrides: changes of the configuration.
        trust: see :func:`~torchrl_agent.runs.load.load_agent`.

    Raises:
        ValueError: the world or the agent cannot be exported, or drawn from its record, or has no actions to choose
            from.
    """
    run = find_run(source)
    if run.exists() and not (run.is_file() and run.suffix in (".yaml", ".yml")):
        experiment, agent = load_agent(run, "cpu", which, overrides, trust=trust)
        name, unit, trained = run_name_of(run), reward_unit(experiment, find_checkpoint(run, which)), True
    else:
        experiment, name, unit, trained = Experiment.load(str(source), *overrides, trust=trust), str(source), 1.0, False
        with closing(experiment.make_world(evaluation=True, num_envs=1)) as world:
            agent = experiment.make_agent(world)
    with closing(played_world(experiment, agent)) as env:
        game = _game(env, agent.eval(), trained)
    return {"run": name, "config": experiment.name, "config_hash": experiment.hash(), "unit": unit} | game


def played_world(experiment: Experiment, agent: Agent) -> EnvBase:
    """Return the evaluation world, or the training's where that has more seats for agents, as a duel that is judged
    against a scripted player.
    """
    judged, trained = (
        agent.attach(experiment.make_world(evaluation=evaluation, num_envs=1, seed=experiment.evaluation.seed))
        for evaluation in (True, False)
    )
    more = number_of_agents(trained, agent) > number_of_agents(judged, agent)
    env, other = (trained, judged) if more else (judged, trained)
    other.close()
    return env


def _game(env: EnvBase, agent: Agent, trained: bool) -> dict[str, Any]:
    marks, name = abilities(env).marks, world_name(env)
    if marks is None:
        raise ValueError(f"{name} cannot be played in a browser: it has no marks(), which draw it there.")
    heads = action_heads(env) if action_bounds(env) is None else []
    if len(heads) != 1:
        raise ValueError(f"{name} cannot be played in a browser: only worlds with one action to choose in a step can.")
    names = world_names(env)
    actions = [names.action(index) for index in range(heads[0])]
    modules = list(removable(agent)) if trained else []
    policy = {"policy": policy_program(env, agent, bool(modules))} if trained else {}
    return {
        "programs": {**world_programs(env), **policy},
        "record": world_record(env),
        "prefix": "" if agent.group is None else f"{agent.group}.",
        "marks": marks(),
        "agents": number_of_agents(env, agent),
        "idle": next((actions.index(word) for word in IDLE if word in actions), 0),
        "world": {"name": name, "number": 0, "rate": film_rate(env) / abilities(env).action_repeat},
        "names": {
            "actions": actions,
            "meters": list(names.meters),
            "own": [],
            "goals": [],
            "modules": modules,
            "observation": {},
            "legend": hexadecimal_of(names),
        },
    }
