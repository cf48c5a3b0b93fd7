"""A run: the training loop with its books kept, from the first folder to the model card."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path

from torchrl_agent.errors import TrainingError
from torchrl_agent.experiment import Experiment, resolve_device
from torchrl_agent.loop import Iteration, iterate, make_learner
from torchrl_agent.runs.folder import Books, new_run, save_learner
from torchrl_agent.runs.stopping import DelayedSignals
from torchrl_agent.training.checkpoint import find_checkpoint, load_checkpoint
from torchrl_agent.training.metrics import check_wandb


def train(experiment: Experiment, resume: Path | str | None = None) -> Generator[Iteration, None, None]:
    """:func:`~torchrl_agent.loop.learn`, recorded in ``runs/<name>/``: configuration, code state, metrics, checkpoints,
    film, summary and model card.

    A loop that is left early (``break``, an error of the caller's), Ctrl-C and SIGTERM leave a checkpoint of the last
    finished iteration and a summary. A signal waits until the iteration has finished, a second one does not.

    Args:
        experiment: what to train.
        resume: a run folder to continue in (from its last checkpoint).

    Raises:
        ValueError: see :func:`~torchrl_agent.loop.learn`; also if the run's folder exists already, is in use or cannot
            be written to.
        NonFiniteError, CollapseError: as :func:`~torchrl_agent.loop.learn`, and says what is left to go on from.
    """
    state = None
    if resume is not None:
        state = load_checkpoint(find_checkpoint(Path(resume)), resolve_device(experiment.device), replay=True)
    # before anything is written: a configuration that cannot work leaves no trace
    check_wandb(experiment.run.wandb)
    learner = make_learner(experiment, state)
    if state is not None and state["frames"] >= experiment.total_frames:
        raise ValueError(
            f"{resume} has already trained for its {experiment.total_frames} frames: give a larger total_frames=."
        )
    folder = new_run(experiment) if resume is None else Path(resume)
    with Books(folder, learner, resumed=state is not None) as books:
        iterations = iterate(learner)
        while (iteration := _next(iterations, books)) is not None:
            yield iteration
        books.finish()


def _next(iterations: Iterator[Iteration], books: Books) -> Iteration | None:
    """The next iteration, entered into the books before a signal acts; None after the last one."""
    with DelayedSignals() as signals, books.at_work():
        try:
            iteration = next(iterations, None)
        except TrainingError as error:
            raise type(error)(f"{str(error).rstrip('.')}; {books.where_to_go_on()}.") from None
        if iteration is not None:
            books.enter(iteration.metrics)
    if signals.received is not None:
        books.stop()
        signals.deliver()
    return iteration


def save(iteration: Iteration, folder: Path) -> Path:
    """Write a checkpoint of this iteration into the run's folder; :func:`train` does it by itself.

    Raises:
        ValueError: its learner was put together by hand, so there is no configuration to load it by.
    """
    if iteration.learner.experiment is None:
        raise ValueError("this learner has no experiment to be saved with: give Learner one, or use torch.save.")
    return save_learner(iteration.learner, iteration.metrics, folder)
