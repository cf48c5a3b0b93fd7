"""Faults planted in trained agents, and the module that the diagnosis names first, beside healthy agents."""

from __future__ import annotations

import argparse
import functools
import random
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

from torch import Tensor

from torchrl_agent import keys
from torchrl_agent.cli.arguments import check_least
from torchrl_agent.core.checkpoint import read_json, write_json
from torchrl_agent.core.run_names import find_run
from torchrl_agent.core.tables import aligned
from torchrl_agent.explain.diagnosis import diagnose_evidence
from torchrl_agent.explain.reference import find_reference, steps_of
from torchrl_agent.labs.answer import MODULES as ORDER
from torchrl_agent.labs.faults import plant
from torchrl_agent.runs.load import load_agent

MODULES = {
    "blind": "perception",
    "mirrored": "perception",
    "deaf": "social model",
    "misread": "social model",
    "physics": "world model",
    "stuck": "policy",
}
"""Kinds of faults, and the module that has the fault."""
OFTEN = 0.05
"""Least share of what is exchanged, so that the fault has consequences."""
LOOKED_AT = 48
"""Steps of healthy games in which it is counted what is frequent."""
STUCK = 20
"""Logit by which the manager prefers a goal."""
EVERY = 4
"""Steps between two thoughts that are diagnosed."""
FIRST_SEED = 50_000
HEALTHY, NOTHING = "healthy", "nothing"
HEALTHY_WORLDS, THOUGHTS = 16, 200
"""Games of a healthy agent, and the number of its thoughts that are drawn from them."""
STRENGTHS = 0.8, 1.0
"""Least and largest strength of a fault."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add agents, the number of faults, and a file of finished cases."""
    faulty = [f"shipped:{name}" for name in ("tonight", "payday", "market_day", "way_back")]
    healthy = [*faulty, "shipped:village"]
    parser.add_argument("--agents", nargs="+", default=faulty, help="runs with a reference, for faults (four levels')")
    parser.add_argument(
        "--healthy", nargs="+", default=healthy, help="runs with a reference that stay healthy (these and village)"
    )
    parser.add_argument("--faults", type=int, default=100, help="drawn faults (100)")
    parser.add_argument("--steps", type=int, default=64, help="steps of each game (64)")
    parser.add_argument("--seed", type=int, default=3, help="seed of the draw (3)")
    parser.add_argument("--keep", type=Path, metavar="FILE.json", help="finished cases, which are not played again")


def run(parsed: argparse.Namespace) -> dict[str, Any]:
    """Judge all cases, and print the table."""
    check_least(parsed, faults=0, steps=40)
    kept = (read_json(parsed.keep) or {}) if parsed.keep else {}
    names = cases(parsed.agents, parsed.healthy, parsed.faults, parsed.seed)
    for name in names:
        key = f"{name} {parsed.steps}"
        if key not in kept:
            agent, kind, number = name.split(" ")
            kept[key] = judge(agent, kind, int(number), parsed.steps)
            print(name, kept[key], flush=True)
            if parsed.keep:
                write_json(parsed.keep, kept)
    found = {name: kept[f"{name} {parsed.steps}"] for name in names}
    print("\n".join(aligned(rows(found), words=5)))
    return {
        "config": "diagnosis",
        "overrides": [],
        "agents": parsed.agents,
        "healthy": parsed.healthy,
        "steps": parsed.steps,
        "seed": parsed.seed,
        "cases": found,
    }


def cases(agents: list[str], healthy: list[str], faults: int, seed: int) -> list[str]:
    """Return the cases, ``AGENT KIND NUMBER`` each: healthy agents, then faults, as many of each kind."""
    chance, result = random.Random(seed), [f"{name} {HEALTHY} {seed}" for name in healthy]
    fitting = {kind: [name for name in agents if fits(kind, name)] for kind in MODULES}
    missing = [kind for kind, names in fitting.items() if not names]
    if missing and faults:
        raise ValueError(f"no agent has the module that {missing[0]} breaks: give --agents one that has.")
    for number in range(faults):
        kind = list(MODULES)[number % len(MODULES)]
        result.append(f"{chance.choice(fitting[kind])} {kind} {chance.randrange(10**6)}")
    return result


def fits(kind: str, name: str) -> bool:
    """True if the agent has the module that a fault breaks."""
    return MODULES[kind].replace(" ", "_").replace("policy", "manager") in _modules(name)


@functools.cache
def _modules(name: str) -> list[str]:
    _, agent = load_agent(name, "cpu")
    return list(agent.agent_modules)


def judge(name: str, kind: str, number: int, steps: int) -> dict[str, Any]:
    """Play a game with a fault, or games of a ``healthy`` agent, and return how often which module is named first."""
    experiment, agent = load_agent(name, "cpu")
    reference, chance, what = find_reference(find_run(name)), random.Random(number), ""
    if reference is None:
        raise ValueError(f"{name} has no reference: make one with 'torchrl-agent evaluate {name} --reference'.")
    if kind != HEALTHY:
        often = frequent(name) if kind in ("misread", "physics", "stuck") else {}
        what, strength = draw(kind, often, chance), round(chance.uniform(*STRENGTHS), 2)
        with closing(agent.attach(experiment.make_world(evaluation=True, num_envs=1))) as env:
            plant(agent.eval(), env, what, strength)
        what += f", {strength:.0%}"
    played = steps_of(
        experiment, agent.eval(), FIRST_SEED + number, most=steps, worlds=HEALTHY_WORLDS if kind == HEALTHY else 1
    )
    evidence = reference.evidence(agent, played)
    agents, length = played.begins.shape
    thoughts = [reference.compared(evidence, row, step) for row in range(agents) for step in range(0, length, EVERY)]
    if kind == HEALTHY:
        thoughts = chance.sample(thoughts, min(THOUGHTS, len(thoughts)))
    first = Counter(next((module for module in ORDER if diagnose_evidence(module, each)), NOTHING) for each in thoughts)
    return {"what": what, "thoughts": len(thoughts), "first": dict(first)}


# --- faults ----------------------------------------------------------------------------------------------------------

Often = dict[str, list[int]]


@functools.cache
def frequent(name: str) -> Often:
    """Return the actions, and the needs and actions of others, that occur often in games of a healthy agent, and the
    goals that it follows in less than half of its time.
    """
    experiment, agent = load_agent(name, "cpu")
    rows = steps_of(experiment, agent.eval(), FIRST_SEED, most=LOOKED_AT).rows

    def shares(values: Tensor) -> list[tuple[int, float]]:
        return [(index, count / values.numel()) for index, count in enumerate(values.flatten().bincount().tolist())]

    found = {"actions": [index for index, share in shares(rows[keys.ACTION]) if share > OFTEN]}
    if keys.PRIVILEGED in rows.keys():
        seen = rows[keys.BELIEF, "visible"]
        for label in ("others_need", "others_action"):
            found[label] = [index for index, share in shares(rows[keys.PRIVILEGED, label][seen]) if share > OFTEN]
    if agent.manager is not None:
        followed = dict(shares(rows[keys.GOAL, "type"]))
        found["goals"] = [goal for goal in range(len(agent.manager.names)) if followed.get(goal, 0) < 0.5]
    return found


def draw(kind: str, often: Often, chance: random.Random) -> str:
    """Return a fault of a kind as :func:`~torchrl_agent.labs.faults.plant` reads it."""
    if kind == "mirrored":
        return f"mirrored {chance.choice('xy')}"
    if kind == "misread":
        part = chance.choice([name for name in ("others_need", "others_action") if len(often[name]) > 1])
        return " ".join([part, *map(str, chance.sample(often[part], 2))])
    if kind == "physics":
        return " ".join(["actions", *map(str, chance.sample(often["actions"], 2))])
    if kind == "stuck":
        return f"goal {chance.choice(often['goals'])} {STUCK}"
    return kind


# --- the table -------------------------------------------------------------------------------------------------------


def blamed(first: dict[str, int]) -> str:
    """Return the module that was named first in most thoughts, of those in which one was named."""
    found = {module: count for module, count in first.items() if module != NOTHING}
    return max(found, key=lambda module: found[module]) if found else "nothing"


def rows(found: dict[str, dict[str, Any]]) -> list[list[str]]:
    """Return cells: by kind of fault how often the right module is blamed, and false alarms about healthy agents."""
    result = [["kind", "cases", "right", "blamed instead"]]
    for kind, module in MODULES.items():
        named = Counter(blamed(case["first"]) for name, case in found.items() if f" {kind} " in name)
        wrong = ", ".join(f"{name} {count}" for name, count in named.items() if name != module)
        result.append([kind, str(sum(named.values())), str(named[module]), wrong])
    healthy = [case for name, case in found.items() if f" {HEALTHY} " in name]
    count = sum(case["thoughts"] for case in healthy)
    alarms = Counter({module: sum(case["first"].get(module, 0) for case in healthy) for module in ORDER})
    counts = ", ".join(f"{name} {number}" for name, number in alarms.items() if number)
    return [*result, [HEALTHY, f"{count} thoughts", f"{sum(alarms.values())} alarms", counts]]
