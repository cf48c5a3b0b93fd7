"""Counts of the house: files, lines, rooms, the arrows between them, circles, and the functions that a reward enters.

A room is a folder of modules, or one file at a package's root. An arrow is an import from one room into another, each
pair counted once; a circle is a set of rooms that import each other, directly or not.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from types import FrameType
from typing import Any

ROOT = Path(__file__).parents[1]
PACKAGES = ("torchrl_agent", "envs")
QUESTION = re.compile(r'^\s*r?"""(?:What|Whether|How|Where|Who) ', re.MULTILINE)
COMMENT = re.compile(r"^\s*#|  # ", re.MULTILINE)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the option to trace."""
    parser.add_argument("--trace", action="store_true", help="also follow a reward from a rollout into the update")


def run(parsed: argparse.Namespace) -> dict[str, Any]:
    """Count, and print the counts."""
    found = count()
    for name, value in found.items():
        print(f"{name}: {value}")
    if parsed.trace:
        entered = trace()
        print(f"a reward enters {len(entered)} functions in {len({file for file, _ in entered})} files:")
        print("\n".join(f"    {file} {name}" for file, name in entered))
        found["functions that a reward enters"] = len(entered)
    return {"config": "structure", "overrides": [], **found}


def count() -> dict[str, Any]:
    """Counts by name."""
    files = tracked(*(f"{package}/*.py" for package in PACKAGES))
    texts = {path: read(path) for path in files}
    text = "\n".join(texts.values())
    graph = arrows(texts)
    folders = Counter(str(path.parent) for path in files)
    return {
        "files": len(files),
        "lines": {package: _lines(path for path in files if path.parts[0] == package) for package in PACKAGES},
        "lines of tests": _lines(tracked("tests/*.py")),
        "lines of benchmarks": _lines(tracked("benchmarks/*.py")),
        "words of docs": sum(len(read(path).split()) for path in tracked("docs/*.md", "README.md")),
        "files at the roots": {package: folders[package] for package in PACKAGES},
        "largest folders": dict(folders.most_common(3)),
        "rooms": len({room(path) for path in files}),
        "arrows": sum(map(len, graph.values())),
        "circles": circles(graph),
        "docstrings that begin with a question word": len(QUESTION.findall(text)),
        "comments per 100 lines": round(100 * len(COMMENT.findall(text)) / text.count("\n"), 1),
    }


def tracked(*patterns: str) -> list[PurePosixPath]:
    """Files of the repository that match."""
    listed = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True)
    return [PurePosixPath(line) for line in listed.stdout.splitlines() if (ROOT / line).is_file()]


def read(path: PurePosixPath) -> str:
    """Content of a file of the repository."""
    return (ROOT / path).read_text(encoding="utf-8")


def room(path: PurePosixPath) -> str:
    """Room of a module."""
    return str(path.parent) if len(path.parts) > 2 else str(path.with_suffix(""))


def arrows(texts: Mapping[PurePosixPath, str]) -> dict[str, set[str]]:
    """Rooms that each room imports, imports for types alone included."""
    modules = {".".join(path.with_suffix("").parts).removesuffix(".__init__"): path for path in texts}
    graph: dict[str, set[str]] = {room(path): set() for path in texts}
    for path, text in texts.items():
        for name in _imported(text):
            while name and name not in modules:
                name = name.rpartition(".")[0]
            if name and room(modules[name]) != room(path):
                graph[room(path)].add(room(modules[name]))
    return graph


def _imported(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Sets of rooms of which each is reached from each."""
    reached = {one: _reach(graph, one) for one in graph}
    found = {tuple(sorted(two for two in reached[one] if one in reached[two])) for one in graph}
    return [list(each) for each in sorted(found) if len(each) > 1]


def _reach(graph: Mapping[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    waiting = [start]
    while waiting:
        for following in graph[waiting.pop()] - found:
            found.add(following)
            waiting.append(following)
    return found


def trace() -> list[tuple[str, str]]:
    """Functions of the project that are entered from ``Learner.improve`` to the end of the updates, by file."""
    from torchrl_agent import Experiment, learn

    learner = next(learn(Experiment.load("smoke", "device=cpu", "threads=1"))).learner
    rollout = learner.collector.collect()
    entered: dict[tuple[str, str], None] = {}

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        path = Path(code.co_filename)
        if event == "call" and path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in PACKAGES:
            name = getattr(code, "co_qualname", code.co_name)  # Python 3.11
            if not code.co_name.startswith("<"):
                entered[str(path.relative_to(ROOT)), name] = None

    sys.setprofile(note)
    try:
        learner.improve(rollout, 1e-3)
    finally:
        sys.setprofile(None)
    return list(entered)


def _lines(paths: Any) -> int:
    return sum(read(path).count("\n") for path in paths)
