"""Where modules of the last release are now; they are still found where they were, with a warning."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

MODULES = {
    f"torchrl_agent.{old}": [f"torchrl_agent.{new}" for new in news]
    for old, news in {
        "arguments": ["commands.arguments"],
        "baseline": ["benchmarks.sb3_baseline"],
        "bench": ["benchmarks.speed"],
        "bench_agent": ["benchmarks.modules"],
        "bench_learn": ["benchmarks.against_sb3"],
        "bench_skill": ["benchmarks.skill", "benchmarks.results"],
        "claims": ["benchmarks.ablations"],
        "film": ["runs.film"],
        "lowering": ["profiling.lowering"],
        "model_card": ["runs.model_card"],
        "report": ["runs.report"],
        "roofline": ["profiling.roofline", "benchmarks.results"],
        "run_folder": ["runs.folder", "runs.writer"],
        "stopping": ["runs.stopping"],
        "timing": ["benchmarks.timing"],
        "trace": ["profiling.trace"],
        "train": ["loop", "runs.run", "runs.folder", "runs.writer"],
        "trained": ["runs.load", "judging"],
    }.items()
}


class MovedModules:
    """A finder of modules (:class:`importlib.abc.MetaPathFinder`); what it needs is imported once it finds one."""

    @staticmethod
    def find_spec(fullname: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname not in MODULES:
            return None
        from envs.moved import MovedModules

        return MovedModules(MODULES, {"record": "put_result"}).find_spec(fullname)


def install() -> None:
    """Let old names be imported."""
    if MovedModules not in sys.meta_path:
        sys.meta_path.append(MovedModules)  # type: ignore[arg-type]
