"""Writers of a run's folder during training: one writer on the first rank, its helpers on the others."""

from __future__ import annotations

import atexit
import logging
import math
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from torchrl_agent.core import ranks
from torchrl_agent.core.checkpoint import TRAINING_RETURN, best_score, checkpoints, save_checkpoint, write_json
from torchrl_agent.core.devices import forked_random
from torchrl_agent.experiment.config_files import write_config
from torchrl_agent.experiment.judging import EVALUATION_RETURN, configured_way, evaluate_ways
from torchrl_agent.loop import Iteration
from torchrl_agent.models.agent import Agent
from torchrl_agent.models.planned_policy import acting_policy
from torchrl_agent.optimization.sharding import sharded
from torchrl_agent.optimization.updater import NonFiniteError
from torchrl_agent.population.learner import PopulationLearner
from torchrl_agent.runs.film import BEST_OF, film_policy, film_world
from torchrl_agent.runs.folder import FILMS, SUMMARY, read_summary
from torchrl_agent.runs.locks import Locks, clean
from torchrl_agent.runs.members import MembersWriter
from torchrl_agent.runs.metrics import EventsWriter, MetricsWriter, wandb_logger
from torchrl_agent.runs.model_card import write_model_card
from torchrl_agent.training.learner import Learner

log = logging.getLogger(__name__)


class RunWriter:
    """Record of a run: metrics of every iteration, checkpoints when they are due, in the end a summary and a model
    card. A context: no other process can train in the same folder, and if it is left between two iterations, by
    Ctrl-C or by closing the generator, it does what :meth:`stop` does.

    Args:
        resumed: True if the learner goes on from a checkpoint in the folder.
        locks: locks that hold the folder; released when the context is left.

    Raises:
        ValueError: the folder holds what must not be lost, is damaged, or cannot be written to.
    """

    def __init__(self, folder: Path, learner: Learner, resumed: bool, locks: Locks) -> None:
        self.folder, self.learner, self.experiment = folder, learner, learner.experiment
        self._locks, self._hash, text = locks, self.experiment.hash(), self.experiment.to_yaml()
        # before anything is written: a run that is refused here has changed nothing
        frames, run = learner.frames if resumed else None, self.experiment.run
        self._members = MembersWriter(folder, learner, resumed) if isinstance(learner, PopulationLearner) else None
        logger = wandb_logger(folder, run.wandb, text)
        self._writer = MetricsWriter(folder, run.tensorboard, frames, logger, run.record_host)
        self._events = EventsWriter(folder, frames)
        self._metrics, past = self._writer.last, read_summary(folder)
        self._late: Iteration | None = None
        with self._writing():
            clean(folder)
            write_config(self.experiment, folder)
            self._writer.describe(text, self.experiment.settings())
            if self._members is not None:
                self._members.begin(locks)
        self._saved_frames, self._saved_at = learner.frames, time.monotonic()
        self._film_every, self._filmed = run.film_every, learner.frames
        self._start = time.monotonic() - (past["seconds"] if past.get("frames") == learner.frames else 0.0)
        self._between = False

    def __enter__(self) -> RunWriter:
        # a generator that is still open when Python ends would be closed only when modules are gone already
        atexit.register(self.__exit__, SystemExit)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        atexit.unregister(self.__exit__)
        if self._locks.closed:
            return
        try:
            # ranks save together or not at all
            if self._between and kind is not None and not issubclass(kind, Exception) and ranks.size() == 1:
                with suppress(NonFiniteError):  # what diverged is not worth a checkpoint
                    self.stop()
        finally:
            with self._locks, suppress(OSError) if kind is not None else self._writing():
                try:
                    with suppress(NonFiniteError):
                        self._write_row()
                finally:
                    self._writer.close()
                    if self._members is not None:
                        self._members.close()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """A context that turns an error of the disk, such as a full one or a folder that is gone, into a sentence."""
        try:
            yield
        except OSError as error:
            raise ValueError(
                f"run {self.folder} cannot be written to ({error.strerror or error}); {self.where_to_go_on()}."
            ) from None

    @contextmanager
    def iterating(self) -> Iterator[None]:
        """A context in which the learner changes: if it is left there, half an iteration is not saved."""
        self._between = False
        yield
        self._between = True

    def write(self, iteration: Iteration) -> None:
        """Record an iteration of the learner; write a checkpoint too, if one is due. While a GPU is still updating, its
        row in ``metrics.csv`` is left for the next call.
        """
        with self._writing():
            self._write_row()
            before, self._metrics, self._late = self._metrics, iteration.known, iteration
            if iteration.updates.arrived:
                self._write_row()
            (self.folder / SUMMARY).unlink(missing_ok=True)  # of what was learned before
            self._events.write(self.learner.frames, before, iteration.known, self.learner.env)
            if self._members is not None:
                self._members.write()
        if ranks.highest(self._due()):
            self._save()
        if self._film_every is not None and self.learner.frames - self._filmed >= self._film_every:
            self._film_on_the_way()

    def _write_row(self) -> None:
        """Write the metrics of the last iteration, unless they are written."""
        if self._late is None:
            return
        iteration, self._late = self._late, None
        self._metrics = iteration.metrics
        self._writer.write(iteration.frames, self._metrics)

    def stop(self) -> None:
        """Write a checkpoint of the last finished iteration, and a summary without a new evaluation: there may be
        seconds left only.
        """
        self._save_unless_saved()
        self._summarize("stopped")

    def finish(self) -> None:
        """Write the last checkpoint, summary and model card; then evaluate and film, and write the last two anew."""
        self._between = False
        self._save_unless_saved()
        ended = "total_frames" if self.learner.frames >= self.experiment.total_frames else "mark"
        if self._members is not None:
            self._members.picture()
        agent, run = self.learner.best_agent(), self.experiment.run
        # of a sharded agent no process holds all weights: `evaluate` reads the checkpoint
        wanted = (run.final_evaluation or run.film) and not sharded(agent)
        self._summarize(ended, judged=not wanted)
        if wanted:
            with ranks.alone():  # the others have nothing left to do
                judgment = self._judge(agent)
            self._summarize(ended, judged=True, **judgment)

    def where_to_go_on(self) -> str:
        """Checkpoint to go on from after an error, as the end of a sentence."""
        found = checkpoints(self.folder / "checkpoints")
        if not found:
            return "no checkpoint was written yet, so begin again"
        return f"the last checkpoint, {found[-1].name}, is good"

    def _due(self) -> bool:
        config, metrics = self.experiment.run, self._metrics
        minutes = (time.monotonic() - self._saved_at) / 60
        return (
            self.learner.frames - self._saved_frames >= config.checkpoint_every
            or (config.checkpoint_minutes is not None and minutes >= config.checkpoint_minutes)
            or (EVALUATION_RETURN in metrics and metrics[EVALUATION_RETURN] >= self._best())
        )

    def _best(self) -> float:
        return best_score(self.folder / "checkpoints", self._measure)

    @property
    def _measure(self) -> str:
        return TRAINING_RETURN if self.experiment.evaluation.every is None else EVALUATION_RETURN

    def _save(self) -> None:
        with self._writing():
            self._write_row()
        if self._members is not None:
            self._members.save()
        save_learner(self.learner, self._metrics, self.folder, self._measure, self._hash)
        self._saved_frames, self._saved_at = self.learner.frames, time.monotonic()

    def _save_unless_saved(self) -> None:
        if self._saved_frames != self.learner.frames:
            self._save()

    def _summarize(self, ended: str, judged: bool = False, **judgment: Any) -> None:
        learner = self.learner
        summary: dict[str, Any] = {
            "config": self.experiment.name,
            "seed": self.experiment.seed,
            "device": str(learner.device),
            "frames": learner.frames,
            "ended": ended,
            "judged": judged,
            "seconds": round(time.monotonic() - self._start, 1),
            "compile_seconds": round(learner.compile_seconds, 1),
            "acceleration": learner.modes(),
            "metrics": {key: None if math.isnan(value) else value for key, value in self._metrics.items()},
            **judgment,
        }
        if self._members is not None:
            self._members.summarize(summary)
            summary["population"] = self._members.describe()
        write_json(self.folder / SUMMARY, summary)
        write_model_card(self.folder, self.experiment, summary)

    def _judge(self, agent: Agent) -> dict[str, Any]:
        """Figures and film of the final policy, as far as they are wanted."""
        experiment, judgment = self.experiment, dict[str, Any]()
        if experiment.run.final_evaluation:
            ways = evaluate_ways(experiment, agent, collector=self.learner.collector)
            judgment |= {"evaluation": ways[configured_way(experiment)], "ways": ways}
        if experiment.run.film:
            with forked_random(self.learner.device):
                judgment |= {"film": self._film(agent, self.folder / "film.gif", BEST_OF), "film_of": BEST_OF}
        return judgment

    def _film_on_the_way(self) -> None:
        """Film the present policy; if that fails, do not try again."""
        self._filmed = self.learner.frames
        path = self.folder / FILMS / f"{self.learner.frames:012}.gif"
        with ranks.alone(), forked_random(self.learner.device), self._writing():
            path.parent.mkdir(exist_ok=True)
            if sharded(agent := self.learner.best_agent()) or self._film(agent, path) is None:
                self._film_every = None
                return
            self._writer.write_film(self.learner.frames, path)

    def _film(self, agent: Agent, path: Path, episodes: int = 1) -> str | None:
        """Name of a film of a policy's best of a number of episodes; None, and a line that says why, if there can be
        none.
        """
        experiment = self.experiment
        options: dict[str, Any] = {"acceleration": experiment.acceleration, "best_from": experiment.evaluation.seed}
        try:
            lent = None
            if self.learner.num_envs >= episodes:
                lent = self.learner.collector.lend(agent, episodes, lambda count: film_world(experiment, count))
            with closing(agent.attach(film_world(experiment, episodes)) if lent is None else lent.env) as world:
                options |= {"rows": episodes, "collector": lent}
                return film_policy(world, acting_policy(agent), path, **options).name
        except ValueError as error:
            log.warning("no film: %s", error)
            return None


class OtherRankWriter:
    """Counterpart, on every other rank, of the first rank's :class:`RunWriter`. It writes nothing, but takes part in
    the collective operations of a checkpoint: it sends this rank's worlds.
    """

    def __init__(self, learner: Learner) -> None:
        self.learner = learner
        self._saved_frames = learner.frames

    def __enter__(self) -> OtherRankWriter:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def iterating(self) -> AbstractContextManager:
        """See :meth:`RunWriter.iterating`."""
        return nullcontext()

    def write(self, iteration: Iteration) -> None:
        """Take part in the checkpoint of an iteration, if the first rank makes one."""
        if ranks.highest(0):
            self._save()

    def stop(self) -> None:
        """Take part in the last checkpoint."""
        if self._saved_frames != self.learner.frames:
            self._save()

    def finish(self) -> None:
        """Take part in the last checkpoint and in gathering the agent that is judged."""
        self.stop()
        self.learner.best_agent()

    def where_to_go_on(self) -> str:
        """See :meth:`RunWriter.where_to_go_on`."""
        return "go on from the last checkpoint, if there is one"

    def _save(self) -> None:
        if isinstance(self.learner, PopulationLearner):
            for member in range(self.learner.members):
                self.learner.member_state(member)
                self.learner.member_statistics(member)
        self.learner.state_dict()
        self.learner.statistics()
        self._saved_frames = self.learner.frames


def save_learner(
    learner: Learner,
    metrics: dict[str, float],
    folder: Path,
    measure: str = TRAINING_RETURN,
    config_hash: str | None = None,
) -> Path:
    """Write a checkpoint into the run's folder; the best is the one with the highest metric ``measure``;
    ``config_hash`` spares computing that of the configuration every time.
    """
    score = metrics.get(measure, math.nan)
    return save_checkpoint(
        folder / "checkpoints",
        learner.frames,
        learner.state_dict(),
        learner.statistics(),
        learner.experiment.hash() if config_hash is None else config_hash,
        None if math.isnan(score) else score,
        learner.experiment.run.keep_checkpoints,
        measure,
    )
