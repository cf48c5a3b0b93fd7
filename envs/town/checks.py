"""Checks that the rules of a town are possible, with one error sentence each."""

from __future__ import annotations

import re
from collections.abc import Iterable

from envs.base.arguments import check_least
from envs.town.rules import HOURS, Affordance, Cue, Reward, Rules

CONDITION = re.compile(r"(\w+) (<|>) (\d*\.?\d+)")
LARGEST_SIDE = 256
"""Largest side of a map, because a stream of random numbers has this many values."""
MOST_AGENTS = 1024
"""Largest population, because a wide stream of random numbers has four values for each agent."""
MOST_CUES = 24
"""Largest number of cues, because agents' cues are compared as integers in float32, exact up to 24 bits."""


def check_rules(rules: Rules) -> None:
    """Raise ValueError that names the first impossible rule."""
    where = f"town {rules.name}"
    _check_numbers(rules, where)
    if rules.population > MOST_AGENTS:
        raise ValueError(f"{where}: {rules.population} agents: at most {MOST_AGENTS} live in one town.")
    if len(rules.cues) > MOST_CUES:
        raise ValueError(f"{where}: {len(rules.cues)} cues: at most {MOST_CUES} fit (envs/town/observation.py).")
    if rules.num_agents % rules.family_size:
        raise ValueError(
            f"{where}: {rules.num_agents} agents do not make families of {rules.family_size}: use a multiple."
        )
    if rules.symbols and rules.family_size < 2:
        raise ValueError(f"{where}: a family channel needs family_size of at least 2.")
    _check_meters(rules, where)
    _known("affordance", rules.deployed, rules.affordances, where)
    _known("action", rules.enabled, rules.actions, where)
    for kind, affordance in rules.affordances.items():
        _check_affordance(affordance, rules, f"{where}, {kind}")
    _check_layout(rules, where)
    for name, cue in rules.cues.items():
        _check_cue(cue, rules, f"{where}, cue {name}")
    if rules.num_residents:
        _check_residents(rules, where)


def _check_numbers(rules: Rules, where: str) -> None:
    sizes = ("width", "height", "max_steps", "num_agents", "max_cues", "family_size", "sight")
    check_least(rules, f"{where}: ", 1, *sizes)
    if max(rules.width, rules.height) > LARGEST_SIDE:
        raise ValueError(f"{where}: the map is {rules.width} x {rules.height}: at most {LARGEST_SIDE} each way.")
    if rules.view is not None and rules.view < 1:
        raise ValueError(f"{where}: view is {rules.view}: give at least 1 cell, or null for the whole map.")
    if rules.moves_every is not None and (rules.moves_every < 1 or not rules.random_layout):
        raise ValueError(
            f"{where}: moves_every is {rules.moves_every}: give at least 1 step, and places without positions."
        )
    if rules.trades_every is not None and rules.trades_every < 1:
        raise ValueError(f"{where}: trades_every is {rules.trades_every}: give at least 1 step, or null for never.")
    for name in ("depletion", "symbols", "visible_agents", "num_residents"):
        if getattr(rules, name) < 0:
            raise ValueError(f"{where}: {name} is {getattr(rules, name)}: it must not be negative.")


def _check_meters(rules: Rules, where: str) -> None:
    for name, meter in rules.meters.items():
        if not 0 <= meter.initial <= 1:
            raise ValueError(f"{where}: meter {name} begins at {meter.initial}: give a number between 0 and 1.")
        if min(meter.depletion, meter.move, meter.interact) < 0:
            raise ValueError(f"{where}: a rate of meter {name} is negative: meters run down, give 0 or more.")
    if not any(meter.fatal for meter in rules.meters.values()):
        raise ValueError(f"{where}: no meter is fatal: mark at least one.")
    laws = [(law.source, law.target) for law in rules.modulations]
    laws += [(cascade.source, cascade.target) for cascade in rules.cascades]
    for pair in laws:
        _known("meter", pair, rules.meters, where)
    for cascade in rules.cascades:
        if cascade.threshold <= 0:
            raise ValueError(f"{where}: the cascade {cascade.source} -> {cascade.target} needs a positive threshold.")
    for name, effects in rules.actions.items():
        _known("meter", effects, rules.meters, f"{where}, action {name}")
    _check_reward(rules.reward, rules, where)


def _check_reward(reward: Reward, rules: Rules, where: str) -> None:
    named = rules.needs if reward.meters == "needs" else reward.meters
    _known("meter", (*named, *reward.weights), rules.meters, f"{where}, reward")
    if reward.combine != "none" and not named:
        raise ValueError(f"{where}: the reward combines no meters: name some, or use a town that serves a need.")
    _known("key", reward.low, ("threshold", "penalty"), f"{where}, reward.low")
    if len(reward.low) == 1:
        raise ValueError(f"{where}: reward.low needs both threshold and penalty.")
    _known("key", reward.terminal, ("lifespan", "meters", "money", "early_death"), f"{where}, reward.terminal")
    if any(period < 1 for period in reward.milestones):
        raise ValueError(f"{where}: reward.milestones come every {min(reward.milestones)} steps: use 1 or more.")


def _check_affordance(affordance: Affordance, rules: Rules, where: str) -> None:
    _known("meter", (*affordance.tick, *affordance.completion), rules.meters, where)
    hours = affordance.hours
    if len(hours) != 2 or not 0 <= hours[0] < hours[1] <= 28:
        raise ValueError(f"{where}: open from and to {hours}: give two hours between 0 and 28, the first one earlier.")
    if affordance.capacity is not None and affordance.capacity < 0:
        raise ValueError(f"{where}: capacity is {affordance.capacity}: give 0 or more, or null for any number.")
    if affordance.others_required < 0:
        raise ValueError(f"{where}: others_required is {affordance.others_required}: give 0 or more agents.")
    if affordance.working is not None and not (
        0 <= affordance.working <= affordance.count and affordance.positions is None
    ):
        raise ValueError(
            f"{where}: working is {affordance.working} of {affordance.count} places: give no more than there are, and "
            "no positions, or everybody knows which."
        )
    check_least(affordance, f"{where}: ", 1, "duration", "count")
    if min(affordance.price, affordance.tick_price) < 0:
        raise ValueError(f"{where}: a price is negative: give 0 or more.")
    if affordance.positions is not None and len(affordance.positions) != affordance.count:
        raise ValueError(
            f"{where}: {len(affordance.positions)} positions for {affordance.count} places: give one each."
        )


def _check_layout(rules: Rules, where: str) -> None:
    cells = rules.width * rules.height
    places = sum(rules.affordances[kind].count for kind in rules.deployed)
    if rules.population > cells:
        raise ValueError(f"{where}: {rules.population} agents on {cells} cells: use a larger map or fewer agents.")
    fixed = [tuple(cell) for kind in rules.deployed for cell in rules.affordances[kind].positions or []]
    if not fixed:
        if min(rules.width, rules.height) < 2:
            raise ValueError(
                f"{where}: the map is {rules.width} x {rules.height}: places at random need at least 2 cells each way; "
                "give them positions."
            )
        if places + rules.population > cells:
            raise ValueError(
                f"{where}: {places} places and {rules.population} agents do not fit on {cells} cells: use a larger "
                "map, fewer affordances or fewer agents."
            )
        return
    if len(fixed) < places:
        raise ValueError(f"{where}: some affordances have positions and some have none: give all or none.")
    for cell in fixed:
        if fixed.count(cell) > 1:
            raise ValueError(f"{where}: two places overlap at {list(cell)}: give each its own cell.")
        if not (0 <= cell[0] < rules.width and 0 <= cell[1] < rules.height):
            raise ValueError(f"{where}: a place at {list(cell)} is off the {rules.width} x {rules.height} map.")


def _check_residents(rules: Rules, where: str) -> None:
    if not rules.drawn:
        raise ValueError(f"{where}: no character is in the cast {rules.cast!r} for its residents: give it characters.")
    if "mood" not in rules.meters:
        raise ValueError(f"{where}: residents live by their mood: give the town a meter named mood.")
    if rules.family_size > 1:
        raise ValueError(f"{where}: residents belong to no family: use family_size 1, or no residents.")
    for name, character in rules.characters.items():
        place, hours = f"{where}, character {name}", character.hours
        kinds = [kind for kind in (character.happy, character.sad, character.teaches) if kind is not None]
        _known("affordance", (*kinds, *character.errands), rules.deployed, place)
        if len(hours) != 2 or not 0 <= hours[0] <= hours[1] <= HOURS:
            raise ValueError(
                f"{place}: an appointment at {hours}: give two hours between 0 and 24, the first one earlier."
            )
        if character.speed < 1:
            raise ValueError(f"{place}: speed is {character.speed}: give at least 1 cell per step.")


def _check_cue(cue: Cue, rules: Rules, where: str) -> None:
    for text in (*cue.any, *cue.all):
        if not CONDITION.fullmatch(str(text)):
            raise ValueError(f"{where}: {text!r} is no condition: write it like 'energy < 0.3'.")
    _known("meter", [meter for meter, _, _ in cue.conditions()], rules.meters, where)
    if (cue.at is not None) + bool(cue.any) + bool(cue.all) != 1:
        raise ValueError(f"{where}: give exactly one of any, all and at.")
    if cue.at is not None:
        _known("affordance", (cue.at,), rules.affordances, where)
    if cue.radius < 0:
        raise ValueError(f"{where}: radius is {cue.radius}: give at least 0 cells.")
    for name in ("reliability", "false_positive"):
        if not 0 <= getattr(cue, name) <= 1:
            raise ValueError(f"{where}: {name} is {getattr(cue, name)}: give a chance between 0 and 1.")


def _known(what: str, names: Iterable[str], known: Iterable[str], where: str) -> None:
    for name in names:
        if name not in known:
            raise ValueError(f"{where}: {what} {name!r} is unknown: use {', '.join(known) or 'none here'}.")
