"""Full disks, folders that are gone or cannot be written, closed streams: a sentence, and nothing is lost."""

import errno
import os
import shutil
import signal
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from torchrl_agent import Experiment, cli, train
from torchrl_agent.core.checkpoint import checkpoints
from torchrl_agent.optimization.updater import NonFiniteError
from torchrl_agent.runs import run as runs
from torchrl_agent.runs.metrics import MetricsWriter, read_metrics

SMALL = ("world.num_envs=8", "algorithm.rollout_steps=4", "algorithm.minibatch_size=16", "device=cpu")
QUIET = ("run.film=false", "run.final_evaluation=false", "run.tensorboard=false", "run.checkpoint_every=32")


def smoke(folder, *overrides):
    return Experiment.load("smoke", f"run.folder={folder}", "run.name=run", *SMALL, *QUIET, *overrides)


def full(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("members", [1, 2])
def test_a_full_disk_is_a_sentence_that_names_the_last_checkpoint(tmp_path, monkeypatch, members):
    """As the table of metrics tells it, or the thread that writes TensorBoard's events."""
    run = train(smoke(tmp_path, "total_frames=96", f"population.members={members}"))
    next(run)
    monkeypatch.setattr(MetricsWriter, "write", full)
    with pytest.raises(
        ValueError, match=r"cannot be written to \(No space left on device\); the last checkpoint, "
    ) as e:
        next(run)
    assert "checkpoint_32.pt, is good" in str(e.value)
    assert "\n" not in str(e.value)
    monkeypatch.undo()
    assert len(list(train(Experiment.load(tmp_path / "run" / "config.yaml"), resume=tmp_path / "run"))) == 2


def test_divergence_that_shows_when_a_signal_stops_the_run_names_the_last_checkpoint():
    def diverged():
        raise NonFiniteError("the updates diverged.")

    writer = SimpleNamespace(iterating=nullcontext, stop=diverged, where_to_go_on=lambda: "the last checkpoint is good")
    writer.write = lambda _: signal.raise_signal(signal.SIGTERM)
    with pytest.raises(NonFiniteError, match="diverged; the last checkpoint is good"):
        runs._next(iter([object()]), writer)


@pytest.mark.parametrize("place", ["run", "run/members/01"])
def test_a_folder_that_is_deleted_while_it_trains_is_a_sentence(tmp_path, place):
    run = train(smoke(tmp_path, "total_frames=96", "population.members=2"))
    next(run)
    shutil.rmtree(tmp_path / place)
    with pytest.raises(ValueError, match="cannot be written") as caught:
        next(run)
    assert "\n" not in str(caught.value)


def test_a_working_directory_that_changes_takes_no_run_along(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    for resume, frames in ((None, 64), (Path("runs/run"), 128)):
        run = train(smoke("runs", f"total_frames={frames}"), resume=resume)
        next(run)
        monkeypatch.chdir(tmp_path / "elsewhere")
        list(run)
        monkeypatch.chdir(tmp_path)
    assert [row["frames"] for row in read_metrics(tmp_path / "runs/run/metrics.csv")] == ["32", "64", "96", "128"]
    assert checkpoints(tmp_path / "runs/run/checkpoints")
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_run_that_cannot_be_written_cannot_go_on(tmp_path):
    list(train(smoke(tmp_path, "total_frames=32")))
    folder = tmp_path / "run"
    (folder / ".lock").unlink()
    (folder / ".lock").mkdir()  # whoever runs the tests may write everywhere
    with pytest.raises(ValueError, match=r"run .*run cannot be written to \(.*\): make its folder writable") as caught:
        next(train(Experiment.load(folder / "config.yaml", "total_frames=64"), resume=folder))
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
def test_output_that_cannot_be_written_is_a_sentence(monkeypatch, capsys):
    with Path("/dev/full").open("w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        assert cli.main(["configs", "smoke"]) == 2
    assert capsys.readouterr().err == (
        "torchrl-agent: output cannot be written (No space left on device): give it a place that can be written to.\n"
    )


@pytest.mark.skipif(sys.platform == "win32", reason="pipes break otherwise there")
def test_output_that_is_not_read_ends_the_command_without_an_error(monkeypatch, capsys):
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        assert cli.main(["configs", "smoke"]) == 141
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("stream", ["stdin", "stdout", "stderr"])
def test_a_command_works_without_a_stream(monkeypatch, stream):
    monkeypatch.setattr(sys, stream, None)
    assert cli.main(["configs", "smoke"]) == 0
    getattr(sys, stream).close()


def test_a_file_that_cannot_be_written_is_named(tmp_path, monkeypatch, capsys):
    def refuse(parsed):
        (tmp_path / "missing" / "film.gif").write_bytes(b"")

    monkeypatch.setattr("torchrl_agent.cli.configs.run_configs", refuse)
    assert cli.main(["configs", "smoke"]) == 2
    assert f"{tmp_path / 'missing' / 'film.gif'} cannot be read or written (No such file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("seed=5", "seed has no effect on a run that goes on, whose random numbers go on"),
        ("run.name=other", "run.name has no effect on a run that goes on, which stays in its folder"),
        ("run.folder=other", "run.folder has no effect on a run that goes on, which stays in its folder"),
        ("pretrained.policy=x", "pretrained has no effect on a run that goes on, whose modules have learned since"),
        ("tuned.ppo.gamma=0.5", "tuned has no effect"),
        ("run.resume=auto", "run.resume has no effect"),
    ],
)
def test_a_change_without_effect_is_refused_as_a_run_goes_on(tmp_path, capsys, change, reason):
    (tmp_path / "config.yaml").write_text(smoke(tmp_path).to_yaml(), encoding="utf-8")
    assert cli.main(["resume", str(tmp_path), change]) == 2
    printed = capsys.readouterr().err
    assert reason in printed
    assert printed.endswith(": leave it out, or begin another run with it.\n")
    assert printed.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["config.yaml"]
