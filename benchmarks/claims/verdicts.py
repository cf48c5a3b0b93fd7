"""Verdicts on claims, from the figures of all seeds: every check reports its criterion and the figures."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

from benchmarks.claims.measures import AFTERWARDS, ELSEWHERE, WITHOUT
from torchrl_agent.core.tables import interval

Figures = dict[str, dict[str, list[float]]]
"""Figures by variant and measure: one number per seed."""
Check = dict[str, Any]
END = 0.9
"""Fraction of the final return that counts as reaching it."""


def judge(name: str, figures: Figures) -> list[Check]:
    """Return the checks of a claim (a name of ``claims.yaml``). A claim without a judge of its own has two variants,
    with a module or a partner and without, and states that the first has the higher return.
    """
    return JUDGES.get(name, _pays)(figures)


def above(what: str, values: Sequence[float], bound: float) -> Check:
    """Check that the mean over seeds is at least ``bound``."""
    return _check(f"{what} at least {bound:g}", values, fmean(values) >= bound)


def below(what: str, values: Sequence[float], bound: float) -> Check:
    """Check that the mean over seeds is below ``bound``."""
    return _check(f"{what} below {bound:g}", values, fmean(values) < bound)


def better(what: str, values: Sequence[float], others: Sequence[float], share: float = 1.0) -> Check:
    """Check that the mean over seeds is at least the fraction ``share`` of the others' mean. The finding gives both
    with intervals, and "within noise" if the 95 % interval of the surplus over that fraction, by seed, contains 0.
    """
    beyond = [value - share * other for value, other in zip(values, others, strict=True)]
    mean, half = interval(beyond)
    noise = ", within noise" if abs(mean) <= half < math.inf else ""
    check = _check(what, values, fmean(values) >= share * fmean(others))
    return {**check, "found": f"{check['found']} against {_text(others)}{noise}"}


def clearly_better(what: str, values: Sequence[float], others: Sequence[float]) -> Check:
    """Check that every seed is better than every seed of the others."""
    known = all(map(math.isfinite, [*values, *others]))
    check = _check(f"{what}, every seed", values, known and min(values) > max(others))
    return {**check, "found": f"{check['found']} against {_text(others)}"}


def raises(what: str, values: Sequence[float], others: Sequence[float], least: float = 0.1) -> Check:
    """Check that the mean is at least ``least`` above the others', relative to the size of theirs, and that the 95 %
    interval of the differences, by seed, lies above 0. Relative to others with a mean of 0 the ratio is undefined.
    """
    differences = [value - other for value, other in zip(values, others, strict=True)]
    mean, half = interval(differences)
    size = abs(fmean(others))
    share = mean / size if size else math.nan
    check = _check(f"{what} at least {least:.0%} higher", values, share >= least and mean - half > 0)
    paired = f"{share:+.1%}, difference by seed {_text(differences)}"
    return {**check, "found": f"{check['found']} against {_text(others)}: {paired}"}


def twice_as_fast(what: str, values: Sequence[float], others: Sequence[float]) -> Check:
    """Check that frames are at most half of the others': the 95 % interval of theirs minus twice these, by seed, lies
    above 0.
    """
    left = [other - 2 * value for value, other in zip(values, others, strict=True)]
    mean, half = interval(left)
    check = _check(f"{what} at most half", values, mean - half > 0)
    return {**check, "found": f"{check['found']} against {_text(others)}"}


def _check(what: str, values: Sequence[float], holds: bool) -> Check:
    return {"check": what, "found": _text(values), "values": list(values), "holds": bool(holds)}


def _text(values: Sequence[float]) -> str:
    mean, half = interval(values)
    return f"{mean:.4g}" if math.isinf(half) else f"{mean:.4g} +- {half:.2g}"


def _memory(figures: Figures) -> list[Check]:
    full, fog, blank = (figures[name] for name in ("full sight, memory", "fog, memory", "fog, no memory"))
    returns = "return_mean"
    return [
        better("return in fog with memory at least 95 % of full sight's", fog[returns], full[returns], 0.95),
        clearly_better("return in fog with memory above that without", fog[returns], blank[returns]),
        clearly_better(
            "the belief tells where the bed is, beyond what is seen", fog["belief_r2"], fog["observation_r2"]
        ),
    ]


def _leak(figures: Figures) -> list[Check]:
    checks = []
    for memory, values in figures.items():
        checks.append(above(f"{memory}: numbers of the belief changed before the reset", values["changed_before"], 1))
        checks.append(below(f"{memory}: numbers changed after it", values["changed_after"], 1))
        checks.append(above(f"{memory}: in play, changed in worlds that go on", values["changed_going_on"], 1))
        checks.append(below(f"{memory}: in play, changed in worlds that begin anew", values["changed_begun"], 1))
    return checks


def _physics(figures: Figures) -> list[Check]:
    (found,) = figures.values()
    checks = []
    for ahead in (1, 5, 15):
        error, still = (found.get(f"state_error_{ahead}{name}", [math.nan]) for name in ("", "_of_no_change"))
        worse = [value / other for value, other in zip(error, still, strict=True)]
        checks.append(below(f"error after {ahead} steps as a share of 'nothing changes'", worse, 1))
        checks.append(below(f"error after {ahead} steps as a share of the mean's", error, 1))
    checks.append(above("changes of the own state within 0.02", found["changes_within_tolerance"], 0.8))
    checks.append(above("rewards within 0.1", found["rewards_within_tolerance"], 0.8))
    checks.append(above("AUROC of the end", found["end_auroc"], 0.8))
    least, most = (found[f"error_by_confidence_quartile_{part}"] for part in (1, 4))
    checks.append(clearly_better("least sure futures err more than the surest", least, most))
    return checks


def _minds(figures: Figures) -> list[Check]:
    (found,) = figures.values()
    goal, action = found["goal_accuracy"], found["action_accuracy"]
    return [
        above("goal accuracy", goal, 0.6),
        clearly_better(
            "goal accuracy above the most frequent goal's", goal, found["goal_accuracy_of_the_most_frequent"]
        ),
        clearly_better("next action above the most frequent's", action, found["action_accuracy_of_the_most_frequent"]),
        below("energy error", found["energy_error"], 0.15),
        below("health error", found["health_error"], 0.15),
    ]


def _contested(figures: Figures) -> list[Check]:
    with_social, without = figures["with social model"], figures["without social model"]
    taken = "alternative_when_taken"
    return [
        _equal_size(with_social, without),
        raises("return with social model against without:", with_social["return_mean"], without["return_mean"]),
        above("visits when the nearest place was taken", with_social["visits_when_taken"], 1),
        raises("chose the alternative when the nearest was taken", with_social[taken], without[taken]),
    ]


def _pays(figures: Figures) -> list[Check]:
    (mine, with_it), (other, without) = figures.items()
    returns, less = with_it["return_mean"], without["return_mean"]
    checks = [_equal_size(with_it, without), raises(f"return {mine} against {other}:", returns, less)]
    for name in with_it:
        if name.startswith(WITHOUT) and name not in without:
            checks.append(raises(f"return of the trained agent beside {name}:", returns, with_it[name]))
        if name.startswith(ELSEWHERE):
            checks.append(raises(f"{name} {mine} against {other}:", with_it[name], without[name]))
    return checks


def _recovery(figures: Figures) -> list[Check]:
    planned, flat = figures["with manager"], figures["flat"]
    return [
        _equal_size(planned, flat),
        above("entropy of goals", planned["goal_entropy"], 0.2),
        above("steps that a goal lives", planned["goal_length"], 2),
        raises("reward after the places moved", planned["reward_after_move"], flat["reward_after_move"]),
        raises("share of the reward that is kept", planned["recovery"], flat["recovery"]),
    ]


def _new_purpose(figures: Figures) -> list[Check]:
    planned, flat = figures["with manager"], figures["flat"]
    mine, theirs = _curves_afterward(planned), _curves_afterward(flat)
    bars = [end - (1 - END) * abs(end) for end in _returns(theirs, -1)]
    return [
        _equal_size(planned, flat),
        twice_as_fast(
            f"frames to {END:.0%} of what the flat one has in the end",
            [_frames_to(bar, curve) for bar, curve in zip(bars, mine, strict=True)],
            [_frames_to(bar, curve) for bar, curve in zip(bars, theirs, strict=True)],
        ),
        raises("return at once, after the purpose changed,", _returns(mine, 0), _returns(theirs, 0)),
        raises("return in the end", _returns(mine, -1), _returns(theirs, -1)),
    ]


def _curves_afterward(figures: dict[str, list[float]]) -> list[list[tuple[int, float]]]:
    """Return, by seed, pairs of frames and return in the further training."""
    points = {int(name.removeprefix(AFTERWARDS)): name for name in figures if name.startswith(AFTERWARDS)}
    seeds = range(len(figures[points[0]]))
    return [[(frames, figures[points[frames]][seed]) for frames in sorted(points)] for seed in seeds]


def _returns(curves: list[list[tuple[int, float]]], place: int) -> list[float]:
    return [curve[place][1] for curve in curves]


def _frames_to(bar: float, curve: list[tuple[int, float]]) -> float:
    return next((float(frames) for frames, value in curve if value >= bar), math.inf)


def _false_belief(figures: Figures) -> list[Check]:
    mine, other = figures.values()
    knowing = mine["expected_if_it_knew"]
    return [
        above("cases of another who acts by a false belief", mine["cases"], 500),
        raises("accuracy of what they do next", mine["accuracy"], other["accuracy"]),
        raises("probability of that, beside what they would do if they knew,", mine["expected"], knowing),
    ]


def _whole(figures: Figures) -> list[Check]:
    return [
        better(f"{later} at least {earlier}", figures[later]["return_mean"], figures[earlier]["return_mean"])
        for earlier, later in itertools.pairwise(figures)
    ]


def _open_mind(figures: Figures) -> list[Check]:
    (found,) = figures.values()
    return [above(f"{part} is there", values, 1) for part, values in found.items()]


def _equal_size(mine: dict[str, list[float]], other: dict[str, list[float]]) -> Check:
    ratio = [a / b for a, b in zip(mine["parameters"], other["parameters"], strict=True)]
    return _check("parameters as a share of the other's, within 5 %", ratio, all(abs(r - 1) <= 0.05 for r in ratio))


JUDGES: dict[str, Callable[[Figures], list[Check]]] = {
    "memory": _memory,
    "leak": _leak,
    "physics": _physics,
    "minds": _minds,
    "contested": _contested,
    "false belief": _false_belief,
    "recovery": _recovery,
    "new purpose": _new_purpose,
    "whole": _whole,
    "open mind": _open_mind,
}
