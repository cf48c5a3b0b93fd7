"""The training loop. READ THIS FIRST: :func:`iterate` is all of reinforcement learning; ``runs/`` writes it down."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from tensordict import TensorDict

from torchrl_agent.core import keys, ranks
from torchrl_agent.core.devices import Moment
from torchrl_agent.core.spans import spanned
from torchrl_agent.experiment import Experiment, check_experiment
from torchrl_agent.experiment.judging import PeriodicEvaluator
from torchrl_agent.models.agent import Agent
from torchrl_agent.optimization.compilation import MODES
from torchrl_agent.optimization.schedules import learning_rate
from torchrl_agent.optimization.updater import NonFiniteError
from torchrl_agent.training.learner import Learner
from torchrl_agent.training.metrics import Figures, fetch, train_metrics


@dataclass
class Iteration:
    """Result of one iteration of the loop."""

    number: int
    frames: int
    """Number of frames seen so far."""
    known: dict[str, float]
    """Metrics that are on the host: of episodes, curriculum, evaluation, and what a learner adds."""
    learner: Learner
    rollout: TensorDict
    """The frames just learned from [T, N]; its memory is used again by the next iteration."""
    updates: Figures
    """Diagnostics of its updates, which a GPU may not have finished yet."""
    moments: tuple[Moment, Moment, Moment]
    """Its beginning, the end of the rollout and that of the updates."""

    @property
    def metrics(self) -> dict[str, float]:
        """All metrics; the host waits for the updates, where they have not finished yet.

        Raises:
            NonFiniteError: several updates in a row had to be skipped.
        """
        return {**self.known, **train_metrics(_read(self.updates, self.learner)), **self._speed()}

    def _speed(self) -> dict[str, float]:
        begun, collected, ended = self.moments
        return {
            "time/fps": self.learner.collector.frames / begun.until(ended),
            "time/collect_seconds": begun.until(collected),
            "time/learn_seconds": collected.until(ended),
        }

    @property
    def agent(self) -> Agent:
        """Actor and critic; for a population, those of its best member."""
        return self.learner.best_agent()


def learn(experiment: Experiment, state: dict[str, Any] | None = None) -> Iterator[Iteration]:
    """Train and yield after every iteration; touches no file.

    Args:
        experiment: the experiment to train.
        state: a checkpoint to continue from.

    Raises:
        ValueError: the configuration cannot work.
        NonFiniteError: values of the world or the loss stopped being finite.
        CollapseError: training collapsed more often than its governor may go back.
    """
    check_experiment(experiment)
    yield from iterate(make_learner(experiment, state))


def make_learner(experiment: Experiment, state: dict[str, Any] | None = None) -> Learner:
    """Make the learner for :func:`iterate`: a fresh one, or one that continues from a checkpoint."""
    learner = experiment.make_learner(pretrained=state is None)
    if state is not None:
        learner.load_state_dict(state)
    return learner


def iterate(learner: Learner) -> Iterator[Iteration]:
    """Run the loop itself: :func:`learn` with a learner that you have made, and perhaps changed."""
    judge = learner.experiment and PeriodicEvaluator(learner.experiment, learner.best_agent(), learner.collector)
    updates = Figures({})
    while learner.frames < learner.total_frames:
        # collect; here the host waits for the device, and the figures of the last updates come along
        begun = Moment(learner.device)
        rollout = learner.collector.collect()
        ended = Figures({"episodes": rollout.get((keys.NEXT, keys.DONE)).sum()})
        if not _can_learn_from(learner, rollout, ended, updates):
            continue
        collected = Moment(learner.device)
        _read(updates, learner)

        # learn
        finished = learner.collector.finished(rollout, int(ended.read()["episodes"]))
        rate = learning_rate(learner.algorithm.config.learning_rate, learner.frames / learner.total_frames)
        updates = Figures(learner.improve(rollout, rate))
        if updates.arrived or ranks.size() > 1:  # a GPU goes on; several ranks end together
            _read(updates, learner)

        # count frames and episodes, move the curriculum, let a population evolve
        new = learner.collector.frames // learner.members
        learner.frames += new
        learner.number += 1
        known = {**learner.log_episodes(rollout, finished), **_state_of(learner)}
        moments = (begun, collected, Moment(learner.device))
        known |= learner.end_iteration(known, updates)

        # evaluate, if it is time
        if judge is not None and judge.is_due(learner.frames, new):
            learner.best_agent()
            known |= ranks.first(judge)
        yield Iteration(learner.number, learner.frames, known, learner, rollout, updates, moments)
        if judge is not None and judge.target_reached(known):
            break
    _read(updates, learner)


def _read(updates: Figures, learner: Learner) -> dict[str, float]:
    """Diagnostics of an iteration's updates; raises NonFiniteError if they diverged, unless a governor watches."""
    diagnostics = updates.read()
    if learner.governor is None:
        learner.algorithm.check(diagnostics)
    return diagnostics


def _can_learn_from(learner: Learner, rollout: TensorDict, *figures: Figures) -> bool:
    """True if a rollout can be learned from: its values are finite, or the learner tolerates that its policy wrote
    others. After a governor has rolled back such a policy, another rollout has to be collected. Fetches ``figures``.

    Raises:
        NonFiniteError: values that are not finite come from the world, or from a policy without a governor.
    """
    try:
        check_finite(rollout, *figures)
    except NonFiniteError as error:
        names = [path[-1] for path in error.culprits]
        written = {key[-1] if isinstance(key, tuple) else key for key in learner.collector.policy.out_keys}
        from_policy = set(names) <= written
        tolerated = from_policy and learner.tolerates_nonfinite(rollout)
        if not tolerated:
            if learner.governor is None or not from_policy:
                raise
            learner.governor.rollback(f"{', '.join(names)} not finite", learner.frames, float(learner.episodes.total))
        # the next rollout begins with the agent's memory, which holds the same values
        learner.collector.root.apply_(lambda value: value.nan_to_num_(0.0, 0.0, 0.0))
        return tolerated
    return True


@spanned("check")
def check_finite(rollout: TensorDict, *figures: Figures) -> None:
    """Check that a rollout [T, N] is finite, with one transfer, that of the ``figures`` too; on all ranks alike.

    Raises:
        NonFiniteError: floating-point entries hold NaN or infinity; the sentence and ``culprits`` name them.
        ValueError: an action mask leaves a living agent no action.
    """
    leaves = {key if isinstance(key, tuple) else (key,): value for key, value in rollout.items(True, True)}
    numbers = {path: value for path, value in leaves.items() if value.is_floating_point()}
    masked = {}
    for path in [path for path in leaves if path[-1] == keys.ACTION_MASK]:
        alive = leaves.get((*path[:-1], keys.ALIVE), leaves[path].new_ones(()))
        masked[path] = (leaves[path].any(-1) | ~alive).all()
    # a sum is finite only if all its terms are, and one pass over them; it may overflow, though
    finite = torch.stack([value.sum().float() for value in numbers.values()]).isfinite()
    good = Figures({"all": ranks.all_true(torch.stack([finite.all(), *masked.values()]).all())})
    fetch(good, *figures)
    if good.read()["all"]:
        return
    fine = {**{path: value.isfinite().all() for path, value in numbers.items()}, **masked}
    of_ranks = ranks.all_gather([path for path, each in fine.items() if not bool(each)])
    if not any(of_ranks):
        return
    number, culprits = next((number, found) for number, found in enumerate(of_ranks) if found)
    where = "" if ranks.size() == 1 else f" on rank {number}"
    infinite = ", ".join(".".join(path) for path in culprits if path[-1] != keys.ACTION_MASK)
    if infinite:
        raise NonFiniteError(f"the rollout{where} holds NaN or infinity in {infinite}: look at the world.", culprits)
    raise ValueError(
        f"{'.'.join(culprits[0])}{where} leaves a living agent no action: let the world allow at least one, such as "
        "doing nothing."
    )


def _state_of(learner: Learner) -> dict[str, float]:
    """Execution modes, frames, time spent compiling and memory so far, as metrics."""
    state = {f"acceleration/{part}": float(MODES.index(mode)) for part, mode in learner.modes().items()}
    state |= {"time/compile_seconds": learner.compile_seconds, "time/total_timesteps": float(learner.frames)}
    if learner.device.type == "cuda":
        state["time/gpu_memory_mb"] = torch.cuda.max_memory_allocated(learner.device) / 2**20
    return state
