"""Parameters of the Arena, with their units. Lengths are pixels, times are steps, angles are radians unless stated
otherwise.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor

from envs.base.arguments import check_least
from envs.toolkit.names import did_you_mean


class Thrusting(NamedTuple):
    """Indices of the actions of a ship that turns, and thrusts along its heading (style 1)."""

    idle: int
    thrust: int
    left: int
    right: int
    shoot: int


class Walking(NamedTuple):
    """Indices of the actions of a ship that moves along the axes, and faces its direction of motion (style 2)."""

    idle: int
    up: int
    down: int
    left: int
    right: int
    shoot: int


THRUSTING, WALKING = Thrusting(*range(5)), Walking(*range(6))
ACTIONS: dict[int, Thrusting | Walking] = {1: THRUSTING, 2: WALKING}
"""Actions by control style."""


@dataclass(frozen=True)
class Phase:
    """One wave of spawners; the waves must be cleared in turn."""

    num_spawners: int
    enemy_speed: float
    """Multiplier of the enemies' speed."""
    spawn_cooldown: float
    """Multiplier of the spawners' cooldown."""


CLASSIC_PHASES = (Phase(1, 1.0, 1.0), Phase(2, 0.9, 0.9), Phase(3, 0.8, 0.85), Phase(4, 0.7, 0.8), Phase(5, 0.75, 0.75))


@dataclass(frozen=True)
class Rules:
    """The ``classic`` game by default; ``dataclasses.replace`` makes variants."""

    width: float = 1600.0
    height: float = 1280.0
    max_steps: int = 3000
    """Length at which an episode is truncated."""

    ship_radius: float = 15.0
    ship_health: float = 150.0
    ship_cooldown: int = 10
    """Number of steps between two shots of the ship."""
    ship_thrust: float = 0.3
    """Style 1: speed gained by a step of thrust."""
    ship_turn: float = math.radians(5.0)
    """Style 1: angle of a step of turning."""
    ship_friction: float = 0.97
    """Style 1: fraction of the velocity kept each step."""
    ship_max_speed: float = 6.0
    """Style 1: speed limit, pixels per step; also the scale of the observed velocity in both styles."""
    ship_walk_speed: float = 5.0
    """Style 2: speed of a moving ship, pixels per step."""

    max_enemies: int = 8
    enemy_radius: float = 12.0
    enemy_health: float = 10.0
    enemy_speed: float = 2.0
    enemy_contact_damage: float = 10.0
    enemy_cooldown: int = 60
    enemy_shoot_probability: float = 0.3
    """Probability per step of a shot once the cooldown is over."""

    spawner_radius: float = 25.0
    spawner_health: float = 100.0
    spawner_cooldown: int = 120
    spawner_margin: float = 200.0
    """Distance of the spawners' sites from the walls."""
    spawner_jitter: float = 30.0
    """Largest random displacement of the sites in x and y."""
    spawn_tries: int = 5
    spawn_distance: tuple[float, float] = (5.0, 50.0)
    """Range of the gap between the rims of a spawner and a new enemy."""
    spawn_clearance: float = 150.0
    """Distance that a new enemy keeps from living ones, if one of the tries allows."""

    projectile_radius: float = 3.0
    projectile_speed: float = 8.0
    projectile_damage: float = 10.0
    projectile_lifetime: int = 120
    max_enemy_projectiles: int = 32
    """Number of slots for the enemies' projectiles; with more in flight the oldest is lost and counted
    (``shots_dropped``).
    """

    phases: tuple[Phase, ...] = CLASSIC_PHASES
    heal_share: float = 0.5
    """Fraction of the ship's full health regained by destroying a spawner."""

    reward_enemy_hit: float = 2.0
    reward_enemy_destroyed: float = 5.0
    reward_spawner_hit: float = 10.0
    reward_spawner_destroyed: float = 75.0
    reward_quick_spawner: float = 50.0
    """Bonus for a spawner destroyed less than ``quick_steps`` after its phase began."""
    quick_steps: int = 500
    reward_phase_complete: float = 100.0
    reward_hit_taken: float = -2.0
    reward_death: float = -100.0
    reward_survival: float = 0.01
    reward_shot: float = 0.0
    shaping_scale: float = 0.01
    shaping_enemy_weight: float = 0.5
    """Fraction of a destroyed enemy's health that counts as damage dealt in the shaping."""
    shaping_damage_weight: float = 0.8
    shaping_clip: float = 0.2

    nearby: float = 150.0
    """Radius within which enemy projectiles are counted in the classic observation."""
    nearby_full: int = 5
    """Number of nearby projectiles that is observed as 1."""

    sites: tuple[tuple[tuple[float, float], ...], ...] = field(init=False, repr=False)
    """Sites (x, y) of the spawners, per phase."""

    def __post_init__(self) -> None:
        """Check the parameters and compute the spawners' sites."""
        if not self.phases:
            raise ValueError("rules.phases is empty: give at least one phase.")
        sites = self._sites()
        for phase in self.phases:
            if phase.num_spawners not in sites:
                raise ValueError(f"a phase has {phase.num_spawners} spawners: the sites are laid out for 1 to 5.")
        sizes = ("max_steps", "max_enemies", "ship_cooldown", "projectile_lifetime", "max_enemy_projectiles")
        check_least(self, "rules.", 1, *sizes)
        most = (256 // self.max_spawners - 1) // 2  # each spawner draws an angle more than it draws distances
        if not 0 <= self.spawn_tries <= most:
            raise ValueError(f"rules.spawn_tries is {self.spawn_tries}: use 0 to {most}.")
        if self.max_ship_projectiles > 24:
            raise ValueError(
                "rules allow more than 24 shots in flight: raise ship_cooldown or lower projectile_lifetime."
            )
        object.__setattr__(self, "sites", tuple(sites[phase.num_spawners] for phase in self.phases))
        reach = 2 * (self.spawner_radius + self.projectile_radius) + 2 * math.sqrt(2) * self.spawner_jitter
        if any(math.dist(a, b) <= reach for layout in self.sites for a, b in itertools.combinations(layout, 2)):
            raise ValueError(
                "spawner sites are so close that one projectile could touch two: shrink spawner_radius, jitter or "
                "margin."
            )

    @property
    def max_spawners(self) -> int:
        """Number of slots for spawners."""
        return max(phase.num_spawners for phase in self.phases)

    @property
    def max_ship_projectiles(self) -> int:
        """Number of slots for the ship's projectiles: no more can be in flight, because of the cooldown."""
        return math.ceil(self.projectile_lifetime / self.ship_cooldown)

    @property
    def diagonal(self) -> float:
        """Length of the field's diagonal."""
        return math.hypot(self.width, self.height)

    def _sites(self) -> dict[int, tuple[tuple[float, float], ...]]:
        left, right = self.spawner_margin, self.width - self.spawner_margin
        top, bottom = self.spawner_margin, self.height - self.spawner_margin
        center, middle = self.width / 2, self.height / 2
        corners = ((left, top), (right, top), (left, bottom), (right, bottom))
        return {
            1: ((center, top),),
            2: ((left, middle), (right, middle)),
            3: ((center, top), (left, bottom), (right, bottom)),
            4: corners,
            5: (*corners, (center, middle)),
        }


RULES = {"classic": Rules()}
"""Named presets."""


def make_rules(rules: Rules | str | dict[str, float], base: Rules | None = None) -> Rules:
    """Make rules from a preset's name, or from a mapping of numbers that differ from the ``base``, by default the
    classic ones.

    Raises:
        ValueError: a name is unknown, or a value is not a number.
    """
    if isinstance(rules, Rules):
        return rules
    if isinstance(rules, str):
        if rules not in RULES:
            raise ValueError(
                f"rules {rules!r} is unknown{did_you_mean(rules, RULES)}: use one of {', '.join(RULES)}, a mapping of "
                "changes, or a Rules object."
            )
        return RULES[rules]
    numbers = [each.name for each in dataclasses.fields(Rules) if isinstance(each.default, int | float)]
    for name, value in rules.items():
        if name not in numbers:
            raise ValueError(f"rules.{name} is unknown{did_you_mean(name, numbers)}: use {', '.join(numbers)}.")
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"rules.{name} is {value!r}: give a number.")
    return dataclasses.replace(base or RULES["classic"], **rules)  # type: ignore[arg-type]


class Difficulty(NamedTuple):
    """Multipliers that a curriculum may set in each world, float [N] each; all 1 is the full game."""

    spawn_cooldown: Tensor
    max_enemies: Tensor
    spawner_health: Tensor
    enemy_speed: Tensor
    shaping: Tensor
    hit_penalty: Tensor
