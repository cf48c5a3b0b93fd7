"""Admission of labs: what a fault costs, what each repair brings back, and the module whose evidence rises most."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from torchrl_agent.cli.arguments import check_least
from torchrl_agent.core.checkpoint import read_json, write_json
from torchrl_agent.core.tables import aligned
from torchrl_agent.labs import LABS, Lab
from torchrl_agent.labs.admission import first_steps, rises
from torchrl_agent.labs.answer import played

COST = 0.2
"""Least fraction of the healthy return that a fault must cost."""
RESTORED = 0.95
"""Least fraction of the healthy return that the right repair must bring back."""
WRONG = 0.85
"""Fraction of the healthy return below which a wrong repair must stay."""


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
