"""Tables of the four-module agent: what its modules earn, could earn and cost."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from benchmarks.diagnosis import rows as diagnosis_rows
from benchmarks.labs import rows as lab_rows
from benchmarks.results_page.cells import Section, Table, spread

APART = ("false belief", "new purpose")
"""Claims that are not about two returns."""
GAMES = 48
"""Games of most levels' headroom."""


def level_claims(data: dict[str, Any]) -> Table:
    """Return returns with and without each module, and their difference by seed."""
    rows = []
    for name, claim in data["claims"].items():
        if name in APART:
            continue
        for key, start, title in (
            ("return_mean", "return ", f"`{name}`"),
            ("return_in_strange_company", "return_in_strange_company", f"`{name}`, unseen kinds"),
        ):
            checks = [each for each in claim["checks"] if each["check"].startswith(start)]
            if checks:
                seeds, *returns, gain = _with_and_without(claim, key)
                gain = f"**{gain}**" if all(each["holds"] for each in checks) else gain
                ablated = _ablated(claim, int(seeds)) if key == "return_mean" else ""
                rows.append([title, seeds, *returns, gain, ablated])
    return ["claim", "seeds", "with", "without", "difference", "ablated"], rows


def _with_and_without(claim: dict[str, Any], key: str) -> list[str]:
    """Return cells: number of seeds, a return with the module, without, and their difference with its fraction."""
    further = claim.get("further_seeds", {})
    sides = list(claim["figures"].items())[:2]
    ours, theirs = (figures[key] + further.get(side, {}).get(key, []) for side, figures in sides)
    difference = [one - other for one, other in zip(ours, theirs, strict=True)]
    gain = f"{spread(difference)} ({fmean(ours) / fmean(theirs) - 1:+.0%})"
    return [str(len(ours)), spread(ours), spread(theirs), gain]


def _ablated(claim: dict[str, Any], count: int) -> str:
    """Return the return of the trained agent without its module, if a check compares it; ``count`` is that of seeds."""
    figures = next(iter(claim["figures"].values()))
    names = [name for name in figures if any(f"beside {name}" in each["check"] for each in claim["checks"])]
    if not names:
        return ""
    values = figures[names[0]]
    return spread(values) + (f" ({len(values)} seeds)" if len(values) < count else "")


def other_claims(agent: dict[str, Any], levels: dict[str, Any]) -> Table:
    """Return how many checks of each claim hold, and the first that does not."""
    rows = []
    for name, claim in [*agent["claims"].items(), *((name, levels["claims"][name]) for name in APART)]:
        if "earlier definition" in name or "(1.2 million frames)" in name:
            continue
        found = [each for each in claim["checks"] if not each["check"].startswith("parameters")]
        failed = [f"{each['check']}: {each['found'].replace('+-', '±')}" for each in found if not each["holds"]]
        held = f"{len(found) - len(failed)} of {len(found)}"
        rows.append([f"`{name}`", held, failed[0] if failed else ""])
    return ["claim", "hold", "does not hold"], rows


def headroom(data: list[dict[str, Any]]) -> Table:
    """Return what scripted policies gain by each kind of knowledge, one row for each level."""
    rows = []
    for entry in data:
        changes = [each.removeprefix("world.level=") for each in entry["overrides"] if each != "threads=1"]
        if changes in (["L7"], ["L8"]):  # L6 to scripted policies
            continue
        title = f"`{' '.join(changes if entry['config'] == 'town' else [entry['config'], *changes])}`"
        games = "" if entry["episodes"] == GAMES else f" ({entry['episodes']} games)"
        gains = [f"{row['module']} {row['share']:+.0%}" for row in entry["rows"] if row["testable"]]
        rows.append([title + games, ", ".join(gains) or "none"])
    return ["level", "gain by"], rows


def agent_speed(data: dict[str, Any]) -> Table:
    """Return the time of each module, eager and compiled, and the speed of the whole."""
    keys = ("act_eager_ms", "act_compiled_ms", "act_ratio", "learn_eager_ms", "learn_compiled_ms", "learn_ratio")
    rows = [[row["module"], *(f"{row[key]:.3g}" for key in keys)] for row in data["modules"]]
    rows.append(["whole, with the world", "", "", f"{data['act_ratio']:.3g}", "", "", f"{data['learn_ratio']:.3g}"])
    return ["", "act, eager", "compiled", "ratio", "update, eager", "compiled", "ratio"], rows


TITLE = "Figures of the four-module agent"


def diagnosis(data: list[dict[str, Any]]) -> Table:
    """Return right names and false alarms of the diagnosis, by kind of fault."""
    header, *cells = diagnosis_rows(data[-1]["cases"])
    return header, cells


def labs(data: list[dict[str, Any]]) -> Table:
    """Return the admission of labs."""
    header, *cells = lab_rows(data[-1]["labs"])
    return header, cells


SECTIONS = (
    Section(
        "Modules on levels made for them",
        ("level_claims.json",),
        level_claims,
        "returns in 256 unseen games with and without the module, at equal parameters and frames; bold: the claim "
        "holds; *ablated*: the trained agent without the module. [What is compared](../claims.md).",
    ),
    Section(
        "Other claims",
        ("agent_claims.json", "level_claims.json"),
        other_claims,
        "number of checks that hold, and the first that does not.",
    ),
    Section(
        "What there is to gain",
        ("headroom.json",),
        headroom,
        f"what scripted policies earn more with one kind of knowledge than without, in {GAMES} games, where a claim "
        "may be tested ([method](../claims.md#what-there-is-to-gain)).",
    ),
    Section(
        "Planted faults",
        ("diagnosis.json",),
        diagnosis,
        "which module the [diagnosis](../explain.md#the-diagnosis) blames in a game with a fault, and its alarms in "
        "200 thoughts of each healthy agent; the rules were fixed before the faults were drawn.",
    ),
    Section(
        "Labs",
        ("labs.json",),
        labs,
        "fractions of the healthy return with the fault, after the right repair and after the best wrong one; evidence "
        "of each module as a fraction of the healthy agent's largest. [Labs](../labs.md).",
    ),
    Section(
        "Speed of the modules",
        ("agent_speed.json",),
        agent_speed,
        "L6 with four agents: milliseconds of acting and of an update, eager and compiled.",
    ),
)
