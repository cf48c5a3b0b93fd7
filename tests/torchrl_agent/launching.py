"""Short runs, in this process and in several, and comparing what they leave."""

import csv
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import torch

from torchrl_agent import Experiment, train

ROOT = Path(__file__).parents[2]
QUICK = ("device=cpu", "threads=1", "run.film=false", "run.final_evaluation=false", "run.tensorboard=false")
SENTENCE = re.compile(r"^torchrl-agent: (.*)$", re.MULTILINE)


class Bomb:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder):
        self.folder = str(folder)

    def __reduce__(self):
        return os.mkdir, (self.folder,)


def smoke(folder, *overrides, name="run"):
    """The smoke test's configuration, of a run that leaves little."""
    files = [f"run.folder={folder}", f"run.name={name}", "run.tensorboard=false"]
    quick = ["run.film=false", "run.final_evaluation=false", "device=cpu"]
    return Experiment.load("smoke", *files, *quick, *overrides)


def numbers(metrics):
    """Metrics without the clock, comparable although they may hold NaN."""
    return {tag: repr(value) for tag, value in metrics.items() if not tag.startswith("time/") or "timesteps" in tag}


def flat(state):
    return torch.cat([value.detach().flatten().double() for value in state.values()])


def weights(module):
    return flat(module.state_dict())


def checkpoint(run, frames):
    return torch.load(run / "checkpoints" / f"checkpoint_{frames}.pt", weights_only=True)


def rows(run):
    """Of a run's metrics, without the clock."""
    table = list(csv.DictReader((run / "metrics.csv").open()))
    return [
        {name: float(value or "nan") for name, value in row.items() if not name.startswith("time/")} for row in table
    ]


def play(experiment, iterations=None, resume=None):
    """Metrics and last weights of a run; closed early after so many ``iterations``."""
    history, last = [], None
    run = train(experiment, resume=resume)
    for iteration in run:
        history.append(numbers(iteration.metrics))
        last = weights(iteration.agent)
        if iteration.number == iterations:
            run.close()
    return history, last


def environment():
    """Of a process that finds the packages and the tests' worlds."""
    clean = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    paths = os.pathsep.join((str(ROOT), str(Path(__file__).parent)))
    return {**clean, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "RL_WARNINGS": "False"}


def torchrun(folder, *words, processes=2, restarts=0, module="torchrl_agent"):
    """Run the command, or another module, in several processes, which must end well; what they said."""
    launcher = (sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}")
    line = (*launcher, f"--max-restarts={restarts}", "-m", module, *words)
    done = subprocess.run(line, cwd=folder, env=environment(), capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


def free_port():
    """A port that nobody listens to."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def two_ranks(folder, *lines, port=None, packages=ROOT):
    """Exit code and last sentence of two ranks started by hand, each with a command line of its own, or of the first
    alone; ``packages``: where rank 1 finds the code.
    """
    place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port or free_port())}
    started = []
    for rank, words in enumerate(lines):
        own = {**environment(), **place, "RANK": str(rank)}
        if rank == 1:
            own["PYTHONPATH"] = own["PYTHONPATH"].replace(str(ROOT) + os.pathsep, str(packages) + os.pathsep)
        line = (sys.executable, "-m", "torchrl_agent", *words)
        started.append(subprocess.Popen(line, cwd=folder, env=own, stderr=subprocess.PIPE, text=True))
    ended = []
    for process in started:
        try:
            _, errors = process.communicate(timeout=120)
        finally:
            process.kill()
        found = SENTENCE.findall(errors)
        ended.append((process.returncode, found[-1] if found else ""))
    return ended


def assert_same(one, other, where=""):
    """Nested values that are equal bit for bit, or both NaN."""
    if isinstance(one, dict):
        assert one.keys() == other.keys(), where
        for name in one:
            assert_same(one[name], other[name], f"{where}.{name}")
    elif isinstance(one, list | tuple):
        assert len(one) == len(other), where
        for number, pair in enumerate(zip(one, other, strict=True)):
            assert_same(*pair, f"{where}.{number}")
    elif isinstance(one, torch.Tensor):
        torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True, msg=where or None)
    else:
        assert one == other or (one != one and other != other), where


def learned_by_hand(experiment, iterations):
    """Weights where one process plays and learns in turn, each with random numbers of its own."""
    learner = experiment.make_learner()
    playing = learning = torch.get_rng_state()
    for _ in range(iterations):
        torch.set_rng_state(playing)
        rollout = learner.collector.collect()
        playing = torch.get_rng_state()
        torch.set_rng_state(learning)
        finished = learner.collector.finished(rollout, int(rollout["next", "done"].sum()))
        learner.improve(rollout, experiment.algorithm.learning_rate.initial)
        learner.log_episodes(rollout, finished)
        learner.frames += rollout.numel()
        learning = torch.get_rng_state()
    return learner.agent.state_dict()
