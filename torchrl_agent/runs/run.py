"""A run: the training loop, recorded from the first folder to the model card."""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from enum import Enum, auto
from pathlib import Path
from typing import Any

import torch

from torchrl_agent.core import ranks
from torchrl_agent.core.checkpoint import find_checkpoint, load_checkpoint
from torchrl_agent.core.devices import resolve_device
from torchrl_agent.core.errors import TrainingError
from torchrl_agent.core.run_names import CONFIG, find_run, run_name_of
from torchrl_agent.experiment import Experiment, check_experiment
from torchrl_agent.experiment.build import make_actor, make_actors_learner
from torchrl_agent.experiment.judging import EVALUATION_RETURN
from torchrl_agent.experiment.rank_checks import check_actors, check_ranks
from torchrl_agent.loop import Iteration, iterate, make_learner
from torchrl_agent.runs.folder import hold_run, new_run, read_summary, run_to_go_on
from torchrl_agent.runs.locks import Locks
from torchrl_agent.runs.metrics import check_wandb
from torchrl_agent.runs.stopping import DelayedSignals
from torchrl_agent.runs.writer import OtherRankWriter, RunWriter, save_learner
from torchrl_agent.training.actor_learner import RemoteCollector
from torchrl_agent.training.learner import Learner


def train(
    experiment: Experiment,
    resume: Path | str | None = None,
    on_iteration: Callable[[Iteration], object] | None = None,
    on_episode: Callable[[dict[str, float]], object] | None = None,
    on_evaluation: Callable[[Iteration], object] | None = None,
) -> Generator[Iteration, None, None]:
    """:func:`~torchrl_agent.loop.learn`, recorded in ``runs/<name>/``: configuration, code state, metrics, checkpoints,
    film, summary and model card.

    A loop that is left early (``break``, an error of the caller's), Ctrl-C and SIGTERM leave a checkpoint of the last
    finished iteration and a summary. A signal waits until the iteration has finished, a second one does not.

    Several ranks train it together inside :func:`torchrl_agent.core.ranks.started`; the first one writes.

    Args:
        resume: a run folder to continue in (from its last checkpoint); by default as ``run.resume`` says.
        on_iteration: called after every iteration; on a GPU its row in metrics.csv comes with the next one.
        on_episode: called with the statistics of each episode that ended in it, such as ``return`` and ``length``.
        on_evaluation: called after those iterations that ``evaluation.every`` had judged; the figures are metrics.

    Raises:
        ValueError: see :func:`~torchrl_agent.loop.learn`; also if the run's folder exists already, is in use or cannot
            be written to.
        NonFiniteError, CollapseError: as :func:`~torchrl_agent.loop.learn`, with the checkpoint to go on from in the
            message.
    """
    check_experiment(experiment)
    if ranks.size() > 1 and experiment.plays_apart and not experiment.has_members:
        iterations = _train_apart(experiment, resume)
    else:
        iterations = _train(experiment, resume, make_learner)
    with closing(iterations):
        for iteration in iterations:
            if on_episode is not None:
                ended = iteration.learner.collector.finished(iteration.rollout)
                for values in zip(*ended.values(), strict=True):
                    on_episode(dict(zip(ended, map(float, values), strict=True)))
            if on_evaluation is not None and EVALUATION_RETURN in iteration.known:
                on_evaluation(iteration)
            if on_iteration is not None:
                on_iteration(iteration)
            yield iteration


def _train_apart(experiment: Experiment, resume: Path | str | None) -> Generator[Iteration, None, None]:
    """The training of the first rank, as one process would run it, for which the other ranks collect."""
    check_ranks(experiment)
    check_actors(experiment)
    actors, number = ranks.size() - 1, ranks.rank() - 1
    if number >= 0:
        with ranks.among(actors, number), DelayedSignals():  # the learner decides when to stop
            make_actor(experiment).run()
        return
    collectors: list[RemoteCollector] = []

    def make(experiment: Experiment, state: dict[str, Any] | None) -> Learner:
        learner = make_actors_learner(experiment, actors, pretrained=state is None)
        if state is not None:
            learner.load_state_dict(state)
        assert isinstance(learner.collector, RemoteCollector)
        collectors.append(learner.collector)
        return learner

    with ranks.alone():
        try:
            yield from _train(experiment, resume, make)
        except Exception:
            collectors.clear()  # actors end as this rank does
            raise
        finally:
            for collector in collectors:
                collector.stop()


def _train(
    experiment: Experiment, resume: Path | str | None, make: Callable[[Experiment, dict[str, Any] | None], Learner]
) -> Generator[Iteration, None, None]:
    here = Path.cwd()  # a world may change it
    by_itself = resume is None and experiment.run.resume == "auto"
    if by_itself:
        resume = ranks.first(lambda: run_to_go_on(experiment))
    folder = None if resume is None else find_run(resume)
    with Locks() as locks:
        if folder is not None:
            ranks.first(functools.partial(_check_whole, folder))
            ranks.first(functools.partial(hold_run, folder, locks))
        state = None if folder is None else _last_state(experiment, folder, its_own=by_itself)
        # before anything is written: a configuration that cannot work leaves no trace
        check_wandb(experiment.run.wandb)
        learner = make(experiment, state)
        left = Left.FRAMES if folder is None else _what_is_left(experiment, here / folder, learner.frames, by_itself)
        if left is Left.NOTHING:
            return
        with closing(learner.env), _make_writer(experiment, learner, folder, locks, here) as writer:
            iterations = iterate(learner) if left is Left.FRAMES else iter(())
            while (iteration := _next(iterations, writer)) is not None:
                yield iteration
            writer.finish()


def _check_whole(folder: Path) -> None:
    """Raise ValueError if a run was exported, without the state that training goes on from."""
    if "origin" in read_summary(folder):
        raise ValueError(
            f"{run_name_of(folder)} was exported without its optimizer and worlds, so it cannot be resumed: train anew "
            f"with 'torchrl-agent train {folder / CONFIG}', or give its weights to a new learner "
            '(docs/howto/resume.md, "Take an agent along").'
        )


class Left(Enum):
    """Remaining work of a run."""

    FRAMES = auto()
    EVALUATION = auto()
    NOTHING = auto()


def _what_is_left(experiment: Experiment, folder: Path, frames: int, by_itself: bool) -> Left:
    """Remaining work of a run that goes on after this many frames.

    Raises:
        ValueError: nothing is left, and it does not go on ``by_itself``.
    """
    past = ranks.first(lambda: read_summary(folder))
    if past.get("frames") != frames:  # of an earlier end
        past = {}
    trained = frames >= experiment.total_frames
    at_mark = past.get("ended") == "mark" and experiment.evaluation.stop_at_mark
    if not trained and not at_mark:
        return Left.FRAMES
    if not past.get("judged", False):
        return Left.EVALUATION
    if by_itself:
        return Left.NOTHING
    if trained:
        raise ValueError(
            f"{folder} has already trained for its {experiment.total_frames} frames: give a larger total_frames=."
        )
    return Left.FRAMES


def _last_state(experiment: Experiment, folder: Path, its_own: bool) -> dict[str, Any]:
    """The last checkpoint of a run, as the first rank reads it; ``its_own``: of this very configuration."""
    device = resolve_device(experiment.device) if ranks.size() == 1 else torch.device("cpu")
    state = ranks.first(lambda: load_checkpoint(find_checkpoint(folder), device, replay=True))
    if its_own and state["metadata"].get("config_hash") != experiment.hash():
        raise ValueError(
            f"run.resume=auto: {folder} was trained with another configuration: choose another run.name=, or change it "
            f"with 'torchrl-agent resume {folder}'."
        )
    return state


def _make_writer(
    experiment: Experiment, learner: Learner, folder: Path | None, locks: Locks, here: Path
) -> RunWriter | OtherRankWriter:
    """Writer of the run that goes on in this folder, or of a new one: on the first rank."""
    if ranks.rank() > 0:
        return OtherRankWriter(learner)
    if folder is None:
        return RunWriter(new_run(experiment, locks, here), learner, False, locks)
    return RunWriter(here / folder, learner, True, locks)


def _next(iterations: Iterator[Iteration], writer: RunWriter | OtherRankWriter) -> Iteration | None:
    """The next iteration, recorded before a signal acts; None after the last one."""
    with DelayedSignals() as signals, writer.iterating():
        with _saying_where_to_go_on(writer):
            iteration = next(iterations, None)
            if iteration is not None:
                writer.write(iteration)
        signals.received = ranks.highest(signals.received or 0) or None  # all ranks stop after the same iteration
    if signals.received is not None:
        with _saying_where_to_go_on(writer):
            writer.stop()
        signals.deliver()
    return iteration


@contextmanager
def _saying_where_to_go_on(writer: RunWriter | OtherRankWriter) -> Iterator[None]:
    """Context that adds the checkpoint to go on from to the error of a training."""
    try:
        yield
    except TrainingError as error:
        raise type(error)(f"{str(error).rstrip('.')}; {writer.where_to_go_on()}.") from None


def save(iteration: Iteration, folder: Path) -> Path:
    """Write a checkpoint of this iteration into the run's folder; :func:`train` does it by itself.

    Raises:
        ValueError: its learner was put together by hand, so there is no configuration to load it by.
    """
    if iteration.learner.experiment is None:
        raise ValueError("this learner has no experiment to be saved with: give Learner one, or use torch.save.")
    return save_learner(iteration.learner, iteration.metrics, folder)
