"""Faults planted in trained agents, and the module that the diagnosis names first, beside healthy agents."""

from __future__ import annotations

import argparse
import dataclasses
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
from torchrl_agent.explain import diagnose, reward_unit
from torchrl_agent.explain.diagnosis import NOTHING_UNUSUAL
from torchrl_agent.explain.episode import play_episode
from torchrl_agent.explain.reference import find_reference, steps_of
from torchrl_agent.explain.thinking import thought_of
from torchrl_agent.explain.thought import Thought
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
RULES = ("before", "after")
"""Fixed thresholds of a step alone, and the comparison with the reference."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add agents, numbers of faults and healthy games, and a file of finished cases."""
    usual = ["shipped:tonight", "shipped:payday", "shipped:village"]
    parser.add_argument("--agents", nargs="+", default=usual, help=f"runs with a reference ({' '.join(usual)})")
    parser.add_argument("--faults", type=int, default=24, help="drawn faults (24)")
    parser.add_argument("--healthy", type=int, default=4, help="games of each healthy agent (4)")
    parser.add_argument("--steps", type=int, default=96, help="steps of each game (96)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the draw (0)")
    parser.add_argument("--keep", type=Path, metavar="FILE.json", help="finished cases, which are not played again")


def run(parsed: argparse.Namespace) -> dict[str, Any]:
    """Play all cases, and print the table of both rules."""
    check_least(parsed, faults=0, healthy=0, steps=40)
    kept = (read_json(parsed.keep) or {}) if parsed.keep else {}
    names = cases(parsed.agents, parsed.faults, parsed.healthy, parsed.seed)
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
        "steps": parsed.steps,
        "seed": parsed.seed,
        "cases": found,
    }


def cases(agents: list[str], faults: int, healthy: int, seed: int) -> list[str]:
    """Return the cases, ``AGENT KIND NUMBER`` each: healthy games, then faults, as many of each kind."""
    chance, result = random.Random(seed), []
    fitting = {kind: [name for name in agents if fits(kind, name)] for kind in MODULES}
    missing = [kind for kind, names in fitting.items() if not names]
    if missing and faults:
        raise ValueError(f"no agent has the module that {missing[0]} breaks: give --agents one that has.")
    for name in agents:
        result += [f"{name} healthy {number}" for number in range(healthy)]
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
    """Play a game with a fault and return by rule the thoughts that named a module first, of all ``thoughts``."""
    experiment, agent = load_agent(name, "cpu")
    run, chance = find_run(name), random.Random(number)
    reference, unit = find_reference(run), reward_unit(experiment, run)
    if reference is None:
        raise ValueError(f"{name} has no reference: make one with 'torchrl-agent evaluate {name} --reference'.")
    seed = FIRST_SEED + number
    with closing(agent.attach(experiment.make_world(evaluation=True, num_envs=1, seed=seed))) as env:
        what = ""
        if kind != "healthy":
            what = draw(kind, frequent(name), chance)
            plant(agent.eval(), env, what)
        episode = play_episode(env, agent.eval(), 0, range(steps), most=steps)
        first: dict[str, Counter[str]] = {rule: Counter() for rule in RULES}
        for index, frames in enumerate(episode.frames):
            evidence = reference.of_episode(agent, episode, index)
            for step in range(0, len(frames), EVERY):
                thought = thought_of(env, agent, episode, 0, index, step, unit, evidence[step])
                for rule, given in zip(RULES, (_plain(thought), thought), strict=True):
                    first[rule][diagnose(given)[0].partition(":")[0]] += 1
    return {
        "what": what,
        "thoughts": sum(first["after"].values()),
        **{rule: dict(found) for rule, found in first.items()},
    }


def _plain(thought: Thought) -> Thought:
    """Return a thought as it was before there were references."""
    return dataclasses.replace(thought, evidence=None, names=dataclasses.replace(thought.names, raised=None))


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
    found = {module: count for module, count in first.items() if module != NOTHING_UNUSUAL}
    return max(found, key=lambda module: found[module]) if found else "nothing"


def rows(found: dict[str, dict[str, Any]]) -> list[list[str]]:
    """Return cells: by kind of fault how often each rule blames the right module, and false alarms of the healthy."""
    result = [["kind", "cases", *(f"right, {rule}" for rule in RULES), "blamed instead"]]
    for kind, module in MODULES.items():
        of_kind = [case for name, case in found.items() if f" {kind} " in name]
        named = {rule: [blamed(case[rule]) for case in of_kind] for rule in RULES}
        wrong = Counter(name for name in named["after"] if name != module)
        right = [str(named[rule].count(module)) for rule in RULES]
        result.append([kind, str(len(of_kind)), *right, ", ".join(f"{name} {count}" for name, count in wrong.items())])
    healthy = [case for name, case in found.items() if " healthy " in name]
    count = sum(case["thoughts"] for case in healthy)
    alarms = [sum(case["thoughts"] - case[rule].get(NOTHING_UNUSUAL, 0) for case in healthy) for rule in RULES]
    result.append(["healthy", f"{count} thoughts", *(f"{alarm} alarms" for alarm in alarms), ""])
    return result
