"""``python -m benchmarks NAME ...`` runs a study; without a name the studies are listed."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from torchrl_agent.cli.arguments import add_trust
from torchrl_agent.core.checkpoint import versions
from torchrl_agent.core.text import to_json
from torchrl_agent.evaluation.results import put_result
from torchrl_agent.trust.targets import calling

RESULTS = Path(__file__).parent / "results"
STUDIES = {
    "against_sb3": "training in worlds of other libraries with defaults alone, beside Stable-Baselines3",
    "bit_flip": "DQN with hindsight experience replay and without",
    "claims": "checks of the claim about each module of the agent, over seeds",
    "diagnosis": "modules that the diagnosis names in agents with planted faults, beside healthy ones",
    "distributed": "speed of ranks with a thread each beside one process with as many threads",
    "evolution": "gain of evolution over the same members without it, over seeds",
    "families": "shift of a trait beyond drift, heritability of fitness, and concentration of wealth, over seeds",
    "gpu": "training speed on one CUDA device, beside JAX and rsl_rl in the same call",
    "growth_gate": "accuracy of hosts with 0, 1 and 2 modules on a fixed schedule, where two pay",
    "growth_reward": "schedules chosen by the gain of growing networks beside those chosen by contribution",
    "golden": "hashes of short trainings, by which a change that must change nothing is judged",
    "growth_players": "return and accuracy of the scripted players of the growth world, by hidden level",
    "growth_speed": "hosts trained per second by the growth world, beside one after another in plain PyTorch",
    "growth_static": "accuracy against parameters of grown networks, static ones and random search",
    "headroom": "largest possible gain in return of each module of the agent, by policies that need no training",
    "labs": "cost of each lab's fault, what its repairs bring back, and the module whose evidence rises most",
    "lag": "gain of V-trace over PPO where the acting policy lags behind the learner, over seeds",
    "league": "gain of a league over members that meet themselves alone, or a scripted player, over seeds",
    "matches": "time of several agents that act in the seats of as many worlds, beside that of one",
    "modules": "speed of the four-module agent, each module and the whole, compiled beside eager",
    "offline": "policies learned from recordings of a mixture of players, cloned beside weighted by advantage",
    "pictures": "pictures of worlds of other libraries for the docs",
    "personality": "shares of actions by a trait, and wealth and its Gini coefficient by generation, over seeds",
    "population": "speed of members that learn in one program, beside as many runs one after another",
    "results_page": "the pages of all recorded figures in docs/benchmarks",
    "roofline": "upper bounds of the speed on a GPU, computed without one",
    "sb3_speed": "training speed in small worlds on the host, beside Stable-Baselines3",
    "structure": "files, lines, packages and dependencies of the project",
    "time_to_skill": "time to the same skill in the Arena, beside Stable-Baselines3",
}
"""Modules of this package with ``add_arguments`` and ``run``, and the subject of each."""


def main(words: list[str]) -> int:
    """Run the study named by the first word, with the other words as arguments; return the exit status."""
    if not words or words[0] not in STUDIES:
        print("\n".join(f"python -m benchmarks {name}: {purpose}" for name, purpose in STUDIES.items()))
        return 0 if not words or words[0] in ("-h", "--help") else 2
    study = import_module(f"benchmarks.{words[0]}")
    parsed = _parse(words[0], study, words[1:])
    try:
        with calling(parsed.trust, str(Path.cwd())):
            result = study.run(parsed)
        if result is not None:
            _show(words[0], parsed, result)
    except ValueError as error:
        print(f"python -m benchmarks {words[0]}: {error}", file=sys.stderr)
        return 2
    return 0


def _parse(name: str, study: ModuleType, words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(f"python -m benchmarks {name}", description=study.__doc__)
    study.add_arguments(parser)
    add_trust(parser)
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object, last")
    parser.add_argument("--record", action="store_true", help=f"put the result into benchmarks/results/{name}.json")
    return parser.parse_intermixed_args(words)  # overrides may stand anywhere


def _show(name: str, parsed: argparse.Namespace, result: dict[str, Any]) -> None:
    """Print a result, and record it, with its configuration and versions."""
    given = {key: value for key, value in vars(parsed).items() if key in ("config", "overrides")}
    result = {**given, "versions": versions(), **result}
    if parsed.record:
        put_result(RESULTS / f"{name}.json", result)
    if parsed.json:
        print(to_json(result))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
