"""Tables of populations and of games between policies."""

from __future__ import annotations

from typing import Any

from benchmarks.results_page.cells import Section, Table, between, number, plus_minus, spread, yes
from torchrl_agent.core.tables import interval

LEAGUES = ("league", "a quarter against the past")


def population_speed(data: dict[str, Any]) -> Table:
    """Return the speed of members in one program beside that of a run alone."""
    rows = []
    for run in data["speed"]:
        sizes = next((each for each in run["overrides"] if "hidden_sizes" in each), "as configured")
        rates = [number(run["frames_per_second"][side]) for side in ("alone", "together")]
        rounds = between(run["of_each_round"])
        rows.append([f"`{sizes}`", *rates, f"{run['times_as_fast']:.3g}", rounds])
    return ["networks", "one run", "eight members", "times as fast", "by round"], rows


def evolution(data: dict[str, Any]) -> Table:
    """Return returns of evolved populations beside those without evolution."""
    rows = []
    for member in ("best", "median"):
        found = data["evolution"][member]
        difference = found["difference"]
        returns = [spread(found[side]) for side in ("evolved", "random search")]
        shown = plus_minus(difference["mean"], difference["half_width"])
        rows.append([f"{member} member", *returns, shown, yes(difference["above_0"])])
    return ["", "evolved", "random search", "difference", "above 0"], rows


def duel(data: dict[str, Any]) -> Table:
    """Return the games won against scripted policies, of self-play and of a league with the turret."""
    rows = []
    for opponent, ways in data["against"].items():
        games = [f"{way['win_rate']:.1%}, {way['draw']:.1%}" for way in ways.values()]
        rows.append(["self-play", opponent, *games])
    for opponent, ways in data["in a league with the turret"]["against"].items():
        games = [f"{way['won'] / 512:.1%}, {way['drawn'] / 512:.1%}" for way in ways.values()]
        rows.append(["with the turret in a league", opponent, *games])
    return ["trained by", "against", "likely", "sampled"], rows


def league(data: dict[str, Any]) -> Table:
    """Return the shares of the points that members of two leagues take."""
    leagues = {f"{name} ({len(data[name]['of_each_seed'])} populations)": data[name]["found"] for name in LEAGUES}
    figures = dict.fromkeys(figure for found in leagues.values() for figure in found)
    rows = []
    for figure in figures:
        shares = [found.get(figure) for found in leagues.values()]
        rows.append([figure, *(plus_minus(each["mean"], each["half_width"]) if each else "" for each in shares)])
    return ["", *leagues], rows


def families(data: dict[str, Any]) -> Table:
    """Return the shift of a trait, the correlations of fitness and the concentration of wealth."""
    found = data["families"]
    shift, gini = (found[name]["difference"] for name in ("shift", "gini"))
    rows = [["shift of neuroticism beyond a neutral gene's", plus_minus(shift["mean"], shift["half_width"])]]
    for name in ("families", "nearly all have children"):
        r = data[name]["heritability"]
        fitness = f"{r['r']:.2f} ({r['low']:.2f} to {r['high']:.2f}), {r['pairs']} children"
        rows.append([f"correlation of children's fitness with their parents', {name}", fitness])
    rows.append(["Gini coefficient of money, inherited beside not", plus_minus(gini["mean"], gini["half_width"])])
    return ["figure", "found"], rows


def personality(data: dict[str, Any]) -> Table:
    """Return how shares of actions change with a trait, and the concentration of wealth in the last generation."""
    found = data["personality"]
    trait = found["trait"].rpartition(".")[2]
    actions = [plus_minus(each["mean"], each["half_width"]) for each in found["actions"].values() if any(each["slope"])]
    rows = [[f"change of each action's share of steps, {trait} from 0 to 1", ", ".join(actions)]]
    for name, label in (("without", "nothing inherited"), ("with", "half inherited")):
        last = [seed[-1] for seed in found["wealth"][name]["gini"]]
        rows.append([f"Gini coefficient of money in the last generation, {label}", plus_minus(*interval(last))])
    return ["figure", "found"], rows


TITLE = "Figures of populations and games"
SECTIONS = (
    Section(
        "Populations: speed",
        ("population.json",),
        population_speed,
        "frames per second of one run and, summed, of eight members in one program.",
    ),
    Section(
        "Populations: evolution",
        ("population.json",),
        evolution,
        "returns beside the same populations without evolution.",
    ),
    Section(
        "The duel", ("duel.json",), duel, "fraction of 512 games won, and drawn: most likely actions, sampled ones."
    ),
    Section("The league", ("league.json",), league, "shares of the points, means over populations."),
    Section("Families", ("families.json",), families, "traits and fitness over populations."),
    Section(
        "Personality",
        ("personality.json",),
        personality,
        "what members do by their trait, and what they own; five seeds, a short training.",
    ),
)
