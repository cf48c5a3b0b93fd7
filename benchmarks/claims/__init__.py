"""Claims about the four-module agent: one command measures each of them over seeds and reports whether it holds.

``claims.yaml`` defines the comparisons, ``measures.py`` computes the figures of one run, ``town.py`` those that are
specific to the Town, ``kept.py`` stores them, and ``verdicts.py`` decides from the figures of all seeds.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from benchmarks.claims.kept import Kept
from benchmarks.claims.measures import CONFIG, EAGER, Run, measure
from benchmarks.claims.verdicts import judge
from torchrl_agent.cli.arguments import add_seeds
from torchrl_agent.core.checkpoint import versions
from torchrl_agent.core.progress import Progress
from torchrl_agent.core.text import did_you_mean

CLAIMS: dict[str, dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "claims.yaml").read_text(encoding="utf-8"))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add claims, changes, seeds, jobs and the file of figures."""
    parser.add_argument(
        "overrides", nargs="*", metavar="CLAIM|KEY=VALUE", help="claims (all), and changes of every run"
    )
    add_seeds(parser)
    parser.add_argument("--jobs", type=int, help="runs at the same time, one thread each (one per processor)")
    purpose = "keep each run's figures in this file as it ends, and measure again only what it lacks"
    parser.add_argument("--keep", metavar="FILE", type=Path, help=purpose)


def run(parsed: argparse.Namespace) -> dict[str, Any]:
    """Measure the claims, and print the verdicts."""
    names = [word for word in parsed.overrides if "=" not in word]
    changes = [word for word in parsed.overrides if "=" in word]
    result = prove(names, parsed.seeds, changes, parsed.jobs, parsed.keep)
    print(table(result))
    return {"config": CONFIG, **result}


def prove(
    names: list[str], seeds: list[int], overrides: list[str], jobs: int | None = None, keep: Path | None = None
) -> dict[str, Any]:
    """Measure claims, each run in a process of its own.

    Args:
        names: names in :data:`CLAIMS`; none for all.
        seeds: seeds of the runs.
        overrides: changes of every run's configuration, such as ``total_frames=10_000`` for a quick look.
        jobs: number of simultaneous runs, each on one CPU thread; by default one per processor.
        keep: file to which the figures of each run are written as it ends; runs in it are not measured again.

    Returns:
        ``claims`` by name with ``claim``, ``figures`` (variant: measure: one number per seed), ``checks`` and
        ``holds``; ``seconds``, ``seeds``, ``overrides``, ``versions``.

    Raises:
        ValueError: an unknown claim, no seeds, fewer than one job, overrides that cannot work, or a file of figures
            that holds something else or figures of other code, or cannot be written.
    """
    strange = [name for name in names if name not in CLAIMS]
    if strange:
        raise ValueError(
            f"there is no claim {strange[0]!r}{did_you_mean(strange[0], CLAIMS)}: use some of {', '.join(CLAIMS)}."
        )
    if not seeds:
        raise ValueError("no seeds: give at least one.")
    if jobs is not None and jobs < 1:
        raise ValueError(f"jobs is {jobs}: let at least 1 run at a time.")
    start = time.perf_counter()
    runs = {(name, variant): _run(name, variant, overrides) for name in names or CLAIMS for variant in _variants(name)}
    for run in runs.values():
        # a configuration that cannot work is refused before anything runs
        run.experiment(seeds[0], *EAGER).make_learner()
    kept = Kept(keep)
    _measure_all(list(dict.fromkeys(runs.values())), seeds, jobs or os.cpu_count() or 1, kept)
    claims = {}
    for name in names or CLAIMS:
        figures = {variant: _by_measure(kept, runs[name, variant], seeds) for variant in _variants(name)}
        checks = judge(name, figures)
        claims[name] = {
            "claim": CLAIMS[name]["claim"],
            "figures": figures,
            "checks": checks,
            "holds": all(check["holds"] for check in checks),
        }
    seconds = round(time.perf_counter() - start, 1)
    return {"claims": claims, "seeds": seeds, "overrides": overrides, "seconds": seconds, "versions": versions()}


def table(result: dict[str, Any]) -> str:
    """Return claims, figures and checks as lines of text."""
    lines = []
    for name, row in result["claims"].items():
        lines.append(f"{'HOLDS ' if row['holds'] else 'FAILS '} {name}: {row['claim']}")
        for variant, figures in row["figures"].items():
            shown = ", ".join(f"{key} {_number(sum(values) / len(values))}" for key, values in figures.items())
            lines.append(f"         {variant}: {shown}")
        lines += [
            f"    {'yes' if check['holds'] else 'NO '}  {check['check']}: {check['found']}" for check in row["checks"]
        ]
    return "\n".join(lines)


def _variants(name: str) -> dict[str, list[str]]:
    return CLAIMS[name]["variants"]


def _run(name: str, variant: str, overrides: list[str]) -> Run:
    claim = CLAIMS[name]
    kind = name if name in ("leak", "open mind") else "pretrain" if "pretrain" in claim else "train"
    lesson = claim.get("pretrain") or claim.get("pretrained", {}).get(variant, {})
    elsewhere = tuple((place, tuple(changes)) for place, changes in claim.get("elsewhere", {}).items())
    changes = (*claim["base"], *claim["variants"][variant], *overrides)
    lesson = {key: tuple(value) if isinstance(value, list) else value for key, value in lesson.items()}
    lessons = tuple(sorted(lesson.items()))
    afterward = (*claim["afterward"][variant], *overrides) if "afterward" in claim else ()
    return Run(kind, changes, lessons, elsewhere, claim.get("config", CONFIG), claim.get("watched"), afterward)


def _measure_all(runs: list[Run], seeds: list[int], jobs: int, kept: Kept) -> None:
    missing = [(run, seed) for seed in seeds for run in runs if not kept.has(run, seed)]
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        tasks = [pool.submit(measure, run, seed) for run, seed in missing]
        for task, (run, seed) in zip(tasks, missing, strict=True):
            task.add_done_callback(partial(_keep, kept, run, seed))
        for task in Progress(len(tasks), "run").over(as_completed(tasks)):
            task.result()  # a failure is raised now; figures of the others are kept before the pool is left


def _keep(kept: Kept, run: Run, seed: int, task: Future) -> None:
    if not task.cancelled() and task.exception() is None:
        kept.put(run, seed, task.result())


def _by_measure(kept: Kept, run: Run, seeds: list[int]) -> dict[str, list[float]]:
    by_seed = [kept.get(run, seed) for seed in seeds]
    return {key: [figures[key] for figures in by_seed] for key in by_seed[0]}


def _number(value: float) -> str:
    return f"{value:,.4g}"
