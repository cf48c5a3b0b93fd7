"""A governor for training: it monitors vital signs and rolls a run that collapsed back to a healthy state, with a lower
learning rate.

The authors of PaLM did the same by hand: they restarted from a checkpoint before the trouble and continued with other
data (Chowdhery et al. 2022, section 5.1).
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torchrl_agent.algorithms.algorithm import Algorithm
from torchrl_agent.core.bounds import check_ranges, count, number
from torchrl_agent.core.errors import TrainingError
from torchrl_agent.optimization.updater import SKIPS_BEFORE_HALT
from torchrl_agent.training.vital_signs import VitalSigns

logger = logging.getLogger(__name__)


@dataclass
class GovernorConfig:
    """Watch over the training, with rollback."""

    enabled: bool = False
    """Watch the run, and roll back after a collapse."""
    warmup: int = count(20)
    """Iterations without judgment. At the beginning, when a curriculum moves, and after a rollback."""
    memory: int = number(50, least=2)
    """Iterations of history of a vital sign. It is the time constant of its moving averages."""
    threshold: float = number(6.0, above=0)
    """Usual deviations beyond which a sign is bad. From its history, toward the worse."""
    patience: int = count(3)
    """Bad iterations in a row that make a collapse."""
    snapshot_every: int = count(10)
    """Good iterations between two snapshots. A rollback restores the one before the last."""
    learning_rate_factor: float = number(0.5, above=0, most=1)
    """Factor of the learning rate at each rollback."""
    max_returns: int = number(5, least=0)
    """Rollbacks in a training; one more ends it."""


class CollapseError(TrainingError):
    """The training collapsed more often than the governor may go back."""


class Governor:
    """Monitors an algorithm: :meth:`judge` after its updates, on the device, and :meth:`act` once the metrics are on
    the host.

    Two snapshots are held on the device. One is taken every ``snapshot_every`` iterations without a bad sign, and a
    rollback restores the older one, so the restored state has stayed healthy for at least as long. They hold the
    tensors that learning changes (see ``Algorithm.tensors``) and the history of the signs; worlds, episodes and random
    numbers continue.

    Args:
        config: settings.
        algorithm: the algorithm to monitor.
        window: number of episodes in the mean return.

    Attributes:
        learning_rate_factor: factor of the learning rate.
        returns: number of rollbacks.
        signs: the vital signs, once there were updates.

    Raises:
        ValueError: a setting cannot work.
    """

    def __init__(self, config: GovernorConfig, algorithm: Algorithm, window: int) -> None:
        check_ranges(config, "governor.")
        self.config, self.algorithm, self.window = config, algorithm, window
        self.learning_rate_factor = 1.0
        self.returns = 0
        self.signs: VitalSigns | None = None
        self._average = torch.full((), math.nan, device=algorithm.device)
        self._snapshots: list[dict[str, Tensor]] = []
        self._frames: list[int] = []
        self._unjudged, self._recovers, self._well = config.warmup, False, 0
        self._stage = math.nan
        self._clean_episodes = 2.0 * window

    def begin(self, frames: int) -> None:
        """Hold the state before the first update, at the given number of frames; later calls do nothing."""
        if not self._snapshots:
            self._take_snapshot(frames)

    def judge(self, diagnostics: dict[str, Tensor]) -> dict[str, Tensor]:
        """Compute the distance of each vital sign from its history (see :meth:`VitalSigns.judge`), and the longest row
        of iterations in which one was bad, as device scalars; nothing where there were no updates.

        Args:
            diagnostics: diagnostics of the iteration's updates, device scalars.
        """
        if "updates" not in diagnostics:
            return {}
        if self.signs is None:
            self.signs = self._make_signs(list(diagnostics))
        distances = self.signs.judge(diagnostics, self._average, remember=not self._recovers)
        named = {f"vital_signs/{name}": each for name, each in zip(self.signs.names, distances.unbind(), strict=True)}
        return {**named, "vital_signs/bad_in_row": self.signs.history["bad_in_row"].amax()}

    def _make_signs(self, names: list[str]) -> VitalSigns:
        config = self.config
        clipped = self.algorithm.config.max_grad_norm
        return VitalSigns(names, config.warmup, config.memory, config.threshold, clipped, self.algorithm.device)

    def act(self, metrics: dict[str, float], frames: int) -> dict[str, float]:
        """Take a snapshot, or roll back, or do nothing, by the iteration's metrics; returns the governor's metrics.

        Args:
            metrics: metrics of the iteration, on the host.
            frames: number of frames seen so far.

        Raises:
            CollapseError: another collapse after ``max_returns``; the algorithm is left in its last healthy state.
        """
        broken = metrics.get("train/skipped_in_row", 0.0) >= SKIPS_BEFORE_HALT
        bad = metrics.get("train/vital_signs/bad_in_row", math.nan)  # as long as nothing is learned
        if broken or (not self._unjudged and bad >= self.config.patience):
            self.rollback(self._describe(broken), frames, metrics.get("rollout/episodes", 0.0))
        elif self._unjudged and not math.isnan(bad):
            self._unjudged -= 1
            self._recovers = self._recovers and self._unjudged > 0
        elif bad == 0:
            self._well += 1
            if self._well >= self.config.snapshot_every:
                self._take_snapshot(frames)
        self._prepare(metrics)
        return {
            "governor/returns": float(self.returns),
            "governor/learning_rate_factor": self.learning_rate_factor,
            "governor/healthy_frames": float(self._frames[0]),
        }

    def _prepare(self, metrics: dict[str, float]) -> None:
        """Keep the mean return for the next iteration; reset histories when a curriculum moved, as nothing compares."""
        clean = metrics.get("rollout/episodes", 0.0) >= self._clean_episodes
        self._average.fill_(metrics.get("rollout/ep_rew_mean", math.nan) if clean else math.nan)
        stage = metrics.get("curriculum/stage", math.nan)
        if stage != self._stage and not math.isnan(self._stage):
            for tensors in (self._live(), *self._snapshots):
                if "history.count" in tensors:
                    tensors["history.count"].zero_()
            self._recovers = False
            self._break(metrics.get("rollout/episodes", 0.0))
        self._stage = stage

    def _break(self, episodes: float) -> None:
        """Judge no sign for a while: the mean return not before its window has been filled twice, because the first
        episodes to end are the short ones, and then those that began before.
        """
        self._unjudged, self._well = self.config.warmup, 0
        self._clean_episodes = episodes + 2 * self.window

    def _describe(self, broken: bool) -> str:
        """Describe a collapse in words."""
        if broken or self.signs is None:
            return f"the loss or its gradient was not finite in {SKIPS_BEFORE_HALT} updates in a row or more"
        return self.signs.describe(self.config.patience)

    # --- snapshots ----------------------------------------------------------------------------------------------------

    def _live(self) -> dict[str, Tensor]:
        """Tensors that a snapshot copies: the tensors themselves."""
        history = {} if self.signs is None else self.signs.history
        return {**self.algorithm.tensors(), **{f"history.{name}": value for name, value in history.items()}}

    @torch.no_grad()
    def _take_snapshot(self, frames: int) -> None:
        """Copy the tensors that learning changes into the memory of the older snapshot, or into new memory."""
        held = self._snapshots.pop(0) if len(self._snapshots) == 2 else {}
        for name, value in self._live().items():
            if name in held:
                held[name].copy_(value)
            else:
                held[name] = value.detach().clone()
        self._snapshots.append(held)
        self._frames = [*self._frames[-1:], frames]
        self._well = 0

    @torch.no_grad()
    def rollback(self, reason: str, frames: int, episodes: float) -> None:
        """Restore the older snapshot; tensors that it lacks, such as an optimizer's moments before its first step, are
        set to 0.

        Args:
            reason: description of the collapse.
            frames: number of frames seen so far.
            episodes: number of episodes finished so far.

        Raises:
            CollapseError: see :meth:`act`.
        """
        held, healthy = self._snapshots[0], self._frames[0]
        for name, value in self._live().items():
            if name in held:
                value.copy_(held[name])
            else:
                value.zero_()
        self.algorithm.on_rollback()
        if self.returns == self.config.max_returns:
            raise CollapseError(
                f"training collapsed after {frames} frames ({reason}), and {self.returns} returns to a healthy state"
                f" with at last {self.learning_rate_factor:g} of the learning rate did not help: begin again with a"
                " lower algorithm.learning_rate.initial, look at what the world's rewards do, or allow more with"
                " governor.max_returns."
            )
        self.returns += 1
        self.learning_rate_factor *= self.config.learning_rate_factor
        self._snapshots, self._frames = [held], [healthy]
        self._recovers = "history.count" in held  # the next values are not yet typical again
        self._break(episodes)
        logger.warning(
            f"training collapsed after {frames} frames ({reason}): back to the state after {healthy} frames, with"
            f" {self.learning_rate_factor:g} of the learning rate (return {self.returns} of {self.config.max_returns})"
        )

    # --- saving -------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain values."""
        return {
            "signs": None if self.signs is None else self.signs.names,
            "history": {} if self.signs is None else copies(self.signs.history),
            "average": self._average.clone(),
            "snapshots": [copies(held) for held in self._snapshots],
            "frames": list(self._frames),
            "plain": {name: getattr(self, name) for name in PLAIN},
        }

    def load_state_dict(self, state: dict[str, Any] | None) -> None:
        """Continue from :meth:`state_dict`; None, of a training without a governor, changes nothing."""
        if state is None:
            return
        if state["signs"] is not None:
            self.signs = self._make_signs(state["signs"])
            self.signs.history = copies(state["history"])
        self._average.copy_(state["average"])
        self._snapshots, self._frames = [copies(held) for held in state["snapshots"]], list(state["frames"])
        for name in PLAIN:
            setattr(self, name, state["plain"][name])


PLAIN = ("learning_rate_factor", "returns", "_unjudged", "_recovers", "_well", "_stage", "_clean_episodes")
"""Attributes of a governor that are saved as they are."""


def copies(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Copy each tensor."""
    return {name: value.detach().clone() for name, value in tensors.items()}
