"""Metrics on disk and elsewhere: a CSV table, TensorBoard events and Weights & Biases."""

from __future__ import annotations

import csv
import importlib.util
import json
import secrets
import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from torchrl_agent.core.abilities import abilities
from torchrl_agent.core.checkpoint import write_text
from torchrl_agent.core.tables import as_csv
from torchrl_agent.core.text import to_json

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter
    from torchrl.envs import EnvBase
    from torchrl.record import WandbLogger


JUDGED = ("rollout/ep_rew_mean", "rollout/ep_len_mean", "rollout/success_rate")
"""Metrics of each run in TensorBoard's table of hyper-parameters."""


class MetricsWriter:
    """Writes one row per iteration to ``metrics.csv``, TensorBoard and Weights & Biases (a logger of
    :func:`wandb_logger`), x axis frames.

    A run that is resumed drops the rows that are newer than the checkpoint (``frames`` beyond ``resumed_at``), once it
    writes; before, nothing is touched.

    Raises:
        ValueError: ``metrics.csv`` of a run that is resumed is damaged.
    """

    def __init__(
        self,
        folder: Path,
        tensorboard: bool,
        resumed_at: int | None = None,
        wandb: WandbLogger | None = None,
        record_host: bool = False,
    ) -> None:
        self.path, self._wandb = folder / "metrics.csv", wandb
        self._tensorboard, self._resumed_at, self._record_host = tensorboard, resumed_at, record_host
        self._events: SummaryWriter | None = None
        self._kept = [] if resumed_at is None else _rows_until(self.path, resumed_at)
        self._columns: list[str] = list(self._kept[0]) if self._kept else []
        self._begun = False

    @property
    def last(self) -> dict[str, float]:
        """The metrics of the last row that a resumed run keeps."""
        kept = self._kept[-1] if self._kept else {}
        try:
            return {name: float(value) for name, value in kept.items() if name != "frames" and value}
        except (TypeError, ValueError) as error:
            raise _damaged(self.path, error) from None

    def begin(self) -> None:
        """Drop the rows that are newer than the checkpoint, and open the outputs."""
        if self._begun:
            return
        self._begun = True
        if self._columns:
            write_text(self.path, as_csv(self._kept, self._columns))
        if self._tensorboard:
            from torch.utils.tensorboard import SummaryWriter  # slow to import, and only wanted here

            newer = None if self._resumed_at is None else self._resumed_at + 1
            with nullcontext() if self._record_host else _nameless_host():
                self._events = SummaryWriter(str(self.path.with_name("tensorboard")), purge_step=newer)

    def describe(self, configuration: str, settings: dict[str, Any]) -> None:
        """Write the settings of the run to TensorBoard: its configuration as text, and its settings as
        hyper-parameters of the plugin of that name, in the run's own folder.
        """
        self.begin()
        if self._events is None:
            return
        from torch.utils.tensorboard.summary import hparams

        begins = self._resumed_at or 0
        self._events.add_text("configuration", f"```yaml\n{configuration}\n```", begins)
        experiment, session, _ = hparams(settings, dict.fromkeys(JUDGED))
        for summary in (experiment, session):  # SummaryWriter.add_hparams would begin a run of its own for them
            self._events.file_writer.add_summary(summary, begins)

    def write_film(self, frames: int, film: Path) -> None:
        """Show a GIF in TensorBoard and Weights & Biases."""
        if self._events is not None:
            from tensorboard.compat.proto.summary_pb2 import Summary

            data = film.read_bytes()
            width, height = struct.unpack("<HH", data[6:10])  # as a GIF's header has them
            image = Summary.Image(height=height, width=width, colorspace=3, encoded_image_string=data)
            summary = Summary(value=[Summary.Value(tag="film", image=image)])
            self._events.file_writer.add_summary(summary, frames)
        if self._wandb is not None:
            import wandb

            self._wandb.experiment.log({"film": wandb.Video(str(film), format="gif")}, step=frames)

    def write(self, frames: int, metrics: dict[str, float]) -> None:
        """Write one iteration."""
        self.begin()
        row = {"frames": frames, **metrics}
        new = [name for name in row if name not in self._columns]
        if new:
            earlier = read_metrics(self.path) if self._columns else []
            self._columns += new
            write_text(self.path, as_csv(earlier, self._columns))
        with self.path.open("a", newline="", encoding="utf-8") as file:
            csv.DictWriter(file, self._columns, restval="", lineterminator="\n").writerow(row)
        if self._events is not None:
            for tag, value in metrics.items():
                self._events.add_scalar(tag, value, frames)
        if self._wandb is not None:
            self._wandb.log_metrics(metrics, step=frames)

    def close(self) -> None:
        """Flush everything."""
        if self._events is not None:
            self._events.close()
        if self._wandb is not None:
            self._wandb.experiment.finish()


CHANGES = {
    "governor/returns": "governor rollback",
    "curriculum/stage": "curriculum stage",
    "population/evolution_steps": "evolution step",
}
"""Kinds of events by the metric that changes at one."""


class EventsWriter:
    """Writes what happened to ``events.jsonl``, one line of JSON each with ``frames`` and ``kind``: changes of the
    metrics in ``CHANGES``, and the events of an episode, if worlds have any.

    Args:
        resumed_at: number of frames of the checkpoint that a run goes on from; newer lines are dropped.

    Raises:
        ValueError: the file of a run that is resumed is damaged.
    """

    def __init__(self, folder: Path, resumed_at: int | None = None) -> None:
        self.path, last = folder / "events.jsonl", resumed_at or 0
        lines = self.path.read_text(encoding="utf-8").splitlines() if self.path.is_file() else []
        kept = [line for line in lines if _frames_of(line, self.path) <= last]
        self._kept = None if kept == lines else kept

    def write(self, frames: int, before: dict[str, float], after: dict[str, float], env: EnvBase) -> None:
        """Write the events of an iteration, whose metrics follow those ``before``."""
        if self._kept is not None:
            write_text(self.path, "".join(f"{line}\n" for line in self._kept))
            self._kept = None
        events: list[Mapping[str, Any]] = [
            {"kind": kind, "before": before[name], "after": after[name]}
            for name, kind in CHANGES.items()
            if name in before and name in after and before[name] != after[name]
        ]
        events += abilities(env).episode_events()
        if not events:
            return
        with self.path.open("a", encoding="utf-8") as file:
            file.writelines(f"{to_json({'frames': frames, **event})}\n" for event in events)


def _frames_of(line: str, path: Path) -> int:
    try:
        return int(json.loads(line)["frames"])
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(path, error) from None


def _rows_until(path: Path, frames: int) -> list[dict[str, str]]:
    """The rows of a ``metrics.csv``, if there is one, up to ``frames``."""
    try:
        rows = read_metrics(path) if path.is_file() else []
        return [row for row in rows if float(row["frames"]) <= frames]
    except (KeyError, TypeError, ValueError, csv.Error) as error:
        raise _damaged(path, error) from None


@contextmanager
def _nameless_host() -> Iterator[None]:
    """A context in which TensorBoard does not put this machine's name into those of its files."""
    before = socket.gethostname
    socket.gethostname = lambda: "localhost"
    try:
        yield
    finally:
        socket.gethostname = before


def _damaged(path: Path, error: Exception) -> ValueError:
    return ValueError(f"{path} is damaged ({error}): move it away, and the run begins a new one.")


def check_wandb(project: str | None) -> None:
    """Raise ValueError if a run is to report to Weights & Biases without the package for it."""
    if project is not None and importlib.util.find_spec("wandb") is None:
        raise ValueError(
            f"run.wandb is {project} but wandb is not installed: pip install 'torchrl-agent[wandb]', or leave run.wandb"
            " out."
        )


def wandb_logger(folder: Path, project: str | None, configuration: str) -> WandbLogger | None:
    """TorchRL's logger to a project of Weights & Biases, with the run's configuration; None for no project.
    The run's number there is kept in ``wandb_id.txt``, so that a resumed run goes on where it was.
    """
    if project is None:
        return None
    from torchrl.record import WandbLogger  # brings an optional package

    path = folder / "wandb_id.txt"
    if not path.is_file():
        path.write_text(secrets.token_hex(4), encoding="utf-8")
    logger = WandbLogger(
        folder.name, project=project, id=path.read_text(encoding="utf-8"), save_dir=folder, log_env_packages=False
    )
    logger.log_hparams(yaml.safe_load(configuration))
    return logger


def read_metrics(path: Path) -> list[dict[str, str]]:
    """The rows of a ``metrics.csv``, or of another table with a header."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))
