"""Metrics of a training: means over episodes and diagnostics of updates, with Stable-Baselines3's tags."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from torchrl_agent.core import keys
from torchrl_agent.core.spans import spanned

MOST_EPISODES = 4096
"""Largest number of episodes in a mean: of ten statistics the host averages so many in 0.2 ms, 65,536 in 3 to 7."""


def window_size(num_envs: int) -> int:
    """Return the number of episodes in the means of so many worlds: as many, but at least 100 and at most 4,096."""
    return min(max(100, num_envs), MOST_EPISODES)


class EpisodeWindow:
    """Means over the latest finished episodes."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.episodes: dict[str, Tensor] = {}
        """Statistics by name, each [episodes], oldest first."""
        self.total = 0

    @spanned("metrics")
    def add(self, finished: dict[str, Tensor]) -> None:
        """Add the episodes of one rollout (statistics by name, each [episodes])."""
        if not len(next(iter(finished.values()), ())) and finished.keys() == self.episodes.keys():
            return  # most rollouts of few worlds end no episode
        before = len(next(iter(self.episodes.values()), ()))
        unknown = torch.full((before,), torch.nan)  # of a statistic that a resumed run reports for the first time
        latest = {name: values[-self.size :] for name, values in finished.items()}
        joined = {name: torch.cat((self.episodes.get(name, unknown), values)) for name, values in latest.items()}
        self.episodes = {name: values[-self.size :] for name, values in joined.items()}
        self.total += next(iter(finished.values())).shape[0]

    @spanned("metrics")
    def metrics(self) -> dict[str, float]:
        """Compute ``rollout/...`` means over whole episodes, or over partial ones while there is no whole one (NaN
        before any).
        """
        tags = {
            keys.EPISODE_RETURN: "ep_rew_mean",
            keys.EPISODE_LENGTH: "ep_len_mean",
            keys.EPISODE_WIN: "success_rate",
        }
        means = (
            self._means() if any(len(values) for values in self.episodes.values()) else dict.fromkeys(tags, math.nan)
        )
        hidden = (keys.EPISODE_COMPLETE, keys.EPISODE_STAGE)
        shown = {f"rollout/{tags.get(name, name)}": mean for name, mean in means.items() if name not in hidden}
        return {**shown, "rollout/episodes": float(self.total)}

    def _means(self) -> dict[str, float]:
        """Means of all statistics, by NumPy: PyTorch's threads would wait for cores that are busy."""
        values = np.stack([each.numpy() for each in self.episodes.values()])
        whole = self.episodes.get(keys.EPISODE_COMPLETE)
        if whole is not None and whole.numpy().any():
            values = values.compress(whole.numpy() > 0, axis=1)  # faster than indexing
        known = ~np.isnan(values)
        with np.errstate(invalid="ignore"):  # no episode of a statistic
            means = values.sum(1, np.float64, where=known) / known.sum(1)
        return dict(zip(self.episodes, means.tolist(), strict=True))

    def state_dict(self) -> dict:
        """Tensors and plain values."""
        return {"episodes": dict(self.episodes), "total": self.total}

    def load_state_dict(self, state: dict) -> None:
        """Continue from :meth:`state_dict`."""
        self.episodes = {name: values.cpu() for name, values in state["episodes"].items()}
        self.total = state["total"]


TRAIN_TAGS = {
    "loss_objective": "train/policy_gradient_loss",
    "kl": "train/approx_kl",
    "epsilon": "rollout/exploration_rate",
}
"""Stable-Baselines3's names of quantities that have another name here."""


def train_tag(name: str) -> str:
    """Return the metric name of a diagnostic of updates."""
    return TRAIN_TAGS.get(name, f"train/{name}")


def train_metrics(diagnostics: Mapping[str, float]) -> dict[str, float]:
    """Convert diagnostics of updates to metrics. Tags of Stable-Baselines3 hold its quantities; quantities that differ
    from them, such as a loss with its weight or an error in scaled rewards, have another name.
    """
    metrics = {train_tag(name): value for name, value in diagnostics.items()}
    if "loss_entropy" in diagnostics:  # which has its weight
        metrics["train/entropy_loss"] = -diagnostics["entropy"]
    return metrics


class Figures:
    """Scalars that stay on the device until someone reads them: until then the host goes on while the device computes.

    Args:
        values: device scalars by name.
    """

    def __init__(self, values: Mapping[str, Tensor]) -> None:
        self._names, self._numbers = list(values), None if values else list[float]()
        scalars = [value.detach().float().reshape(()) for value in values.values()]
        self._packed = torch.stack(scalars) if scalars else torch.zeros(0)

    @property
    def arrived(self) -> bool:
        """True if reading them makes the host wait for nothing."""
        return self._numbers is not None or self._packed.device.type == "cpu"

    def read(self) -> dict[str, float]:
        """Return the scalars by name, fetched now unless :func:`fetch` already has."""
        if self._numbers is None:
            fetch(self)
        return dict(zip(self._names, self._numbers or (), strict=True))


@spanned("metrics")
def fetch(*figures: Figures) -> None:
    """Bring to the host those figures that are not there yet, with one transfer for all."""
    missing = [each for each in figures if each._numbers is None]
    numbers = iter(torch.cat([each._packed for each in missing]).tolist())
    for each in missing:
        each._numbers = [next(numbers) for _ in each._names]


def to_host(values: Mapping[str, Tensor]) -> dict[str, float]:
    """Convert device scalars to floats, with one transfer for all."""
    return Figures(values).read()
