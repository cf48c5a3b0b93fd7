"""Tables of networks that grow."""

from __future__ import annotations

from typing import Any

from benchmarks.results_page.cells import Section, Table, between, number, only, plus_minus, yes

FIGURES = ("return", "accuracy", "permanent")


def static(data: list[dict[str, Any]]) -> Table:
    """Return accuracy, parameters and operations of grown networks and static ones."""
    header = ["network", "accuracy", "parameters", "multiplications, million"]
    rows = [
        [
            row["network"],
            plus_minus(row["accuracy"], row["half_width"]),
            number(round(row["parameters"])),
            number(round(row["operations"] / 1e6)),
        ]
        for row in data[-1]["rows"]
    ]
    return header, rows


def players(data: list[dict[str, Any]]) -> Table:
    """Return what players reach, by variant of the world; policies of several seeds share a row, as ranges."""
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in (row for entry in data for row in entry["rows"]):
        groups.setdefault((row["variant"], row["player"].rstrip("0123456789"), str(row["worlds"])), []).append(row)
    return ["variant", "player", "worlds", *FIGURES, "correlation", "ahead", "accuracy beyond smaller"], [
        [*group, *_figures(rows)] for group, rows in groups.items()
    ]


def _figures(rows: list[dict[str, Any]]) -> list[str]:
    beyond = [[row[label] for row in rows if label in row] for label in ("ahead_of_first", "accuracy_ahead_of_smaller")]
    if len(rows) > 1:
        known = [[row[key] for row in rows if row[key] is not None] for key in (*FIGURES, "correlation")]
        return [*map(between, known), *(between(each["mean"] for each in found) if found else "" for found in beyond)]
    (row,) = rows
    related = "" if row["correlation"] is None else f"{row['correlation']:.2f}"
    figures = [plus_minus(row[key], row["half_width"][key]) for key in FIGURES]
    return [*figures, related, *(plus_minus(*found[0].values()) if found else "" for found in beyond)]


def gate(data: list[dict[str, Any]]) -> Table:
    """Return the accuracy with 0, 1 and 2 modules by design, as ranges over seeds."""
    rows = [
        [row["design"], *(between(each, 100, " %") for each in row["accuracies"])]
        for entry in data
        for row in entry["rows"]
    ]
    return ["design", "0 modules", "1 module", "2 modules"], rows


def reward(data: list[dict[str, Any]]) -> Table:
    """Return the schedule chosen by either reward and what it earns, by seed."""
    kinds = ("gain", "contribution")
    chosen = {(row["seed"], row["reward"]): f"{row['schedule']}: {row['return']:.2f}" for row in data[-1]["rows"]}
    seeds = sorted({seed for seed, _ in chosen})
    return ["seed", *kinds], [[str(seed), *(chosen[seed, kind] for kind in kinds)] for seed in seeds]


def speed(data: list[dict[str, Any]]) -> Table:
    """Return steps of hosts per processor second by slots and worlds, compiled and not: one after another, and batched
    with all slots live or empty.
    """
    kinds = ("one after another", "batched, all slots live", "batched, no module")
    found: dict[tuple[str, str, str], dict[str, str]] = {}
    for entry in data:
        for row in entry["rows"] if "compiled" in entry else ():
            place = (str(row["slots"]), number(row["worlds"]), yes(entry["compiled"]))
            found.setdefault(place, {})[row["what"]] = f"{row['per_processor_second']:.1f}"
    return ["slots", "at once", "compiled", *kinds], [
        [*place, *(speeds.get(kind, "") for kind in kinds)] for place, speeds in found.items()
    ]


def computed(data: list[dict[str, Any]]) -> Table:
    """Return launches and bytes of a step on a GPU, and the most steps of hosts per second."""
    (counted,) = (entry for entry in data if "compiled" not in entry)
    columns = {"hosts": "what", "at once": "worlds"}
    return only(counted["rows"], columns | {key: key for key in ("launches", "bytes", "flops", "per_second")})


TITLE = "Figures of networks that grow"
SECTIONS = (
    Section(
        "Growing and what one would do instead",
        ("growth_static.json",),
        static,
        "accuracy at the end, mean over the same worlds; multiplications of all forward passes in training.",
    ),
    Section(
        "Players",
        ("growth_players.json",),
        players,
        "one episode in each of the worlds; the correlation is that of permanent modules with those that pay, `ahead` "
        "the return beyond that of the first row in the same worlds, the last column the accuracy beyond that of the "
        "`smaller schedule`. Learned, with a range over seeds: `weighted` from one player (transfer: seed 2), "
        "`ppo` after 65,536 frames of PPO upon it, `by_net` and `by_contribution` from four players by that reward, "
        "`cloned` from them without weights.",
    ),
    Section("Faults", ("growth_gate.json",), gate, "accuracy of hosts at level 3, range over seeds."),
    Section(
        "Gain and contribution",
        ("growth_reward.json",),
        reward,
        "the best of seven schedules by either reward, and its return by gain.",
    ),
    Section(
        "Speed",
        ("growth_speed.json",),
        speed,
        "steps of hosts on one thread; those one after another are never compiled.",
    ),
    Section(
        "Speed on a GPU",
        ("growth_speed.json",),
        computed,
        "computed for an H100, each operation a kernel of its own in a CUDA graph; nothing was timed.",
    ),
)
