"""Every kind of number in a town, with its unit, as frozen dataclasses; the values are YAML (levels.py reads them).

Meters and money lie in [0, 1] (money 1.0 is $100), lengths are cells, times are steps; one step is one hour of 24.

The rules follow the public project Townlet (tachyon-beep/hamlet), with its defects mended: every world has its own
layout and clock, dead agents neither act nor age, places are contested by chance and not by agent number, the fog
window shows the types of what it contains, other agents and walls, and curricula look at completed lives.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from torch import Tensor

ACTIONS = ("up", "down", "left", "right", "interact", "wait")
"""What agents can do in every town, moves first (up is y - 1); the content's own actions follow."""
UP, DOWN, LEFT, RIGHT, INTERACT, WAIT = range(len(ACTIONS))
HOURS = 24
SERVED = 0.1
"""A meter that an affordance raises by at least this much per visit can be lived on."""


@dataclass(frozen=True)
class Meter:
    """One of the quantities an agent lives by."""

    initial: float
    depletion: float
    """Loss per step, times the level's ``depletion``."""
    move: float = 0.0
    """Loss per move, on top."""
    interact: float = 0.0
    """Loss per interaction, successful or not, on top."""
    fatal: bool = False
    """At 0 the agent dies."""
    need: bool = True
    """Counts as a need of the agent (money does not)."""


@dataclass(frozen=True)
class Modulation:
    """Each step ``target -= rate * (least + range * (1 - source))``."""

    source: str
    target: str
    rate: float
    least: float
    range: float


@dataclass(frozen=True)
class Cascade:
    """Each step, below the threshold, ``target -= strength * (threshold - source) / threshold``."""

    source: str
    target: str
    strength: float
    threshold: float = 0.3


@dataclass(frozen=True)
class Affordance:
    """A kind of place that can be used by an agent standing on it."""

    duration: int
    """Steps of a whole visit."""
    hours: list[int] = field(default_factory=lambda: [0, 24])
    """Opens and closes at; up to 28, which is 4 in the morning."""
    price: float = 0.0
    """Of a whole visit in one step (levels without ``multi_tick``)."""
    tick_price: float = 0.0
    """Of each step of a visit (levels with ``multi_tick``)."""
    tick: dict[str, float] = field(default_factory=dict)
    """Change of meters by each step of a visit."""
    completion: dict[str, float] = field(default_factory=dict)
    """Change of meters by the last step, on top."""
    capacity: int | None = None
    """Visitors per step and place; None for any number."""
    count: int = 1
    """Places of this kind."""
    positions: list[list[int]] | None = None
    """Their cells (x, y); None places them at random in every episode."""
    company: int = 0
    """Others that must stand there for a visit to be possible."""
    working: int | None = None
    """Of the places of this kind, so many work and the others, which look the same, refuse everybody; None for all."""


@dataclass(frozen=True)
class Cue:
    """Something about an agent that others can see."""

    any: list[str] = field(default_factory=list)
    """Shown if one of these holds, such as ``energy < 0.3``."""
    all: list[str] = field(default_factory=list)
    """Shown if all of these hold."""
    at: str | None = None
    """Shown while the agent stands at a place of this kind."""
    priority: int = 1
    radius: int = 5
    """Seen from up to this many cells away (Manhattan)."""
    family_only: bool = False
    reliability: float = 1.0
    """Chance that it shows when it holds."""
    false_positive: float = 0.0
    """Chance that it shows when it does not hold."""

    def conditions(self) -> list[tuple[str, str, float]]:
        """(meter, comparison, value) of each condition."""
        parts = [text.split() for text in (*self.any, *self.all)]
        return [(meter, comparison, float(value)) for meter, comparison, value in parts]


@dataclass(frozen=True)
class Character:
    """What a resident lives by, and nobody sees: its appointment of the day, its needs, its errands, in this order."""

    hours: list[int] = field(default_factory=lambda: [0, 0])
    """Begin and end of its appointment."""
    happy: str | None = None
    """Kind of place to which it then goes on days that it is happy."""
    sad: str | None = None
    """The same for other days."""
    early: float = 0.0
    """It sees to a need that is below this."""
    errands: list[str] = field(default_factory=list)
    """Kinds of places that it visits one after the other, again and again."""
    speed: int = 1
    """Cells per step."""
    teaches: str | None = None
    """Kind of place of which it knows the first, one that works if any does. While its pupil lives, its face shows
    whether that one has just come nearer to the place or is there, and not its mood. Resident r has learner r for a
    pupil, of A learners r modulo A.
    """
    lies: bool = False
    """It shows the opposite of what it else would."""
    held_out: bool = False
    """Kept back, for towns with people of a kind that nobody has trained with."""


@dataclass(frozen=True)
class Reward:
    """What a step is worth to an agent; the sum of the parts that are set.

    With ``wellbeing``, the default, one neglected need spoils the whole (a geometric mean), so that neither resting nor
    waiting nor dying early pays.
    """

    base: float = 0.0
    """For every step alive."""
    combine: Literal["product", "geometric_mean", "minimum", "none"] = "none"
    meters: list[str] | Literal["needs"] = field(default_factory=list)
    """Meters that are combined; ``needs`` are those that the town can serve."""
    weights: dict[str, float] = field(default_factory=dict)
    """weight * (meter - center), summed."""
    center: float = 0.0
    low: dict[str, float] = field(default_factory=dict)
    """``penalty`` for each need below ``threshold``."""
    milestones: dict[int, float] = field(default_factory=dict)
    """Extra reward each so many steps of life."""
    proximity: float = 0.0
    """1 on a place, falling to 0 at the far corner. Invites to park and never live: a teaching example."""
    death: float = 0.0
    retirement: float = 1.0
    """For being alive when time is up."""
    terminal: dict[str, float] = field(default_factory=dict)
    """At the end of life: ``lifespan`` * share of the longest life + ``meters`` * mean of all needs + ``money`` *
    sqrt(money); times ``early_death`` if it ended by death.
    """


@dataclass(frozen=True)
class Rules:
    """One town: what it holds and what its agents can do and see."""

    name: str
    lesson: str
    width: int
    height: int
    max_steps: int
    """Steps after which the survivors retire."""
    meters: dict[str, Meter]
    modulations: list[Modulation]
    cascades: list[Cascade]
    affordances: dict[str, Affordance]
    """All kinds; those that are not among ``deployed`` keep their place in the observation."""
    deployed: list[str]
    actions: dict[str, dict[str, float]]
    """The content's own actions, by name: change of meters."""
    enabled: list[str]
    """Those that agents may take; the others are masked."""
    cues: dict[str, Cue]
    reward: Reward
    depletion: float = 1.0
    """Multiplier of the meters' depletion, and of nothing else."""
    view: int | None = None
    """Fog of war: how many cells an agent sees in each direction; None for the whole map."""
    moves_every: int | None = None
    """Each so many steps all places move to new cells; None leaves them for the whole episode."""
    trades_every: int | None = None
    """Each so many steps on average, at moments that chance chooses, the places of each kind trade their cells, so that
    others of those that look the same work; None for never."""
    clock: bool = False
    """Places keep their hours."""
    multi_tick: bool = False
    """Visits take their duration, step by step."""
    num_agents: int = 1
    visible_agents: int = 5
    """The nearest others that an agent sees."""
    sight: int = 5
    """How far away others are seen (Manhattan)."""
    max_cues: int = 3
    traits: bool = False
    """Agents have a character (four numbers drawn at birth) and see it."""
    family_size: int = 1
    symbols: int = 0
    """Size of the family channel's alphabet; 0 for no channel."""
    num_residents: int = 0
    """Others whom nobody trains, each with a character that is drawn in every episode."""
    characters: dict[str, Character] = field(default_factory=dict)
    """Kinds of residents."""
    cast: Literal["train", "held_out", "all"] = "train"
    """Which kinds are drawn: those that are not held out, those that are, or all."""

    # --- what follows from the above, worked out once (compiled code must not) ------------------------------------

    meter_names: tuple[str, ...] = field(init=False)
    """In the order of the state's rows."""
    kinds: tuple[str, ...] = field(init=False)
    """Kinds of affordance in the order of the observation."""
    action_names: tuple[str, ...] = field(init=False)
    """In the order of their numbers."""
    needs: tuple[str, ...] = field(init=False)
    """Meters that count as needs and that a deployed affordance can raise."""
    population: int = field(init=False)
    """Learning agents and residents."""
    drawn: tuple[int, ...] = field(init=False)
    """Numbers of the characters that residents may have."""
    places_per_kind: int = field(init=False)
    """Slots that each kind has in the layout."""
    num_slots: int = field(init=False)
    """Slots of the layout; slot // places_per_kind is the kind."""
    num_places: int = field(init=False)
    """Places in the whole town."""
    contested: bool = field(init=False)
    """Some place has fewer seats than there are agents."""
    random_layout: bool = field(init=False)
    """Places move with every episode."""
    lookalikes: bool = field(init=False)
    """Some places do not work, which nobody sees."""
    selective: bool = field(init=False)
    """Some place refuses visitors without company, or all of them."""
    teaching: bool = field(init=False)
    """Some resident may be one that teaches."""

    def __post_init__(self) -> None:
        places = [self.affordances[kind] for kind in self.deployed if kind in self.affordances]
        most = max([place.count for place in places], default=1)
        raised = {name for name in self.meters for place in places if visit(place, name) >= SERVED}
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
            "needs": tuple(name for name, meter in self.meters.items() if meter.need and name in raised),
            "population": population,
            "drawn": drawn,
            "places_per_kind": most,
            "num_slots": len(self.affordances) * most,
            "num_places": sum(place.count for place in places),
            "contested": any(place.capacity is not None and place.capacity < population for place in places),
            "random_layout": all(place.positions is None for place in places),
            "lookalikes": lookalikes,
            "selective": lookalikes or any(place.company > 0 for place in places),
            "teaching": self.num_residents > 0 and any(characters[index].teaches is not None for index in drawn),
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)


class Settings(NamedTuple):
    """What a curriculum may change per world, from the next episode on, [N] or as said."""

    depletion: Tensor
    width: Tensor
    height: Tensor
    initial: Tensor
    """Initial meters, [M, N]."""
    deployed: Tensor
    """1 for kinds that are there, float [K, N]."""
    people: Any
    """Who is born (people.People); nobody in the record of a running episode, whose people are there."""


def visit(affordance: Affordance, meter: str) -> float:
    """Change of a meter by a whole visit."""
    return affordance.duration * affordance.tick.get(meter, 0.0) + affordance.completion.get(meter, 0.0)
