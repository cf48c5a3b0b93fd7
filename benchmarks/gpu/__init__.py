"""Training speed on one CUDA device, beside that of JAX and rsl_rl in the same call.

Each row is a process of its own. Rows compile side by side and are measured one after another, under a lock. Figures
are appended to a file as soon as they are known; what is known when the time is up is printed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.results_page.hardware import card
from torchrl_agent.core.devices import resolve_device
from torchrl_agent.core.tables import aligned
from torchrl_agent.profiling.speed import device_name

ROOT = Path(__file__).parents[2]
LONGEST = 3000
"""Characters of an error that are shown."""
SMALL = ("world.num_envs=16", "algorithm.rollout_steps=2", "algorithm.minibatch_size=16")
"""Overrides of a smoke test."""


class Row(NamedTuple):
    """A configuration of ours."""

    config: str
    overrides: tuple[str, ...] = ()
    goal: int | None = None
    """Goal for the real loop on an H200, frames per second."""
    until: float | None = None
    """Mean return to reach."""
    peer: str | None = None
    """Peer with the same task and sizes."""
    again: bool = False
    """True to start it once more, with the code compiled before."""
    small: tuple[str, ...] = SMALL
    """Overrides of a smoke test."""


class Peer(NamedTuple):
    """CartPole in another library."""

    command: tuple[str, ...]
    """Arguments of Python: a script or a module, and sizes."""
    packages: tuple[str, ...]
    """Modules that it imports."""
    small: tuple[str, ...]
    """Sizes of a smoke test."""


def sizes(num_envs: int, steps: int, minibatch: int) -> tuple[str, ...]:
    """Return overrides of PPO's sizes."""
    return (f"world.num_envs={num_envs}", f"algorithm.rollout_steps={steps}", f"algorithm.minibatch_size={minibatch}")


CARTPOLE = str(Path(__file__).with_name("cartpole.yaml"))
ROWS = {
    "town_agent": Row("town_agent", goal=1_000_000, again=True),
    "arena": Row("arena", goal=20_000_000, again=True),
    "cartpole": Row(CARTPOLE, goal=90_000_000, until=475, peer="jax", again=True),
    "town": Row("town", goal=25_000_000),
    "arena_wide": Row("arena", sizes(65536, 32, 65536)),
    "eight_members": Row("arena_pbt", goal=25_000_000),
    "cartpole_wide": Row(CARTPOLE, sizes(65536, 16, 65536), 110_000_000, peer="jax_wide"),
    "duel": Row("duel", goal=40_000_000),
    "sac": Row(
        "arena", ("algorithm=sac",), small=(*SMALL[:2], "algorithm.batch_size=16", "algorithm.learning_starts=64")
    ),
}
"""Rows of ours; those that compile longest begin, after the peers."""
JAX, RSL, OF_JAX = "benchmarks/gpu/jax_ppo.py", ("-m", "benchmarks.gpu.rsl_ppo"), ("jax", "optax")


def peer_sizes(num_envs: int, steps: int, minibatches: int) -> tuple[str, ...]:
    """Return the arguments of a peer's script."""
    return ("--num-envs", str(num_envs), "--steps", str(steps), "--minibatches", str(minibatches))


TINY = peer_sizes(64, 16, 4)
PEERS = {
    "jax": Peer((JAX, *peer_sizes(16384, 64, 64)), OF_JAX, TINY),
    "jax_wide": Peer((JAX, *peer_sizes(65536, 16, 16)), OF_JAX, TINY),
    "rsl_rl": Peer((*RSL, *peer_sizes(16384, 64, 64)), ("rsl_rl",), (*TINY, "--eager")),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add rows, the time limit and the file of figures."""
    parser.add_argument("rows", nargs="*", help=f"of {', '.join((*ROWS, *PEERS))}; by default all")
    parser.add_argument("--limit", type=float, default=540, help="seconds after which the call ends (540)")
    parser.add_argument("--seconds", type=float, default=3, help="least seconds of a measurement (3)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="rows at a time (one for each core)")
    parser.add_argument("--output", default="gpu.jsonl", help="file to which figures are appended (gpu.jsonl)")
    parser.add_argument("--smoke", action="store_true", help="try every row, tiny and uncompiled, without a GPU too")


def run(parsed: argparse.Namespace) -> dict[str, Any]:
    """Measure the rows and print their table."""
    names = parsed.rows or [*ROWS, *PEERS]
    if unknown := [name for name in names if name not in (*ROWS, *PEERS)]:
        raise ValueError(f"there is no row {unknown[0]!r}: use some of {', '.join((*ROWS, *PEERS))}.")
    if parsed.smoke and parsed.record:
        raise ValueError("a smoke test finds no speeds to record: leave out --smoke or --record.")
    device = resolve_device("auto")
    if device.type != "cuda" and not parsed.smoke:
        raise ValueError("this machine has no CUDA device: --smoke tries the rows without one.")
    with tempfile.TemporaryDirectory() as folder:
        call = Call(parsed, Path(folder))
        call.measure(names)
    rows = [{"name": name, **each, **ratios(name, call.found)} for name, each in call.found.items()]
    result = {"config": "gpu", "overrides": parsed.rows, "device": device_name(device), "rows": rows}
    header, cells = card([result])
    print("\n".join(aligned([header, *cells])))
    return result


def ratios(name: str, found: dict[str, dict[str, Any]]) -> dict[str, float]:
    """Return the real loop's speed as a fraction of collecting and improving alone, of its goal and of its peer."""
    row, loop = ROWS.get(name, Row("")), found[name].get("loop_fps")
    others = {
        "of_training": found[name].get("training_fps"),
        "of_goal": row.goal,
        "of_peer": found.get(row.peer or "", {}).get("loop_fps"),
    }
    return {key: loop / other for key, other in others.items() if loop and other}


class Call:
    """The processes of a call.

    Args:
        parsed: arguments of the study.
        folder: folder of the lock, and of what the processes say to people.

    Attributes:
        found: figures of each row so far.
    """

    def __init__(self, parsed: argparse.Namespace, folder: Path) -> None:
        self.parsed, self.folder = parsed, folder
        self.found: dict[str, dict[str, Any]] = {}
        self._begun, self._over = time.time(), False
        self._running: dict[str, subprocess.Popen[str]] = {}

    def measure(self, names: list[str]) -> None:
        """Measure rows until all are done or the time is up."""
        with ThreadPoolExecutor(self.parsed.jobs) as pool:
            self.found = {name: {} for name in names if self._has_packages(name)}
            waiting = [pool.submit(self._measure, name) for name in sorted(self.found, key=ROWS.__contains__)]
            try:
                wait(waiting, self.parsed.limit)
            finally:
                self._over = True
                for process in list(self._running.values()):
                    _end(process)
        for each in waiting:
            each.result()

    def _has_packages(self, name: str) -> bool:
        """True if a row's packages are there; else a line names the first that is not."""
        packages = PEERS[name].packages if name in PEERS else ()
        missing = [package for package in packages if importlib.util.find_spec(package) is None]
        if missing:
            print(f"{name} is left out: the package {missing[0]} is not installed.", flush=True)
        return not missing

    def _measure(self, name: str) -> None:
        """Measure one row."""
        smoke = self.parsed.smoke
        if name in PEERS:
            self._run(name, *PEERS[name].command, *(PEERS[name].small if smoke else ()))
            return
        words = ("-m", "benchmarks.gpu.measure", name, *["--smoke"] * smoke)
        self._run(name, *words)
        if ROWS[name].again and not smoke and not self._over and "error" not in self.found[name]:
            self._run(name, *words, "--again")

    def _run(self, name: str, *words: str) -> None:
        """Run a process of Python to its end; each object that it prints holds all its figures so far."""
        if self._over:
            return
        seconds = 0.1 if self.parsed.smoke else self.parsed.seconds
        common = ["--begun", str(time.time()), "--lock", str(self.folder / "lock"), "--seconds", str(seconds)]
        said = self.folder / f"{name}.txt"
        with said.open("w", encoding="utf-8") as errors:
            process = subprocess.Popen(
                [sys.executable, *words, *common],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=ROOT,
                env=self._environment(),
                start_new_session=True,
            )
        self._running[name] = process
        if self._over:
            _end(process)
        assert process.stdout is not None
        for line in process.stdout:
            with suppress(json.JSONDecodeError):  # libraries print lines of their own
                if line.startswith("{"):
                    self._note(name, json.loads(line))
        del self._running[name]
        if process.wait() and not self._over:
            reason = said.read_text(encoding="utf-8").strip()
            print(f"{name} failed: {reason[-LONGEST:]}", file=sys.stderr, flush=True)
            self._note(name, {"error": reason.rpartition("\n")[2]})

    def _environment(self) -> dict[str, str]:
        """Return the environment of a process: those that run at a time share cores and the card's memory."""
        threads = max(1, 2 * (os.cpu_count() or 1) // self.parsed.jobs)
        shared = {"TORCHINDUCTOR_COMPILE_THREADS": str(threads), "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        platform = {} if self.parsed.smoke else {"JAX_PLATFORMS": "cuda"}  # JAX would fall back to the CPU
        return {**shared, **platform, **os.environ}

    def _note(self, name: str, figures: dict[str, Any]) -> None:
        self.found[name] |= figures
        at, beside = round(time.time() - self._begun, 1), sorted(self._running.keys() - {name})
        with Path(self.parsed.output).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"name": name, "at": at, "beside": beside, **self.found[name]}) + "\n")


def _end(process: subprocess.Popen[str]) -> None:
    """End a process and those that compile for it."""
    with suppress(ProcessLookupError):  # it has ended meanwhile
        os.killpg(process.pid, signal.SIGKILL)
