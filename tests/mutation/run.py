"""Deliberate bugs, one at a time: which do the tests find? ``make mutants ARGS="ppo gae --jobs 2"``.

A mutant is a text replaced once in one file, together with the tests that should notice; the YAML files beside this one
hold them by the file they change. Each is tried in a copy of the checkout, which itself is never touched, and is then

- ``killed``: a test failed, as it should (or hung, and was ended);
- ``survived``: every test passed. A mutant that may survive says why (``survives``); any other fails the run;
- ``stale``: the text is gone from its file, or the tests cannot be collected. Whoever moves code moves its mutants
  along.

Torch takes seconds to import, so the processes are forked from one that has imported it: Linux and macOS only.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import os
import re
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import yaml

CHECKOUT = Path(__file__).resolve().parents[2]
LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info")
WRITTEN = {"runs", "build", "dist"}
"""Folders at the top that training and packaging write."""
PRELOADED = (
    "torch",
    "torchrl.envs",
    "torchrl.objectives",
    "torchrl.modules",
    "tensordict.nn",
    "gymnasium",
    "omegaconf",
)
KILLED, SURVIVED, STALE = "killed", "survived", "stale"


@dataclass(frozen=True)
class Mutant:
    """One deliberate bug."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    survives: str | None = None
    """Why no test can be expected to find it."""

    def stale(self, root: Path) -> str | None:
        """Why it can no longer be tried on the code below ``root``, in a sentence; None where it can."""
        path = root / self.file
        count = path.read_text(encoding="utf-8").count(self.old) if path.is_file() else 0
        if count != 1:
            return f"{self.name}: {self.file} holds its old text {count} times, not once: adapt the mutant."
        for test in self.tests:
            file, *inside = test.split("::")
            text = (root / file).read_text(encoding="utf-8") if (root / file).is_file() else ""
            if not text or any(not re.search(rf"(def|class) {name}\b", text) for name in inside):
                return f"{self.name}: there is no test {test}: name the one that should notice."
        return None


class UniqueKeys(yaml.SafeLoader):
    """Refuses a key that stands twice: of the first one, with all its mutants, nothing would be left."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        """A mapping, as usual."""
        keys = Counter(key.value for key, _ in node.value)
        for key in (key for key, count in keys.items() if count > 1):
            raise ValueError(f"{key} stands twice in {node.start_mark.name}: put its mutants together.")
        return super().construct_mapping(node, deep)


def read_mutants(folder: Path = Path(__file__).parent) -> list[Mutant]:
    """All of them; a mutant without ``tests`` of its own has those of its file."""
    found = []
    for path in sorted(folder.glob("*.yaml")):
        with path.open(encoding="utf-8") as stream:
            groups = yaml.load(stream, UniqueKeys)
        for file, group in groups.items():
            for name, mutant in group["mutants"].items():
                tests = tuple(mutant.pop("tests", group.get("tests")))
                found.append(Mutant(name, file, tests=tests, **mutant))
    return found


def chosen(mutants: Iterable[Mutant], words: Sequence[str]) -> list[Mutant]:
    """Those whose name or file contains one of ``words``; all of them without words."""
    return [m for m in mutants if not words or any(word in m.name or word in m.file for word in words)]


class Failures:
    """A plugin of pytest: the first test that failed."""

    first = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.first:
            self.first = report.nodeid


def _left_out(folder: str, names: list[str]) -> set[str]:
    return LEFT_OUT(folder, names) | (WRITTEN & set(names) if Path(folder) == CHECKOUT else set())


def _out_of_time(*_: object) -> None:
    raise TimeoutError("The mutant hangs.")


def attempt(mutant: Mutant, seconds: int) -> tuple[Mutant, str, str]:
    """The mutant, its fate, and the test that found it or why it is stale. Runs in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        shutil.copytree(CHECKOUT, copy, ignore=_left_out)
        if reason := mutant.stale(copy):
            return mutant, STALE, reason
        path = copy / mutant.file
        path.write_text(path.read_text(encoding="utf-8").replace(mutant.old, mutant.new), encoding="utf-8")
        os.chdir(copy)
        os.environ["PYTHONPATH"] = str(copy)  # for what the tests start
        os.environ["HOME"] = folder
        sys.path.insert(0, str(copy))
        silence = os.open(Path(folder) / "output.txt", os.O_WRONLY | os.O_CREAT)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        signal.signal(signal.SIGALRM, _out_of_time)
        signal.alarm(seconds)
        failures = Failures()
        options = ["-x", "-p", "no:cacheprovider", "--basetemp", f"{folder}/tests"]
        if all("::" in test for test in mutant.tests):  # named one by one, they may also be slow
            options += ["-m", "not gpu"]
        try:
            code: int | None = pytest.main([*options, *dict.fromkeys(mutant.tests)], plugins=[failures])
        except TimeoutError:  # outside any test
            code = None
        signal.alarm(0)
    if code == pytest.ExitCode.OK:
        return mutant, SURVIVED, mutant.survives or ""
    if code is None:
        return mutant, KILLED, f"nothing came of it within {seconds} s"
    if code == pytest.ExitCode.TESTS_FAILED or failures.first:
        return mutant, KILLED, failures.first
    return mutant, STALE, f"{mutant.name}: pytest ended with {code!r}: see what {' '.join(mutant.tests)} prints."


def main(arguments: Sequence[str] | None = None) -> int:
    """Try the chosen mutants; 1 where one survived without a reason or is stale."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("words", nargs="*", help="only mutants whose name or file contains one of these words")
    parser.add_argument("--jobs", type=int, default=1, help="mutants tried at the same time (default 1)")
    parser.add_argument(
        "--seconds", type=int, default=600, help="after which the tests of a mutant are ended (default 600)"
    )
    options = parser.parse_args(arguments)
    mutants = chosen(read_mutants(), options.words)
    if not mutants:
        parser.error(f"No mutant's name or file contains {' or '.join(options.words)}.")
    for name in PRELOADED:
        importlib.import_module(name)
    fates: Counter[str] = Counter()
    unexplained = 0
    with multiprocessing.get_context("fork").Pool(options.jobs, maxtasksperchild=1) as pool:
        for mutant, fate, remark in pool.imap(partial(attempt, seconds=options.seconds), mutants):
            fates[fate] += 1
            unexplained += fate == STALE or (fate == SURVIVED and not remark)
            print(f"{fate:<8}  {mutant.name:<40}  {remark}", flush=True)
    print(", ".join(f"{fates[fate]} {fate}" for fate in (KILLED, SURVIVED, STALE)))
    return int(unexplained > 0)


if __name__ == "__main__":
    sys.exit(main())
