"""Curriculum: stages of difficulty as data, and a rule that advances when the latest episodes meet a stage's
criteria.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from envs.toolkit.plain_yaml import read_yaml

WINDOW = 100
"""Number of the latest episodes over which criteria are averaged."""
_AMONG_WINS = "win_step"
"""Statistic that is averaged over won episodes only."""


@dataclass(frozen=True)
class Stage:
    """One stage of a curriculum."""

    name: str
    difficulty: dict[str, float]
    """Multipliers by name; those not named are 1."""
    criteria: dict[str, tuple[float | None, float | None]] = field(default_factory=dict)
    """Statistic -> (least, most) of its mean; None leaves a side open."""
    retreat: dict[str, tuple[float | None, float | None]] = field(default_factory=dict)
    """Criteria of the same form for a return to the previous stage, which happens if all of them hold. Between the two
    sets the stage is kept, so that a curriculum does not oscillate.
    """
    min_episodes: int | None = None
    """Number of episodes that must have ended in this stage before the criteria are evaluated; by default the number of
    worlds. A smaller number advances sooner, but on the episodes that ended first, which are the short ones.
    """
    level: str | None = None
    """Level that determines the map of fresh worlds, for worlds that have levels."""


class Curriculum:
    """Progress through stages; only complete episodes that began in the current stage count.

    Args:
        stages: stages from easy to hard.
        num_envs: number of worlds; a stage without ``min_episodes`` lasts at least this many episodes.
        stage: index of the first stage.
        automatic: True to move by the criteria, False to stay.
    """

    def __init__(self, stages: list[Stage], num_envs: int, stage: int = 0, automatic: bool = True) -> None:
        if not 0 <= stage < len(stages):
            raise ValueError(f"stage is {stage}: this curriculum has stages 0 to {len(stages) - 1}.")
        self.stages, self.num_envs, self.automatic = stages, num_envs, automatic
        self.stage = stage
        self.episodes = 0
        self._window: dict[str, Tensor] = {}
        """Statistics by name, each [episodes], of the latest complete episodes that began in this stage."""

    @property
    def current(self) -> Stage:
        """Present stage, which fresh worlds get."""
        return self.stages[self.stage]

    def update(self, finished: dict[str, Tensor]) -> bool:
        """Record finished episodes (statistics by name, [episodes] on the CPU); return True if another stage begins."""
        counted = (finished["stage"] == self.stage) & (finished["complete"] > 0)
        self.episodes += int(counted.sum())
        latest = counted.nonzero().squeeze(-1)[-WINDOW:]
        for name, values in finished.items():
            window = torch.cat((self._window.get(name, values[:0]), values[latest]))
            self._window[name] = window[-WINDOW:]
        least = self.num_envs if self.current.min_episodes is None else self.current.min_episodes
        if not self.automatic or self.episodes < max(least, 1):
            return False
        step = self._direction()
        if not 0 <= self.stage + step < len(self.stages) or step == 0:
            return False
        self.stage += step
        self.episodes = 0
        self._window.clear()
        return True

    def check_statistics(self, names: Iterable[str]) -> None:
        """Raise ValueError if a criterion is about a statistic that the world does not report."""
        for stage in self.stages:
            for name in (*stage.criteria, *stage.retreat):
                if name not in names:
                    raise ValueError(
                        f"statistic {name!r} in stage {stage.name!r} of the curriculum is unknown: use "
                        f"{', '.join(names)}."
                    )

    def metrics(self) -> dict[str, float]:
        """Return the stage, its number of episodes so far, and the fraction of its criteria that hold."""
        held = [self._holds(name, bounds) for name, bounds in self.current.criteria.items()]
        share = sum(held) / len(held) if held else 1.0
        return {"stage": float(self.stage), "stage_episodes": float(self.episodes), "criteria_met": share}

    def state_dict(self) -> dict[str, Any]:
        """Return the state as tensors and plain values."""
        return {"stage": self.stage, "episodes": self.episodes, "window": dict(self._window)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from :meth:`state_dict`."""
        if not 0 <= state["stage"] < len(self.stages):
            raise ValueError(
                f"the saved curriculum is at stage {state['stage']}, this one has {len(self.stages)} "
                "stages: continue with the curriculum that it was saved with."
            )
        self.stage, self.episodes = state["stage"], state["episodes"]
        self._window = {name: values.cpu() for name, values in state["window"].items()}

    def _direction(self) -> int:
        """Return 1 to advance, -1 to retreat, 0 to stay."""
        retreat = self.current.retreat
        if retreat and all(self._holds(name, bounds) for name, bounds in retreat.items()):
            return -1
        return int(all(self._holds(name, bounds) for name, bounds in self.current.criteria.items()))

    def _holds(self, name: str, bounds: tuple[float | None, float | None]) -> bool:
        values = self._window.get(name, torch.zeros(0)).double()
        if name == _AMONG_WINS and values.numel():
            values = values[self._window["win"] > 0]
        if not values.numel():
            return False
        mean = values.mean().item()
        least, most = bounds
        return (least is None or mean >= least) and (most is None or mean <= most)


STAGE_KEYS = ("name", "difficulty", "criteria", "retreat", "min_episodes", "level")


def load_curriculum(
    source: str | Path, folder: Path, num_envs: int, stage: int | str, multipliers: tuple[str, ...]
) -> Curriculum:
    """Load the curriculum of a YAML file.

    Args:
        source: name of a file in ``folder``, or a path.
        folder: folder of the world's own curricula.
        num_envs: number of worlds.
        stage: ``auto`` to move by the criteria, or the number of the stage to stay in.
        multipliers: names that ``difficulty`` may use.

    Raises:
        ValueError: there is no such file or stage, or the file is damaged; the sentence names it.
    """
    path = folder / f"{source}.yaml"
    if not path.is_file():
        path = Path(source)
    if not path.is_file():
        names = ", ".join(sorted(file.stem for file in folder.glob("*.yaml")))
        raise ValueError(f"curriculum {str(source)!r} is unknown: use {names}, or the path of a YAML list of stages.")
    stages = load_stages(path, multipliers)
    if stage == "auto":
        return Curriculum(stages, num_envs)
    if isinstance(stage, bool) or not isinstance(stage, int):
        raise ValueError(f"stage is {stage!r}: use auto, or the number of a stage.")
    return Curriculum(stages, num_envs, stage, automatic=False)


def load_stages(path: Path, multipliers: tuple[str, ...]) -> list[Stage]:
    """Load the stages of a YAML file: a list of mappings of :class:`Stage`'s fields.

    Args:
        multipliers: names that ``difficulty`` may use.

    Raises:
        ValueError: the file is missing or damaged, or uses an unknown name; the sentence names it.
    """
    raw = read_yaml(path)
    if not isinstance(raw, list) or not raw:
        raise ValueError(f"curriculum {path} is empty: give a list of stages.")
    return [_stage(path, entry, multipliers) for entry in raw]


def _stage(path: Path, entry: Any, multipliers: tuple[str, ...]) -> Stage:
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        raise ValueError(f"a stage of {path} has no name: each stage is a mapping with {', '.join(STAGE_KEYS)}.")
    difficulty, criteria, retreat = (entry.get(key) or {} for key in ("difficulty", "criteria", "retreat"))
    for kind, used, allowed in (("stage key", entry, STAGE_KEYS), ("multiplier", difficulty, multipliers)):
        for name in used:
            if name not in allowed:
                raise ValueError(
                    f"{kind} {name!r} in stage {entry['name']!r} of {path} is unknown: use {', '.join(allowed)}."
                )
    for name, value in difficulty.items():
        if not isinstance(value, int | float) or value < 0:
            raise ValueError(f"{name} in stage {entry['name']!r} of {path} is {value!r}: give a number, 0 or above.")
    least = entry.get("min_episodes")
    if least is not None and (isinstance(least, bool) or not isinstance(least, int) or least < 1):
        raise ValueError(
            f"min_episodes in stage {entry['name']!r} of {path} is {least!r}: give a whole number from 1, or leave it "
            "out."
        )
    for name, bounds in (*criteria.items(), *retreat.items()):
        if not isinstance(bounds, list) or len(bounds) != 2:
            raise ValueError(
                f"criterion {name} in stage {entry['name']!r} of {path} is {bounds!r}: give [least, most], null for "
                "open."
            )
    return Stage(
        entry["name"],
        dict(difficulty),
        {name: (bounds[0], bounds[1]) for name, bounds in criteria.items()},
        {name: (bounds[0], bounds[1]) for name, bounds in retreat.items()},
        entry.get("min_episodes"),
        entry.get("level"),
    )
