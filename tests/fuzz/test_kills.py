"""Processes killed at any moment, also while they write: what they leave goes on to the end of an undisturbed run."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import sys
from pathlib import Path

import pytest
import torch
from launching import assert_same

from torchrl_agent import Experiment, train
from torchrl_agent.core.checkpoint import checkpoints, find_checkpoint, load_checkpoint
from torchrl_agent.runs.metrics import read_metrics

WRITES = ("open", "os.rename", "os.remove", "os.mkdir")
"""Audit events after which a run's folder may have changed."""
SMALL = [
    "world.num_envs=4",
    "tuned.ppo={rollout_steps: 8, minibatch_size: 16}",
    "total_frames=256",
    "run.checkpoint_every=64",
]
SMALL += ["tuned.dqn={rollout_steps: 8, batch_size: 16, learning_starts: 16, replay_size: 64}"]
QUIET = ["device=cpu", "threads=1", "run.film=false", "run.final_evaluation=false", "run.tensorboard=false"]


def play(folder: Path, algorithm: str, fatal: int | None) -> None:
    """Begin the run, or go on with it if it has a checkpoint; killed at the event of this number in its folder."""
    seen = 0

    def watch(event: str, arguments: tuple) -> None:
        nonlocal seen
        if event in WRITES and str(folder) in str(arguments[0]):
            seen += 1
            if seen == fatal:
                os.kill(os.getpid(), signal.SIGKILL)

    if fatal is not None:
        sys.addaudithook(watch)
    begun = checkpoints(folder / "checkpoints")
    if begun:
        experiment = Experiment.load(folder / "config.yaml")
    else:
        named = [f"run.folder={folder.parent}", f"run.name={folder.name}", f"algorithm={algorithm}"]
        experiment = Experiment.load("smoke", *QUIET, *SMALL, *named)
    for _ in train(experiment, resume=folder if begun else None):
        pass


def in_a_process(*arguments) -> int | None:
    """How a process that plays ended."""
    process = multiprocessing.get_context("fork").Process(target=play, args=arguments)
    process.start()
    process.join()
    return process.exitcode


def end(folder: Path) -> tuple[list, dict]:
    """All rows without the clock, and the last checkpoint."""
    rows = [
        {name: value for name, value in row.items() if not name.startswith("time/")}
        for row in read_metrics(folder / "metrics.csv")
    ]
    return rows, load_checkpoint(find_checkpoint(folder), replay=True)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The folder of a run of each algorithm that nobody killed."""
    torch.set_num_threads(1)
    base = tmp_path_factory.mktemp("whole")
    for algorithm in ("ppo", "dqn"):
        play(base / algorithm, algorithm, None)
    return base


MANY = pytest.param(60, marks=pytest.mark.fuzz)


@pytest.mark.parametrize("algorithm", ["ppo", pytest.param("dqn", marks=pytest.mark.slow)])
@pytest.mark.parametrize("times", [1, MANY])
def test_a_killed_run_goes_on_to_the_same_end(tmp_path, undisturbed, algorithm, times):
    rows, state = end(undisturbed / algorithm)
    chance = random.Random(times)
    for number in range(times):
        folder = tmp_path / f"run{number}"
        for attempt in range(4):
            code = in_a_process(folder, algorithm, chance.randrange(1, 80) if attempt < 3 else None)
            assert code in (0, -signal.SIGKILL), f"process {attempt + 1} of run {number} failed"
            if checkpoints(folder / "checkpoints")[-1:] == [folder / "checkpoints" / "checkpoint_256.pt"]:
                break  # all is learned, even where the kill came before the summary
        found, last = end(folder)
        assert found == rows
        for part in ("agent", "algorithm", "world", "frames"):
            assert_same(last[part], state[part])


@pytest.mark.parametrize("fatal", [3, 4])
def test_a_run_killed_while_its_forerunner_is_taken_away_is_begun_again(tmp_path, fatal):
    folder = tmp_path / "run"
    assert in_a_process(folder, "ppo", 12) == -signal.SIGKILL
    assert (folder / "config.yaml").is_file() and not checkpoints(folder / "checkpoints")
    assert in_a_process(folder, "ppo", fatal) == -signal.SIGKILL
    play(folder, "ppo", None)
    assert checkpoints(folder / "checkpoints")


@pytest.mark.parametrize(("fatal", "exists"), [(2, False), (3, False), (4, False), (4, True)])
def test_a_run_killed_while_its_folder_is_made_is_begun_again(tmp_path, fatal, exists):
    if exists:
        (tmp_path / "run").mkdir()
    assert in_a_process(tmp_path / "run", "ppo", fatal) == -signal.SIGKILL
    play(tmp_path / "run", "ppo", None)
    assert checkpoints(tmp_path / "run" / "checkpoints")
