"""Normalization as TorchRL transforms: running observation statistics and return-based reward scaling.

Both keep their statistics in buffers (:class:`RunningStatistics`), count each frame once whatever resets happen, and
stop updating while :attr:`frozen`. Note that TorchRL puts transforms into eval mode when it attaches them, so
``training`` has no meaning here.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from tensordict import TensorDictBase
from tensordict.utils import NestedKey
from torch import Tensor
from torchrl.data import Bounded, TensorSpec
from torchrl.envs.transforms import Transform
from torchrl.envs.transforms.rnd import RunningMeanStd

from torchrl_agent.core import ranks

STATISTICS = ("obs_mean", "obs_var", "obs_count", "ret_mean", "ret_var", "ret_count")
"""Keys of normalization statistics as JSON."""


LARGEST = 1e15
"""Samples are clipped to this magnitude in running statistics: squares of larger ones would overflow in float32."""


class RunningStatistics(RunningMeanStd):
    """TorchRL's running ``mean`` and ``var``, merged batch by batch (Chan et al., "Algorithms for computing the sample
    variance", 1983), in float64: in float32 neither they nor their ``count`` would change after some 2^30 samples,
    since the increment of a batch is rounded away.

    Args:
        shape: shape of one sample; () for numbers.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__(shape, epsilon=0.0)  # a pseudo-count would spoil large means
        self.double()

    def update(self, x: Tensor, counted: Tensor | None = None) -> None:
        """Merge samples [..., *shape], only the ``counted`` ones (bool [...]) if given, without synchronizing with the
        device; if none is counted, nothing changes.
        """
        x = x.float().reshape(-1, *self.mean.shape)
        x = x * (LARGEST / x.abs().clamp_min(LARGEST))  # factor 1 as a rule; infinity becomes NaN and is detected
        if counted is None:
            count = torch.full_like(self.count, x.shape[0])
            var, mean = torch.var_mean(x, 0, correction=0)
        else:
            count = counted.sum()
            here = counted.reshape(-1, *[1] * self.mean.ndim)
            mean = torch.where(here, x, 0.0).sum(0) / count.clamp_min(1)
            var = torch.where(here, (x - mean) ** 2, 0.0).sum(0) / count.clamp_min(1)
        mean, var, count = ranks.moments(mean, var, count)
        total = self.count + count
        share, delta = count / total.clamp_min(1.0), mean - self.mean
        after = self.var + share * (var - self.var + (1 - share) * delta**2), self.mean + share * delta, total
        for buffer, value in zip((self.var, self.mean, self.count), after, strict=True):
            # through views: code that PyTorch 2.13 compiles for a CPU loses writes to float64 without dimensions
            buffer.view(-1).copy_(value.view(-1))


class ObservationNormalizer(Transform):
    """Concatenate observations and normalize them to zero mean and unit variance per feature: ``clip((x - mean) /
    sqrt(var + epsilon))``.

    As a transform of an environment it updates its statistics at every step (never at a reset). As a module of a policy
    (``normalizer(tensordict)``) it only normalizes, so that a policy carries its statistics; a trainer then calls
    :meth:`update`.

    Args:
        in_keys: observations to join, each [..., *shape].
        shapes: their shapes, or sizes of vectors.
        out_key: key of the joined, normalized vector; by default the only in key.
        clip: largest absolute value after normalization.
        epsilon: added to the variance.
        enabled: join and pass through unchanged if False.
    """

    def __init__(
        self,
        in_keys: Sequence[NestedKey],
        shapes: Sequence[int | Sequence[int]],
        out_key: NestedKey | None = None,
        clip: float = 10.0,
        epsilon: float = 1e-8,
        enabled: bool = True,
    ) -> None:
        if len(in_keys) != len(shapes) or not in_keys:
            raise ValueError(f"{len(in_keys)} observation keys but {len(shapes)} shapes: give one shape per key.")
        if out_key is None and len(in_keys) > 1:
            raise ValueError("several observations are joined: name the out_key.")
        super().__init__(in_keys=list(in_keys), out_keys=[in_keys[0] if out_key is None else out_key])
        self.shapes = [torch.Size([shape] if isinstance(shape, int) else shape) for shape in shapes]
        size = sum(shape.numel() for shape in self.shapes)
        self.running = RunningStatistics((size,))
        self.clip, self.epsilon, self.enabled = clip, epsilon, enabled
        self.frozen = False

    def join(self, tensordict: TensorDictBase) -> Tensor:
        """Return the concatenated raw observations (pictures as vectors, bytes as numbers in [0, 1]), [..., F]."""
        values = []
        for key, shape in zip(self.in_keys, self.shapes, strict=True):
            value = tensordict.get(key)
            values.append((value.float() / 255 if value.dtype == torch.uint8 else value).flatten(-len(shape)))
        return values[0] if len(values) == 1 else torch.cat(values, -1)

    def update(self, observation: Tensor, counted: Tensor | None = None) -> None:
        """Merge observations [..., F] into the statistics, only those of ``counted`` rows (bool [...]) if given; do
        nothing if frozen.
        """
        if self.enabled and not self.frozen:
            self.running.update(observation, counted)

    def normalize(self, observation: Tensor) -> Tensor:
        """Return normalized observations, [..., F]."""
        if not self.enabled:
            return observation
        mean, variance = self.running.mean.float(), self.running.var.float()  # so large tensors are never float64
        return ((observation - mean) * torch.rsqrt(variance + self.epsilon)).clamp(-self.clip, self.clip)

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write the normalized observation, without updating the statistics."""
        return tensordict.set(self.out_keys[0], self.normalize(self.join(tensordict)))

    def _call(self, next_tensordict: TensorDictBase) -> TensorDictBase:
        self.update(self.join(next_tensordict))
        return self.forward(next_tensordict)

    def _reset(self, tensordict: TensorDictBase, tensordict_reset: TensorDictBase) -> TensorDictBase:
        return self.forward(tensordict_reset)

    def transform_observation_spec(self, observation_spec: TensorSpec) -> TensorSpec:
        """Return the spec of the normalized observation, bounded by the clip."""
        first = observation_spec[self.in_keys[0]]
        shape = (*first.shape[:-1], self.running.mean.shape[0])
        dtype = torch.float32 if first.dtype == torch.uint8 else first.dtype
        observation_spec[self.out_keys[0]] = Bounded(-self.clip, self.clip, shape, device=first.device, dtype=dtype)
        return observation_spec


class RewardScaler(Transform):
    """Divide rewards by the standard deviation of the discounted return, without centering (which would change the
    task), and clip them.

    The running return of each world is ``R <- gamma * R + r`` and starts at 0 with each episode.

    Args:
        num_envs: number of worlds.
        gamma: discount of the running return.
        clip: largest absolute scaled reward.
        epsilon: added to the variance.
        enabled: pass rewards through unchanged if False.
    """

    def __init__(
        self, num_envs: int, gamma: float = 0.99, clip: float = 10.0, epsilon: float = 1e-8, enabled: bool = True
    ) -> None:
        super().__init__(in_keys=["reward"], out_keys=["reward"])
        self.running = RunningStatistics(())
        self.register_buffer("returns", torch.zeros(num_envs, 1))
        self.register_buffer("gamma", torch.tensor(gamma), persistent=False)
        self.clip, self.epsilon, self.enabled = clip, epsilon, enabled
        self.frozen = False

    @property
    def unit(self) -> Tensor:
        """Divisor of rewards, []: the world's reward that is scaled to 1."""
        factor = torch.rsqrt(self.running.var.float() + self.epsilon)
        return 1 / factor if self.enabled else torch.ones_like(factor)

    def scale(self, reward: Tensor) -> Tensor:
        """Return scaled rewards."""
        if not self.enabled:
            return reward
        return (reward * torch.rsqrt(self.running.var.float() + self.epsilon)).clamp(-self.clip, self.clip)

    def update(self, reward: Tensor, done: Tensor, alive: Tensor | None = None) -> None:
        """Merge the running returns of a rollout [T, N, 1] into the statistics, only those of ``alive`` rows (bool [T,
        N]) if given; do nothing if frozen.
        """
        if not self.enabled or self.frozen:
            return
        running, history = self.returns, []
        for step_reward, step_done in zip(reward, done, strict=True):
            running = running * self.gamma + step_reward
            history.append(running)
            running = torch.where(step_done, 0.0, running)
        self.running.update(torch.stack(history), alive)
        self.returns.copy_(running)

    def _step(self, tensordict: TensorDictBase, next_tensordict: TensorDictBase) -> TensorDictBase:
        reward = next_tensordict.get("reward")
        self.update(reward.unsqueeze(0), next_tensordict.get("done").unsqueeze(0))
        return next_tensordict.set("reward", self.scale(reward))


def get_statistics(normalizer: ObservationNormalizer, scaler: RewardScaler) -> dict[str, float | list[float]]:
    """Return the statistics as plain numbers under the keys :data:`STATISTICS`."""
    observations, returns = normalizer.running, scaler.running
    values = (observations.mean, observations.var, observations.count, returns.mean, returns.var, returns.count)
    return {name: value.tolist() for name, value in zip(STATISTICS, values, strict=True)}


def set_statistics(
    normalizer: ObservationNormalizer | None, scaler: RewardScaler | None, statistics: dict[str, float | list[float]]
) -> None:
    """Restore the statistics of :func:`get_statistics` into the given normalizer and scaler.

    Raises:
        ValueError: keys are missing or unknown, a shape differs, or a number is not finite; nothing is changed then.
    """
    if statistics.keys() != set(STATISTICS):
        wrong = ", ".join(sorted(statistics.keys() ^ set(STATISTICS)))
        raise ValueError(f"normalization statistics need exactly the keys {', '.join(STATISTICS)}; check {wrong}.")
    buffers: dict[str, Tensor] = {}
    for names, holder in ((STATISTICS[:3], normalizer), (STATISTICS[3:], scaler)):
        if holder is not None:
            buffers.update(zip(names, _buffers(holder.running), strict=True))
    pairs = []
    for name, buffer in buffers.items():
        try:
            value = torch.tensor(statistics[name], dtype=buffer.dtype, device=buffer.device)
        except (TypeError, ValueError):
            raise ValueError(
                f"{name} is not made of numbers: the statistics are damaged, use another checkpoint."
            ) from None
        if value.shape != buffer.shape:
            raise ValueError(
                f"{name} has shape {tuple(value.shape)} but the model needs {tuple(buffer.shape)}: "
                "these statistics belong to another observation."
            )
        if not bool(value.isfinite().all()) or (not name.endswith("mean") and bool((value < 0).any())):
            raise ValueError(
                f"{name} holds a number that cannot be (not finite, or negative): the statistics are damaged, "
                "use another checkpoint."
            )
        pairs.append((buffer, value))
    for buffer, value in pairs:
        buffer.copy_(value)


def read_statistics(path: Path) -> dict[str, float | list[float]]:
    """Read statistics from a JSON file."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict):
            raise ValueError("it holds no object")
        return found
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(
            f"{path} cannot be read as normalization statistics ({error}): use the JSON file of a checkpoint."
        ) from None


def _buffers(running: RunningMeanStd) -> tuple[Tensor, Tensor, Tensor]:
    return running.mean, running.var, running.count
