"""Faults planted in trained agents, and the module that the diagnosis names first, beside healthy agents."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import random
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from torchrl_agent import keys
from torchrl_agent.cli.arguments import check_least
from torchrl_agent.core.checkpoint import read_json, write_json
from torchrl_agent.core.run_names import find_run
from torchrl_agent.core.tables import aligned
from torchrl_agent.explain import diagnose, reward_unit
from torchrl_agent.explain.diagnosis import NOTHING_UNUSUAL
from torchrl_agent.explain.episode import play_episode
from torchrl_agent.explain.reference import find_reference, steps_of
from torchrl_agent.explain.thinking import thought_of, world_names
from torchrl_agent.explain.thought import Names, Thought
from torchrl_agent.models.agent import Agent
from torchrl_agent.modules.specs import observation_shapes
from torchrl_agent.runs.load import load_agent

MODULES = {
    "blind": "perception",
    "mirrored": "perception",
    "deaf": "social model",
    "misread": "social model",
    "physics": "world model",
    "stuck": "policy",
}
"""Kinds of faults, and the module that has the fault."""
OFTEN = 0.05
"""Least share of what is exchanged, so that the fault has consequences."""
LOOKED_AT = 48
"""Steps of healthy games in which it is counted what is frequent."""
EVERY = 4
"""Steps between two thoughts that are diagnosed."""
FIRST_SEED = 50_000
RULES = ("before", "after")
"""Fixed thresholds of a step alone, and the comparison with the reference."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add agents, numbers of faults and healthy games, and a file of finished cases."""
    usual = ["shipped:tonight", "shipped:payday", "shipped:village"]
    parser.add_argument("--agents", nargs="+", default=usual, help=f"runs with a reference ({' '.join(usual)})")
    parser.add_argument("--faults", type=int, default=24, help="drawn faults (24)")
    parser.add_argument("--healthy", type=int, default=4, help="games of each healthy agent (4)")
    parser.add_argument("--steps", type=int, default=96, help="steps of each game (96)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the draw (0)")
    parser.add_argument("--keep", type=Path, metavar="FILE.json", help="finished cases, which are not played again")


def run(parsed: argparse.Namespace) -> dict[str, Any]:
    """Play all cases, and print the table of both rules."""
    check_least(parsed, faults=0, healthy=0, steps=40)
    kept = (read_json(parsed.keep) or {}) if parsed.keep else {}
    names = cases(parsed.agents, parsed.faults, parsed.healthy, parsed.seed)
    for name in names:
        key = f"{name} {parsed.steps}"
        if key not in kept:
            agent, kind, number = name.split(" ")
            kept[key] = judge(agent, kind, int(number), parsed.steps)
            print(name, kept[key], flush=True)
            if parsed.keep:
                write_json(parsed.keep, kept)
    found = {name: kept[f"{name} {parsed.steps}"] for name in names}
    print("\n".join(aligned(rows(found), words=5)))
    return {
        "config": "diagnosis",
        "overrides": [],
        "agents": parsed.agents,
        "steps": parsed.steps,
        "seed": parsed.seed,
        "cases": found,
    }


def cases(agents: list[str], faults: int, healthy: int, seed: int) -> list[str]:
    """Return the cases, ``AGENT KIND NUMBER`` each: healthy games, then faults, as many of each kind."""
    chance, result = random.Random(seed), []
    fitting = {kind: [name for name in agents if fits(kind, name)] for kind in MODULES}
    missing = [kind for kind, names in fitting.items() if not names]
    if missing and faults:
        raise ValueError(f"no agent has the module that {missing[0]} breaks: give --agents one that has.")
    for name in agents:
        result += [f"{name} healthy {number}" for number in range(healthy)]
    for number in range(faults):
        kind = list(MODULES)[number % len(MODULES)]
        result.append(f"{chance.choice(fitting[kind])} {kind} {chance.randrange(10**6)}")
    return result


def fits(kind: str, name: str) -> bool:
    """True if the agent has the module that a fault breaks."""
    return MODULES[kind].replace(" ", "_").replace("policy", "manager") in _modules(name)


@functools.cache
def _modules(name: str) -> list[str]:
    _, agent = load_agent(name, "cpu")
    return list(agent.agent_modules)


def judge(name: str, kind: str, number: int, steps: int) -> dict[str, Any]:
    """Play a game with a fault and return by rule the thoughts that named a module first, of all ``thoughts``."""
    experiment, agent = load_agent(name, "cpu")
    run, chance = find_run(name), random.Random(number)
    reference, unit = find_reference(run), reward_unit(experiment, run)
    if reference is None:
        raise ValueError(f"{name} has no reference: make one with 'torchrl-agent evaluate {name} --reference'.")
    seed = FIRST_SEED + number
    with closing(agent.attach(experiment.make_world(evaluation=True, num_envs=1, seed=seed))) as env:
        what = ""
        if kind != "healthy":
            often = frequent(name)
            with torch.no_grad():
                what = FAULTS[kind](agent.eval(), world_names(env), observation_shapes(env), often, chance)
        episode = play_episode(env, agent.eval(), 0, range(steps), most=steps)
        first: dict[str, Counter[str]] = {rule: Counter() for rule in RULES}
        for index, frames in enumerate(episode.frames):
            evidence = reference.of_episode(agent, episode, index)
            for step in range(0, len(frames), EVERY):
                thought = thought_of(env, agent, episode, 0, index, step, unit, evidence[step])
                for rule, given in zip(RULES, (_plain(thought), thought), strict=True):
                    first[rule][diagnose(given)[0].partition(":")[0]] += 1
    return {
        "what": what,
        "thoughts": sum(first["after"].values()),
        **{rule: dict(found) for rule, found in first.items()},
    }


def _plain(thought: Thought) -> Thought:
    """Return a thought as it was before there were references."""
    return dataclasses.replace(thought, evidence=None, names=dataclasses.replace(thought.names, raised=None))


# --- faults ----------------------------------------------------------------------------------------------------------

Often = dict[str, list[int]]


@functools.cache
def frequent(name: str) -> Often:
    """Return the actions, and the needs and actions of others, that occur often in games of a healthy agent, and the
    goals that it follows in less than half of its time.
    """
    experiment, agent = load_agent(name, "cpu")
    rows = steps_of(experiment, agent.eval(), FIRST_SEED, most=LOOKED_AT).rows

    def shares(values: Tensor) -> list[tuple[int, float]]:
        return [(index, count / values.numel()) for index, count in enumerate(values.flatten().bincount().tolist())]

    found = {"actions": [index for index, share in shares(rows[keys.ACTION]) if share > OFTEN]}
    if keys.PRIVILEGED in rows.keys():
        seen = rows[keys.BELIEF, "visible"]
        for label in ("others_need", "others_action"):
            found[label] = [index for index, share in shares(rows[keys.PRIVILEGED, label][seen]) if share > OFTEN]
    if agent.manager is not None:
        followed = dict(shares(rows[keys.GOAL, "type"]))
        found["goals"] = [goal for goal in range(len(agent.manager.names)) if followed.get(goal, 0) < 0.5]
    return found


def _eyes(agent: Agent, names: Names, shapes: dict[str, torch.Size]) -> dict[str, slice]:
    """Return where pictures and maps are among the joined observations, by name."""
    found, start, perception = {}, 0, agent.perception
    assert perception is not None
    for name, shape in shapes.items():
        offsets = any(word.endswith(" x") for word in names.observation.get(name, ()))
        if name != perception.others and (len(shape) == 3 or offsets):
            found[name] = slice(start, start + shape.numel())
        start += shape.numel()
    return found


def _see(agent: Agent, change: Callable[[Tensor], Tensor]) -> None:
    """Let perception read a changed observation, which stays unchanged for all others."""
    seen: list[Tensor] = []

    def before(module: nn.Module, given: Any) -> None:
        seen.append(given[0].get(keys.NORMALIZED))
        given[0].set(keys.NORMALIZED, change(seen[-1].clone()))

    def after(module: nn.Module, given: Any, written: Any) -> None:
        written.set(keys.NORMALIZED, seen.pop())

    agent.agent_modules["perception"].register_forward_pre_hook(before)
    agent.agent_modules["perception"].register_forward_hook(after)


def blind(agent: Agent, names: Names, shapes: dict[str, torch.Size], often: Often, chance: random.Random) -> str:
    """Let perception see the mean of maps and windows."""
    eyes = _eyes(agent, names, shapes)

    def change(values: Tensor) -> Tensor:
        for place in eyes.values():
            values[..., place] = 0
        return values

    _see(agent, change)
    return ", ".join(eyes)


def mirrored(agent: Agent, names: Names, shapes: dict[str, torch.Size], often: Often, chance: random.Random) -> str:
    """Let perception see maps and windows mirrored along an axis."""
    axis, eyes = chance.choice("xy"), _eyes(agent, names, shapes)
    zero = agent.normalizer.normalize(torch.zeros(sum(shape.numel() for shape in shapes.values())))

    def change(values: Tensor) -> Tensor:
        for name, place in eyes.items():
            if len(shapes[name]) == 3:
                picture = values[..., place].unflatten(-1, shapes[name])
                values[..., place] = picture.flip(-1 if axis == "x" else -2).flatten(-3)
            else:
                words = names.observation[name]
                which = [place.start + index for index, word in enumerate(words) if word.endswith(f" {axis}")]
                values[..., which] = 2 * zero[which] - values[..., which]
        return values

    _see(agent, change)
    return axis


def deaf(agent: Agent, names: Names, shapes: dict[str, torch.Size], often: Often, chance: random.Random) -> str:
    """Cut the social model's weights of others' cues."""
    model, perception = agent.social_model, agent.perception
    assert model is not None and perception is not None
    cues, memory = perception.cue_size, model.config.memory_size
    for weight in (model.embed[0].weight[:, :cues], model.heads[0].weight[:, memory : memory + cues]):
        weight.zero_()
    model.each[0].weight[:, :cues].zero_()
    return "cues"


def misread(agent: Agent, names: Names, shapes: dict[str, torch.Size], often: Often, chance: random.Random) -> str:
    """Exchange two needs, or two next actions, among the social model's predictions."""
    model = agent.social_model
    assert model is not None
    parts = {"others_need": 0, "others_action": model.goals}
    part = chance.choice([name for name in parts if len(often[name]) > 1])
    one, other = chance.sample(often[part], 2)
    _exchange([model.heads[-1].weight, model.heads[-1].bias], parts[part] + one, parts[part] + other)
    return f"{part} {one} {other}"


def physics(agent: Agent, names: Names, shapes: dict[str, torch.Size], often: Often, chance: random.Random) -> str:
    """Exchange two actions in what the world model reads."""
    model = agent.world_model
    assert model is not None
    one, other = chance.sample(often["actions"], 2)
    first = model.belief_size + model.forecast_size + model.known_size
    _exchange([model.body[0].weight.T], first + one, first + other)
    return f"actions {one} {other}"


def stuck(agent: Agent, names: Names, shapes: dict[str, torch.Size], often: Often, chance: random.Random) -> str:
    """Let the manager choose one goal always."""
    goal = chance.choice(often["goals"])
    agent.agent_modules["manager"].choose[-1].bias[goal] += 20
    return f"goal {goal}"


def _exchange(tensors: list[Tensor], one: int, other: int) -> None:
    for tensor in tensors:
        tensor[[one, other]] = tensor[[other, one]]


FAULTS = {function.__name__: function for function in (blind, mirrored, deaf, misread, physics, stuck)}


# --- the table -------------------------------------------------------------------------------------------------------


def blamed(first: dict[str, int]) -> str:
    """Return the module that was named first in most thoughts, of those in which one was named."""
    found = {module: count for module, count in first.items() if module != NOTHING_UNUSUAL}
    return max(found, key=lambda module: found[module]) if found else "nothing"


def rows(found: dict[str, dict[str, Any]]) -> list[list[str]]:
    """Return cells: by kind of fault how often each rule blames the right module, and false alarms of the healthy."""
    result = [["kind", "cases", *(f"right, {rule}" for rule in RULES), "blamed instead"]]
    for kind, module in MODULES.items():
        of_kind = [case for name, case in found.items() if f" {kind} " in name]
        named = {rule: [blamed(case[rule]) for case in of_kind] for rule in RULES}
        wrong = Counter(name for name in named["after"] if name != module)
        right = [str(named[rule].count(module)) for rule in RULES]
        result.append([kind, str(len(of_kind)), *right, ", ".join(f"{name} {count}" for name, count in wrong.items())])
    healthy = [case for name, case in found.items() if " healthy " in name]
    count = sum(case["thoughts"] for case in healthy)
    alarms = [sum(case["thoughts"] - case[rule].get(NOTHING_UNUSUAL, 0) for case in healthy) for rule in RULES]
    result.append(["healthy", f"{count} thoughts", *(f"{alarm} alarms" for alarm in alarms), ""])
    return result
