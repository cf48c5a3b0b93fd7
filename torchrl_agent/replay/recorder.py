"""Recording of an evaluation episode: scenes, thoughts of all agents, and counterfactuals, in one pass."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image
from tensordict import TensorDictBase
from torch import Tensor
from torchrl.envs import EnvBase

from torchrl_agent.core.abilities import abilities, inner_world, world_name
from torchrl_agent.core.checkpoint import checkpoints, find_checkpoint, frames_of
from torchrl_agent.core.progress import Progress
from torchrl_agent.core.run_names import find_run, run_name_of
from torchrl_agent.experiment import Experiment
from torchrl_agent.explain import check_evaluation_world, reward_unit
from torchrl_agent.explain.episode import number_of_agents, play_episode
from torchrl_agent.explain.reference import Reference, find_reference
from torchrl_agent.explain.thinking import known_names, world_names
from torchrl_agent.explain.thought import plain
from torchrl_agent.models.agent import Agent
from torchrl_agent.modules.specs import action_bounds, action_heads
from torchrl_agent.replay.minds import POSITION, minds, modules_of
from torchrl_agent.replay.record import hexadecimal_of
from torchrl_agent.replay.what_if import Counterfactuals, Start
from torchrl_agent.runs.film import film_rate, film_world
from torchrl_agent.runs.load import load_agent

WIDTH = 480
"""Largest width of a picture of a world without vectors [pixels]."""


@dataclass
class RecordConfig:
    """Extent of a record.

    Args:
        world: number of the evaluation world.
        checkpoints: number of checkpoints, the last one included, of which the same game is recorded.
        ahead: steps that every other action is played on for; 0 for no counterfactuals.
        steps: longest episode.

    Raises:
        ValueError: a number is out of its range.
    """

    world: int = 0
    checkpoints: int = 8
    ahead: int = 16
    steps: int = 400

    def __post_init__(self) -> None:
        for name, least in (("world", 0), ("checkpoints", 1), ("ahead", 0), ("steps", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} is {getattr(self, name)}: give at least {least}.")


def record_run(
    run: Path | str,
    config: RecordConfig | None = None,
    which: str = "last",
    overrides: Sequence[str] = (),
    trust: bool = False,
) -> dict[str, Any]:
    """Record an evaluation episode of a run's agent, with the most likely actions.

    Args:
        run: a run folder, a checkpoint file inside one, or an agent that comes with the package (``shipped:NAME``).
        config: extent of the record.
        which: ``last`` or ``best``.
        overrides: changes of the run's configuration, such as other agents in its world.
        trust: see :func:`~torchrl_agent.runs.load.load_agent`.

    Raises:
        ValueError: there is no such run or world.
    """
    config, run = config or RecordConfig(), find_run(run)
    chosen = _chosen(run, which, config.checkpoints)
    episodes = []
    with Progress(len(chosen), "episode", "recording", leave=False) as progress:
        for number, path in enumerate(chosen):
            experiment, agent = load_agent(path, "cpu", which, tuple(overrides), trust=trust)
            check_evaluation_world(experiment, config.world)
            unit, reference = reward_unit(experiment, path), find_reference(path)
            recorder = _Recorder(experiment, agent.eval(), config, unit, reference)
            episodes.append({"checkpoint": path.name, "frames": frames_of(path)} | recorder.episode(path == chosen[-1]))
            progress.reach(number + 1)
            header = recorder.header()
    return {"run": run_name_of(run), **header, "episodes": episodes}


def record_agent(
    name: str, experiment: Experiment, agent: Agent, config: RecordConfig, unit: float, reference: Reference | None
) -> dict[str, Any]:
    """Record an evaluation episode of an agent as it is now, for instance with a fault, under a name of its own."""
    recorder = _Recorder(experiment, agent.eval(), config, unit, reference)
    episode = {"checkpoint": name, "frames": 0} | recorder.episode(True)
    return {"run": name, **recorder.header(), "episodes": [episode]}


def _chosen(run: Path, which: str, most: int) -> list[Path]:
    """Return the checkpoint asked for, after evenly spaced earlier ones."""
    last = find_checkpoint(run, which)
    earlier = [path for path in checkpoints(last.parent) if frames_of(path) < frames_of(last)]
    count = min(most - 1, len(earlier))
    return [*(earlier[round(index * len(earlier) / count)] for index in range(count)), last]


class _Recorder:
    def __init__(
        self, experiment: Experiment, agent: Agent, config: RecordConfig, unit: float, reference: Reference | None
    ) -> None:
        self.experiment, self.agent, self.config = experiment, agent, config
        self.unit, self.reference = unit, reference
        self.env = agent.attach(film_world(experiment, config.world + 1))
        self.base, self.count = inner_world(self.env), number_of_agents(self.env, agent)
        self.heads = action_heads(self.env) if action_bounds(self.env) is None else []

    def header(self) -> dict[str, Any]:
        """Return what holds for all steps."""
        names, manager = world_names(self.env), self.agent.manager
        return {
            "config": self.experiment.name,
            "config_hash": self.experiment.hash(),
            "world": {"name": world_name(self.env), "number": self.config.world, "rate": film_rate(self.env)},
            "seed": self.experiment.evaluation.seed,
            "agents": self.count,
            "unit": plain(self.unit),
            "ahead": self.config.ahead,
            "names": {
                "actions": [names.action(index) for index in range(self.heads[0])] if self.heads else [],
                "heads": list(names.heads),
                "choices": [list(words) for words in names.choices],
                "meters": list(names.meters),
                "own": known_names(self.env, self.agent),
                "goals": [] if manager is None else list(manager.names),
                "modules": modules_of(self.agent),
                "observation": {key: list(words) for key, words in names.observation.items()},
                "legend": hexadecimal_of(names),
            },
        }

    def episode(self, whole: bool) -> dict[str, Any]:
        """Return scenes, thoughts and counterfactuals by step; without ``whole`` the choices alone."""
        scenes: list[Any] = []
        parts: list[dict[str, Tensor]] = []
        starts: list[Start] = []
        tensors = abilities(self.env).programs is not None
        plays_on = whole and tensors and bool(self.heads) and self.config.ahead > 0

        def watch(root: TensorDictBase) -> None:
            scenes.append(_scene(self.env, self.config.world))
            parts.append(self.base.reward_by_part(root[self.env.action_key]) if tensors else {})
            if plays_on:
                starts.append(self._start(root))

        steps = range(self.config.steps)
        played = play_episode(self.env, self.agent, self.config.world, steps, watch=watch, most=len(steps))
        thoughts = minds(self.env, self.agent, played, self.config.world, self.unit, whole, self.reference)
        for here, by_part in zip(thoughts, parts, strict=True):
            self._add_parts(here, by_part)
        result = {"scenes": scenes, "thoughts": thoughts}
        return result | ({"what_if": self._counterfactuals().play(starts)} if plays_on else {})

    def _add_parts(self, here: list[Any], by_part: dict[str, Tensor]) -> None:
        for index, thought in enumerate(here):
            if thought is not None:
                mine = {name: value[..., self.config.world].reshape(-1)[index] for name, value in by_part.items()}
                thought["parts"] = {name: plain(value / self.unit) for name, value in mine.items() if value}

    def _start(self, root: TensorDictBase) -> Start:
        world = self.config.world
        record = {name: value[..., world : world + 1] for name, value in self.base.programs()[1].items()}
        return Start(record, root[world : world + 1].clone())

    def _counterfactuals(self) -> Counterfactuals:
        own = known_names(self.env, self.agent)
        places = [own.index(name) for name in POSITION if name in own]
        return Counterfactuals(
            lambda rows: self.agent.attach(self.experiment.make_world(evaluation=True, num_envs=rows)),
            self.agent,
            self.count,
            self.heads[0],
            self.config.ahead,
            (places[0], places[1]) if len(places) == 2 else None,
            self.unit,
        )


def _scene(env: EnvBase, world: int) -> Any:
    """Return the world's drawing: vectors, a JPEG, or None where it cannot be drawn."""
    if (vectors := abilities(env).scene) is not None:
        return vectors(world)
    draw: Callable | None = abilities(env).draw
    if draw is None:
        return None
    picture = Image.fromarray(draw(world)).convert("RGB")
    picture.thumbnail((WIDTH, WIDTH))
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=70)
    return {"size": list(picture.size), "jpeg": base64.b64encode(buffer.getvalue()).decode()}
