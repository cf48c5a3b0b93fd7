"""Admission of labs: what a fault costs, what each repair brings back, and the module whose evidence rises most."""

from __future__ import annotations

import argparse
from contextlib import closing
from pathlib import Path
from typing import Any

import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torchrl.envs.utils import ExplorationType, set_exploration_type

from torchrl_agent import keys
from torchrl_agent.cli.arguments import check_least
from torchrl_agent.core.checkpoint import read_json, write_json
from torchrl_agent.core.run_names import find_run
from torchrl_agent.core.tables import aligned
from torchrl_agent.explain.evidence import module_of
from torchrl_agent.explain.reference import WORLDS, find_reference, steps_of
from torchrl_agent.labs import LABS, Lab
from torchrl_agent.labs.answer import played
from torchrl_agent.models.planned_policy import acting_policy

COST = 0.2
"""Least fraction of the healthy return that a fault must cost."""
RESTORED = 0.95
"""Least fraction of the healthy return that the right repair must bring back."""
WRONG = 0.85
"""Fraction of the healthy return below which a wrong repair must stay."""
STEPS = 96
"""Number of steps of the games that are looked at."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add labs, the extent of the evaluation, and a file of finished evaluations."""
    parser.add_argument("--labs", type=int, nargs="+", default=list(LABS), help="numbers (all)")
    parser.add_argument("--episodes", type=int, default=64, help="games of each agent (64)")
    parser.add_argument("--keep", type=Path, metavar="FILE.json", help="finished evaluations, which are not made again")


def run(parsed: argparse.Namespace) -> dict[str, Any]:
    """Play all agents, and print the table."""
    check_least(parsed, episodes=1)
    kept = (read_json(parsed.keep) or {}) if parsed.keep and parsed.keep.is_file() else {}
    found = {}
    for number in parsed.labs:
        measured: dict[str, Any] = {}
        for name, measure in measures(LABS[number], parsed.episodes).items():
            key = f"{number} {name} {parsed.episodes}"
            if key not in kept:
                kept[key] = measure()
                print(key, kept[key], flush=True)
                if parsed.keep:
                    write_json(parsed.keep, kept)
            measured[name] = kept[key]
        found[str(number)] = judged(LABS[number], measured)
    print("\n".join(aligned(rows(found), words=6)))
    return {"config": "labs", "overrides": [], "episodes": parsed.episodes, "labs": found}


def measures(lab: Lab, episodes: int) -> dict[str, Any]:
    """Return what is measured about a lab, by name, as functions."""
    states = {"healthy": (), "faulty": (lab.fault,)}
    states |= {letter: (lab.fault, change) for letter, (_, change) in lab.repairs.items()}
    returns = {name: lambda changes=changes: played(lab, changes, episodes) for name, changes in states.items()}
    return {"rises": lambda: rises(lab, lab.fault), "first": lambda: first_steps(lab), **returns}


def judged(lab: Lab, measured: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of a lab, and whether it is admitted."""
    shares = {name: measured[name] / measured["healthy"] for name in ("faulty", *lab.repairs)}
    wrong = {letter: shares[letter] for letter in lab.repairs if letter != lab.right}
    named = max(measured["rises"], key=measured["rises"].get)
    admitted = shares["faulty"] <= 1 - COST and shares[lab.right] >= RESTORED
    admitted = admitted and max(wrong.values()) < WRONG and named == lab.module
    return {
        "run": lab.run,
        "return": measured["healthy"],
        "shares": shares,
        "right": lab.right,
        "module": lab.module,
        "rises": measured["rises"],
        "named": named,
        "first": measured["first"],
        "admitted": admitted,
    }


def rows(found: dict[str, dict[str, Any]]) -> list[list[str]]:
    """Return cells: by lab fractions of the healthy return, and how far the evidence of modules rises."""
    result = [["lab", "agent", "healthy return", "with the fault", "right repair", "best wrong repair", "evidence", ""]]
    for number, lab in found.items():
        wrong = max(share for name, share in lab["shares"].items() if name not in ("faulty", lab["right"]))
        evidence = ", ".join(f"{module} {rise:.2f}" for module, rise in lab["rises"].items())
        shares = [f"{share:.0%}" for share in (lab["shares"]["faulty"], lab["shares"][lab["right"]], wrong)]
        admitted = "admitted" if lab["admitted"] else "not admitted"
        result.append([number, lab["run"], f"{lab['return']:.1f}", *shares, evidence, admitted])
    return result


@torch.no_grad()
def rises(lab: Lab, *changes: str) -> dict[str, float]:
    """Return by module how far its evidence rises in games with changes: its mean over the limit of the healthy agent,
    the largest of the module's.
    """
    experiment, agent = lab.agent(*changes)
    reference = find_reference(find_run(lab.run))
    assert reference is not None, "the agent of a lab has a reference"
    steps = steps_of(experiment, agent, experiment.evaluation.seed, most=STEPS)
    result: dict[str, float] = {}
    for name, values in reference.evidence(agent, steps).items():
        if name in reference.limits:
            module, rise = module_of(name), values.nanmean().item() / reference.limits[name]
            result[module] = max(rise, result.get(module, 0.0))
    return result


@torch.no_grad()
def first_steps(lab: Lab) -> list[int | None]:
    """Return for the first games of the evaluation the first step at which the agent with the fault acts as the healthy
    one would not in its place, with the same past; None for a game without one.
    """
    experiment, faulty = lab.agent(lab.fault)
    _, healthy = lab.agent()
    world = experiment.make_world(evaluation=True, num_envs=WORLDS, seed=experiment.evaluation.seed)
    found: list[int | None] = [None] * WORLDS
    with closing(faulty.attach(world)) as env, set_exploration_type(ExplorationType.DETERMINISTIC):
        policy, beside, root = acting_policy(faulty), Beside(acting_policy(healthy)), env.reset()
        over = torch.zeros(WORLDS, dtype=torch.bool)
        for step in range(STEPS):
            root = policy(root)
            other = (root[env.action_key] != beside(root)[env.action_key]).flatten(1).any(1) & ~over
            found = [step if first is None and bool(here) else first for first, here in zip(found, other, strict=True)]
            played, root = env.step_and_maybe_reset(root)
            over |= played[keys.NEXT, keys.DONE].reshape(-1)
    return found


class Beside:
    """Policy that observes what another one does, and remembers by itself."""

    def __init__(self, policy: TensorDictModuleBase) -> None:
        self.policy = policy
        self.memory: TensorDictBase | None = None

    def __call__(self, root: TensorDictBase) -> TensorDictBase:
        """Return what it would do, given the observations of ``root``, and keep its memory for the next step."""
        given = root.exclude(keys.NEXT).clone()
        if self.memory is not None:
            given.update(self.memory)
        acted: TensorDictBase = self.policy(given)
        self.memory = acted.get(keys.NEXT, None)
        return acted
