"""Evaluation of a policy: the first episode of each world, fixed seeds, frozen statistics."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor
from torchrl.envs import EnvBase
from torchrl.envs.utils import ExplorationType, set_exploration_type

from torchrl_agent.core import keys
from torchrl_agent.core.abilities import abilities, world_seed
from torchrl_agent.core.progress import Progress
from torchrl_agent.core.tables import student, wilson
from torchrl_agent.optimization.compilation import AccelerationConfig, CompiledFunction, CudaGraphFunction
from torchrl_agent.training.collector import RolloutCollector, episode_entries, fill_caches, tidy_root

logger = logging.getLogger(__name__)

MAX_STEPS = 100_000
"""Number of steps after which an evaluation ends, even if some worlds have not finished their episodes."""
UNFINISHED = "unfinished"
"""Name of the mask of episodes of an evaluation that did not finish, and of their number in its summary."""
CHECK_EVERY = 50
"""Number of compiled steps between checks that every world has finished, as a check makes the host wait."""
CHECK_EVERY_UNCOMPILED = 5
"""The same for steps that take longer than a check."""


class Stepper:
    """Steps a world ``steps`` times with a policy at each call, and passes every step to ``watch``.

    On CUDA the steps are one CUDA graph; on a CPU they run as they are.

    Args:
        env: a batched world.
        policy: writes actions.
        steps: steps of every world per call.
        watch: function of the step's tensordict; it may write to tensors in place, and must not wait for the device.
        acceleration: parts that may be compiled and captured; None for none.
        compile: compile the step on CUDA, which takes longer than a single evaluation or film.
        collector: takes the steps instead of the policy, by code that is compiled already.
    """

    def __init__(
        self,
        env: EnvBase,
        policy: TensorDictModuleBase,
        steps: int,
        watch: Callable[[TensorDictBase], None],
        acceleration: AccelerationConfig | None = None,
        compile: bool = False,
        collector: RolloutCollector | None = None,
    ) -> None:
        self.env, self.policy, self.steps, self.watch = env, policy, steps, watch
        config = AccelerationConfig(step=False, cudagraphs=False) if acceleration is None else acceleration
        fast = env.device is not None and env.device.type == "cuda" and abilities(env).branchless
        options = abilities(env).compile_options_on(env.device)
        self.compiled = fast and (collector is not None or (compile and config.step))
        self._step: Callable = (
            CompiledFunction("the evaluation's step", self._act_and_step, self.compiled, options)
            if collector is None
            else collector.step
        )
        self._play = CudaGraphFunction(
            "the evaluation", self._play_steps, env.device if fast and config.cudagraphs else None
        )
        self.root = tidy_root(env, env.reset()).clone()
        if fast:
            fill_caches(env)

    def restart(self, seed: int) -> None:
        """Begin the episodes of a seed in all worlds."""
        self.env.set_seed(world_seed(self.env, seed))
        self.root.update_(tidy_root(self.env, self.env.reset()))

    def __call__(self) -> None:
        """Take the next steps."""
        self._play()

    def _act_and_step(self, root: TensorDictBase) -> tuple[TensorDictBase, TensorDictBase]:
        return self.env.step_and_maybe_reset(self.policy(root.copy()))

    def _play_steps(self) -> None:
        root = self.root
        for _ in range(self.steps):
            played, root = self._step(root)
            self.watch(played)
        self.root.update_(root)


class Evaluator:
    """Runs every world until its first episode has finished, once per call; compiled code is reused between calls.

    Taking the first episode of each world, rather than the first N episodes to finish, keeps long episodes from being
    left out.

    Args:
        policy: writes actions.
        env: a batched world.
        deterministic: take the most likely action instead of drawing one.
        max_steps: number of steps after which it ends; episodes that have not finished by then count as they are.
        acceleration: parts that may be compiled and captured on CUDA.
        compile: compile the step there: for evaluators that are called again and again.
        collector: takes the steps instead of the policy, by code that is compiled already.
        episodes: number of episodes, by default one of each world. Where there are fewer worlds, which must be this
            project's, they begin anew; the games are those of as many worlds.
    """

    def __init__(
        self,
        policy: TensorDictModuleBase,
        env: EnvBase,
        deterministic: bool = True,
        max_steps: int = MAX_STEPS,
        acceleration: AccelerationConfig | None = None,
        compile: bool = False,
        collector: RolloutCollector | None = None,
        episodes: int | None = None,
    ) -> None:
        self.env, self.max_steps, self.entries = env, max_steps, episode_entries(env)
        self.episodes = env.batch_size[0] if episodes is None else episodes
        self.mode = ExplorationType.DETERMINISTIC if deterministic else ExplorationType.RANDOM
        self.collector = collector
        self.finished = torch.zeros(env.batch_size, dtype=torch.bool, device=env.device)
        self.final = torch.zeros(*env.batch_size, len(self.entries), device=env.device)
        self.play = Stepper(env, policy, CHECK_EVERY_UNCOMPILED, self._watch, acceleration, compile, collector)
        if self.play.compiled:
            self.play.steps = CHECK_EVERY

    @torch.no_grad()
    def __call__(self, seed: int | None = None) -> dict[str, Tensor]:
        """Return statistics of the episodes by name, each [N] on the CPU; where episodes did not finish within
        ``max_steps``, a warning is logged and :data:`UNFINISHED` is the mask of them.

        Args:
            seed: seed to reset the worlds with; without it they continue as they were given, which is valid once.

        Raises:
            ValueError: there are more episodes than worlds, but no seed, or the worlds are not this project's.
        """
        worlds, total = self.finished.numel(), self.episodes
        shard = abilities(self.env).take_shard if total > worlds else None
        if total > worlds and (shard is None or seed is None):
            raise ValueError(f"{total} episodes need a seed, and worlds of this project, if there are {worlds} worlds.")
        final, finished = [], []
        with self._acting(), Progress(total, "episode", "judging", leave=False) as progress:
            for first in range(0, total, worlds):
                if shard is not None:
                    shard(first, total)
                if seed is not None:
                    self.play.restart(seed)
                self._play_episodes(first, progress)
                final.append(self.final[: total - first].to("cpu", copy=True))
                finished.append(self.finished[: total - first].to("cpu", copy=True))
        episodes = dict(zip(self.entries, torch.cat(final).unbind(-1), strict=True))
        unfinished = ~torch.cat(finished)
        if not unfinished.any():
            return episodes
        logger.warning(
            "%d of %d worlds did not finish an episode within the %d steps of an evaluation: give the world a time "
            "limit, such as Gymnasium's +world.max_episode_steps=N, or change evaluation.max_steps.",
            int(unfinished.sum()),
            total,
            self.max_steps,
        )
        return {**episodes, UNFINISHED: unfinished.float()}

    def _acting(self) -> AbstractContextManager:
        """Context in which actions are taken as this evaluation takes them."""
        return set_exploration_type(self.mode) if self.collector is None else self.collector.acting(self.mode)

    def _play_episodes(self, first: int, progress: Progress) -> None:
        """Play the first episode of all worlds, as the evaluation's episodes from number ``first`` on."""
        wanted = self.finished[: self.episodes - first]
        self.finished.zero_()
        self.final.zero_()
        for _ in range(math.ceil(self.max_steps / self.play.steps)):
            self.play()
            count = int(wanted.sum())
            progress.reach(first + count)
            if count == len(wanted):
                break

    def _watch(self, played: TensorDictBase) -> None:
        following = played.get(keys.NEXT)
        done = following.get(keys.DONE).squeeze(-1)
        values = torch.stack([following.get(key).squeeze(-1).float() for key in self.entries.values()], -1)
        self.final.copy_(torch.where(self.finished.unsqueeze(-1), self.final, values))
        self.finished.logical_or_(done)


def evaluate_policy(
    policy: TensorDictModuleBase, env: EnvBase, deterministic: bool = True, max_steps: int = MAX_STEPS
) -> dict[str, Tensor]:
    """Evaluate the first episode of every world, once: see :class:`Evaluator`."""
    return Evaluator(policy, env, deterministic, max_steps)()


def summarize(episodes: dict[str, Tensor]) -> dict[str, Any]:
    """Summarize episodes: ``return_mean``, ``return_std``, ``length_mean``, ``episodes``, ``win_rate`` and other means;
    the number of ``unfinished`` episodes, where there are any: they count as they were at the end.
    """
    returns = episodes[keys.EPISODE_RETURN].double()
    summary: dict[str, Any] = {
        "episodes": returns.numel(),
        "return_mean": returns.mean().item(),
        "return_std": returns.std(correction=0).item(),
        "length_mean": episodes[keys.EPISODE_LENGTH].double().mean().item(),
    }
    if keys.EPISODE_WIN in episodes:
        summary["win_rate"] = episodes[keys.EPISODE_WIN].double().mean().item()
    if UNFINISHED in episodes:
        summary[UNFINISHED] = int(episodes[UNFINISHED].sum())
    known = (
        UNFINISHED,
        keys.EPISODE_RETURN,
        keys.EPISODE_LENGTH,
        keys.EPISODE_WIN,
        keys.EPISODE_COMPLETE,
        keys.EPISODE_STAGE,
    )
    summary.update({name: value.double().mean().item() for name, value in episodes.items() if name not in known})
    return summary


def intervals(summary: dict[str, Any]) -> dict[str, tuple[float, float]]:
    """Compute 95 % confidence intervals of ``return_mean`` (Student's t; infinite for one episode) and, if
    there is one, of ``win_rate`` (:func:`~torchrl_agent.core.tables.wilson`).
    """
    count = summary["episodes"]
    half = math.inf if count < 2 else student(count - 1) * summary["return_std"] / math.sqrt(count - 1)
    result = {"return_mean": (summary["return_mean"] - half, summary["return_mean"] + half)}
    if "win_rate" in summary:
        result["win_rate"] = wilson(summary["win_rate"], count)
    return result


def clearly_other(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Names of figures whose :func:`intervals` in two summaries do not overlap."""
    theirs = intervals(other)
    return [name for name, (low, high) in intervals(one).items() if high < theirs[name][0] or theirs[name][1] < low]
