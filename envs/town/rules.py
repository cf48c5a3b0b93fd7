"""Parameters of a town, with their units, as frozen dataclasses; the values are YAML (levels.py reads them).

Meters and money lie in [0, 1] (money 1.0 is $100), lengths are cells, times are steps; one step is one hour of 24.

The rules follow the public project Townlet (tachyon-beep/hamlet), with its defects fixed: every world has its own
layout and clock, dead agents neither act nor age, contested places are assigned at random and not by agent index, the
fog window shows the kinds of places, other agents and walls, and curricula use completed lives.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from torch import Tensor

ACTIONS = ("up", "down", "left", "right", "interact", "wait")
"""Actions of every town, moves first (up is y - 1); the content's own actions follow."""
UP, DOWN, LEFT, RIGHT, INTERACT, WAIT = range(len(ACTIONS))
HOURS = 24
SERVED = 0.1
"""Least gain per visit by which an affordance counts as serving a need."""


@dataclass(frozen=True)
class Meter:
    """One internal variable of an agent, such as energy."""

    initial: float
    depletion: float
    """Loss per step, times the level's ``depletion``."""
    move: float = 0.0
    """Additional loss per move."""
    interact: float = 0.0
    """Additional loss per interaction, successful or not."""
    fatal: bool = False
    """True if the agent dies at 0."""
    need: bool = True
    """True if the meter counts as a need of the agent (money does not)."""


@dataclass(frozen=True)
class Modulation:
    """Drain of a meter in each step: ``target -= rate * (least + range * (1 - source))``."""

    source: str
    target: str
    rate: float
    least: float
    range: float


@dataclass(frozen=True)
class Cascade:
    """Drain of a meter in each step with ``source`` below the threshold:
    ``target -= strength * (threshold - source) / threshold``.
    """

    source: str
    target: str
    strength: float
    threshold: float = 0.3


@dataclass(frozen=True)
class Affordance:
    """Kind of place that can be used by an agent standing on it."""

    duration: int
    """Number of steps of a whole visit."""
    hours: list[int] = field(default_factory=lambda: [0, 24])
    """Opening and closing hour; up to 28, which is 4 in the morning."""
    price: float = 0.0
    """Price of a whole visit in one step (levels without ``multi_tick``)."""
    tick_price: float = 0.0
    """Price of each step of a visit (levels with ``multi_tick``)."""
    tick: dict[str, float] = field(default_factory=dict)
    """Change of meters by each step of a visit."""
    completion: dict[str, float] = field(default_factory=dict)
    """Additional change of meters by the last step."""
    capacity: int | None = None
    """Number of visitors per step and place; None for any number."""
    count: int = 1
    """Number of places of this kind."""
    positions: list[list[int]] | None = None
    """Cells (x, y) of the places; None places them at random in every episode."""
    others_required: int = 0
    """Number of other agents that must stand there for a visit to be possible."""
    working: int | None = None
    """Number of places of this kind that work; the others, which look the same, refuse all agents. None for all."""


@dataclass(frozen=True)
class Cue:
    """Visible cue to an agent's state."""

    any: list[str] = field(default_factory=list)
    """Conditions of which one must hold for the cue to be shown, such as ``energy < 0.3``."""
    all: list[str] = field(default_factory=list)
    """Conditions that must all hold for the cue to be shown."""
    at: str | None = None
    """Kind of place at which the cue is shown."""
    priority: int = 1
    radius: int = 5
    """Largest distance [cells] from which the cue is seen (Manhattan)."""
    family_only: bool = False
    reliability: float = 1.0
    """Probability that it is shown when it holds."""
    false_positive: float = 0.0
    """Probability that it is shown when it does not hold."""

    def conditions(self) -> list[tuple[str, str, float]]:
        """Return (meter, comparison, value) of each condition."""
        parts = [text.split() for text in (*self.any, *self.all)]
        return [(meter, comparison, float(value)) for meter, comparison, value in parts]


@dataclass(frozen=True)
class Character:
    """Hidden behavior of a resident: its appointment of the day, its needs and its errands, in this order."""

    hours: list[int] = field(default_factory=lambda: [0, 0])
    """Beginning and end of its appointment [hours]."""
    happy: str | None = None
    """Kind of place of the appointment on days with a happy mood."""
    sad: str | None = None
    """Kind of place of the appointment on other days."""
    early: float = 0.0
    """Threshold below which it serves a need."""
    errands: list[str] = field(default_factory=list)
    """Kinds of places that it visits in turn, repeatedly."""
    speed: int = 1
    """Speed [cells per step]."""
    teaches: str | None = None
    """Kind of place that it teaches: it knows the first of this kind, one that works if any does. While its pupil
    lives, its visible mood shows whether the pupil has just come nearer to the place or is there, and not its own mood.
    The pupil of resident r is the learning agent r modulo A.
    """
    lies: bool = False
    """True if it shows the opposite of what it would show otherwise."""
    held_out: bool = False
    """True if it is held out, for towns with residents unseen in training."""


@dataclass(frozen=True)
class Reward:
    """Reward of an agent for a step: the sum of the parts that are set.

    With ``wellbeing``, the default, one neglected need lowers the whole reward (a geometric mean), so that neither
    resting nor waiting nor early death is optimal.
    """

    base: float = 0.0
    """Reward for every step alive."""
    combine: Literal["product", "geometric_mean", "minimum", "none"] = "none"
    meters: list[str] | Literal["needs"] = field(default_factory=list)
    """Meters that are combined; ``needs`` means those that the town can serve."""
    weights: dict[str, float] = field(default_factory=dict)
    """Weights by meter, for the sum of weight * (meter - center)."""
    center: float = 0.0
    low: dict[str, float] = field(default_factory=dict)
    """Keys ``threshold`` and ``penalty``: ``penalty`` is added for each need below ``threshold``."""
    milestones: dict[int, float] = field(default_factory=dict)
    """Bonus by period: it is added each time this number of steps of life is completed."""
    proximity: float = 0.0
    """Weight of the proximity to the nearest place: 1 on it, falling to 0 at the far corner. A teaching example of a
    reward that rewards parking at a place.
    """
    death: float = 0.0
    retirement: float = 1.0
    """Reward for being alive when time is up."""
    terminal: dict[str, float] = field(default_factory=dict)
    """Reward at the end of life: ``lifespan`` * fraction of the longest life + ``meters`` * mean of all needs +
    ``money`` * sqrt(money); times ``early_death`` if life ended by death.
    """


@dataclass(frozen=True)
class Rules:
    """Rules of one town: its content, and its agents' actions and observations."""

    name: str
    lesson: str
    width: int
    height: int
    max_steps: int
    """Number of steps after which the survivors retire."""
    meters: dict[str, Meter]
    modulations: list[Modulation]
    cascades: list[Cascade]
    affordances: dict[str, Affordance]
    """All kinds by name; those that are not ``deployed`` keep their position in the observation."""
    deployed: list[str]
    actions: dict[str, dict[str, float]]
    """Changes of meters by the content's own actions, by name."""
    enabled: list[str]
    """Own actions that agents may take; the others are masked."""
    cues: dict[str, Cue]
    reward: Reward
    depletion: float = 1.0
    """Multiplier of the meters' depletion only."""
    view: int | None = None
    """Fog of war: number of cells that an agent sees in each direction; None for the whole map."""
    moves_every: int | None = None
    """Number of steps after which all places move to new cells, repeatedly; None keeps them for the whole episode."""
    trades_every: int | None = None
    """Mean number of steps between random moments at which the places of each kind trade their cells, so that others of
    those that look the same work; None for never."""
    clock: bool = False
    """True if places are open only in their hours."""
    multi_tick: bool = False
    """True if visits take their duration, step by step."""
    num_agents: int = 1
    visible_agents: int = 5
    """Number of nearest other agents that an agent sees."""
    sight: int = 5
    """Largest distance [cells] at which other agents are seen (Manhattan)."""
    max_cues: int = 3
    traits: bool = False
    """True if agents observe their character (four numbers drawn at birth)."""
    family_size: int = 1
    symbols: int = 0
    """Size of the family channel's alphabet; 0 for no channel."""
    num_residents: int = 0
    """Number of agents that are not trained, each with a character that is drawn in every episode."""
    characters: dict[str, Character] = field(default_factory=dict)
    """Characters of residents by name."""
    cast: Literal["train", "held_out", "all"] = "train"
    """Characters that are drawn: those that are not held out, those that are, or all."""

    # --- derived from the above, computed once (compiled code must not) -------------------------------------------

    meter_names: tuple[str, ...] = field(init=False)
    """Names of the meters in the order of the state's rows."""
    kinds: tuple[str, ...] = field(init=False)
    """Kinds of affordance in the order of the observation."""
    action_names: tuple[str, ...] = field(init=False)
    """Names of the actions in the order of their indices."""
    raised: tuple[str, ...] = field(init=False)
    """Meters that a deployed affordance can raise."""
    needs: tuple[str, ...] = field(init=False)
    """Meters that count as needs and that a deployed affordance can raise."""
    population: int = field(init=False)
    """Number of learning agents and residents."""
    drawn: tuple[int, ...] = field(init=False)
    """Indices of the characters that residents may have."""
    places_per_kind: int = field(init=False)
    """Number of slots that each kind has in the layout."""
    num_slots: int = field(init=False)
    """Number of slots of the layout; slot // places_per_kind is the kind."""
    num_places: int = field(init=False)
    """Number of places in the whole town."""
    contested: bool = field(init=False)
    """True if some place has fewer seats than there are agents."""
    random_layout: bool = field(init=False)
    """True if places are at random cells in every episode."""
    lookalikes: bool = field(init=False)
    """True if some places do not work, which no agent observes."""
    selective: bool = field(init=False)
    """True if some place refuses visitors without other agents there, or all visitors."""
    teaching: bool = field(init=False)
    """True if a resident may be one that teaches."""

    def __post_init__(self) -> None:
        places = [self.affordances[kind] for kind in self.deployed if kind in self.affordances]
        most = max([place.count for place in places], default=1)
        raised = tuple(name for name in self.meters if any(visit(place, name) >= SERVED for place in places))
        population = self.num_agents + self.num_residents
        lookalikes = any(place.working is not None for place in places)
        characters = list(self.characters.values())
        drawn = tuple(
            index
            for index, character in enumerate(characters)
            if self.cast in ("all", "held_out" if character.held_out else "train")
        )
        derived = {
            "meter_names": tuple(self.meters),
            "kinds": tuple(self.affordances),
            "action_names": (*ACTIONS, *self.actions),
            "raised": raised,
            "needs": tuple(name for name in raised if self.meters[name].need),
            "population": population,
            "drawn": drawn,
            "places_per_kind": most,
            "num_slots": len(self.affordances) * most,
            "num_places": sum(place.count for place in places),
            "contested": any(place.capacity is not None and place.capacity < population for place in places),
            "random_layout": all(place.positions is None for place in places),
            "lookalikes": lookalikes,
            "selective": lookalikes or any(place.others_required > 0 for place in places),
            "teaching": self.num_residents > 0 and any(characters[index].teaches is not None for index in drawn),
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)


class Settings(NamedTuple):
    """Settings that a curriculum may change per world, from the next episode on, [N] unless stated."""

    depletion: Tensor
    width: Tensor
    height: Tensor
    initial: Tensor
    """Initial meters, [M, N]."""
    deployed: Tensor
    """Mask of the kinds that exist, 1 or 0, float [K, N]."""
    people: Any
    """Given traits and money of new agents (people.People); empty in the record of a running episode."""


def visit(affordance: Affordance, meter: str) -> float:
    """Total change of a meter by a whole visit."""
    return affordance.duration * affordance.tick.get(meter, 0.0) + affordance.completion.get(meter, 0.0)
