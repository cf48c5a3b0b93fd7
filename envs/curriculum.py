"""A curriculum: stages of difficulty as data, and a rule that moves on when the latest episodes meet a stage's
criteria.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from torch import Tensor

WINDOW = 100
"""Criteria are means over this many of the latest episodes."""
_AMONG_WINS = "win_step"
"""This statistic is averaged over won episodes only."""


@dataclass(frozen=True)
class Stage:
    """One stage."""

    name: str
    difficulty: dict[str, float]
    """Multipliers by name; what is not named is 1."""
    criteria: dict[str, tuple[float | None, float | None]] = field(default_factory=dict)
    """Statistic -> (least, most) of its mean; None leaves a side open."""
    min_episodes: int = 0
    """Episodes that must have ended in this stage before the criteria are looked at."""


class Curriculum:
    """Follows the stages; only whole episodes that began in the current stage count.

    Args:
        stages: from easy to hard.
        num_envs: worlds that play; a stage lasts at least as many episodes, or the short ones, which end first, would
            decide.
        stage: stage to begin with.
        automatic: move on by the criteria, or stay.
    """

    def __init__(self, stages: list[Stage], num_envs: int, stage: int = 0, automatic: bool = True) -> None:
        if not 0 <= stage < len(stages):
            raise ValueError(f"stage is {stage}: this curriculum has stages 0 to {len(stages) - 1}.")
        self.stages, self.num_envs, self.automatic = stages, num_envs, automatic
        self.stage = stage
        self.episodes = 0
        self._window: deque[dict[str, float]] = deque(maxlen=WINDOW)

    @property
    def current(self) -> Stage:
        """The stage that fresh worlds get."""
        return self.stages[self.stage]

    def record(self, finished: dict[str, Tensor]) -> bool:
        """Take in finished episodes (statistics by name, [episodes] on the CPU); True if a new stage begins."""
        rows = zip(*(value.tolist() for value in finished.values()), strict=True)
        for row in rows:
            episode = dict(zip(finished, row, strict=True))
            if episode["stage"] == self.stage and episode["complete"]:
                self.episodes += 1
                self._window.append(episode)
        if not (self.automatic and self.stage + 1 < len(self.stages) and self._passed()):
            return False
        self.stage += 1
        self.episodes = 0
        self._window.clear()
        return True

    def metrics(self) -> dict[str, float]:
        """The stage, its episodes so far, and the share of its criteria that hold."""
        held = [self._holds(name, bounds) for name, bounds in self.current.criteria.items()]
        share = sum(held) / len(held) if held else 1.0
        return {"stage": float(self.stage), "stage_episodes": float(self.episodes), "criteria_met": share}

    def state_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {"stage": self.stage, "episodes": self.episodes, "window": list(self._window)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from :meth:`state_dict`."""
        if not 0 <= state["stage"] < len(self.stages):
            raise ValueError(
                f"the saved curriculum is at stage {state['stage']}, this one has {len(self.stages)} stages."
            )
        self.stage, self.episodes = state["stage"], state["episodes"]
        self._window = deque(state["window"], maxlen=WINDOW)

    def _passed(self) -> bool:
        enough = self.episodes >= max(self.current.min_episodes, self.num_envs)
        return enough and all(self._holds(name, bounds) for name, bounds in self.current.criteria.items())

    def _holds(self, name: str, bounds: tuple[float | None, float | None]) -> bool:
        episodes = [e for e in self._window if e["win"]] if name == _AMONG_WINS else list(self._window)
        if not episodes:
            return False
        mean = sum(episode[name] for episode in episodes) / len(episodes)
        least, most = bounds
        return (least is None or mean >= least) and (most is None or mean <= most)


def load_stages(path: Path, multipliers: tuple[str, ...], statistics: tuple[str, ...]) -> list[Stage]:
    """The stages of a YAML file: a list of ``{name, difficulty, criteria, min_episodes}``.

    Args:
        path: the file.
        multipliers: names that ``difficulty`` may use.
        statistics: names that ``criteria`` may use.

    Raises:
        ValueError: the file is missing or damaged, or uses an unknown name; the sentence names it.
    """
    try:
        raw = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise ValueError(
            f"curriculum {path} cannot be read ({error}): give the path of a YAML list of stages."
        ) from None
    if not isinstance(raw, list) or not raw:
        raise ValueError(f"curriculum {path} is empty: give a list of stages.")
    return [_stage(path, entry, multipliers, statistics) for entry in raw]


def _stage(path: Path, entry: Any, multipliers: tuple[str, ...], statistics: tuple[str, ...]) -> Stage:
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        raise ValueError(
            f"a stage of {path} has no name: each stage is a mapping with name, difficulty, criteria, min_episodes."
        )
    difficulty, criteria = entry.get("difficulty") or {}, entry.get("criteria") or {}
    known: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
        "stage key": (entry, ("name", "difficulty", "criteria", "min_episodes"))
    }
    known |= {"multiplier": (difficulty, multipliers), "statistic": (criteria, statistics)}
    for kind, (used, allowed) in known.items():
        for name in used:
            if name not in allowed:
                raise ValueError(
                    f"{kind} {name!r} in stage {entry['name']!r} of {path} is unknown: use {', '.join(allowed)}."
                )
    for name, value in difficulty.items():
        if not isinstance(value, int | float) or value < 0:
            raise ValueError(f"{name} in stage {entry['name']!r} of {path} is {value!r}: give a number, 0 or above.")
    for name, bounds in criteria.items():
        if not isinstance(bounds, list) or len(bounds) != 2:
            raise ValueError(
                f"criterion {name} in stage {entry['name']!r} of {path} is {bounds!r}: give [least, most], null for "
                "open."
            )
    bounds_by_name = {name: (bounds[0], bounds[1]) for name, bounds in criteria.items()}
    return Stage(entry["name"], dict(difficulty), bounds_by_name, int(entry.get("min_episodes", 0)))
