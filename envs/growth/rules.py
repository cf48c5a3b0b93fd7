"""Parameters of the growth world: stages, actions and blueprints as tables, and the rules.

Accuracies are fractions in [0, 1], times are steps of the world, sizes are numbers of parameters.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from envs.base.arguments import check_least
from envs.toolkit.names import check_choice, did_you_mean

if TYPE_CHECKING:
    from torch import Tensor

    from envs.toolkit.chance import Chance

STAGES = (
    *("dormant", "germinated", "training", "blending", "holding"),
    *("permanent", "pruned", "embargoed", "resetting"),
)
"""Names of the stages of a slot, in the order of a module's life."""


class Stage:
    """Stages of a slot by name, and groups of them."""

    DORMANT, GERMINATED, TRAINING, BLENDING, HOLDING, PERMANENT, PRUNED, EMBARGOED, RESETTING = range(len(STAGES))
    LIVE = (GERMINATED, TRAINING, BLENDING, HOLDING)
    """Stages of a module that may still be pruned."""
    JOINED = (BLENDING, HOLDING, PERMANENT)
    """Stages of a module that changes its host's features."""
    COOLING = (PRUNED, EMBARGOED, RESETTING)


OPERATIONS = ("wait", "germinate", "retarget", "prune", "make permanent", "advance")
"""Operations, the last head of an action."""


class Operation:
    """Values of the operation's head by name."""

    WAIT, GERMINATE, RETARGET, PRUNE, KEEP, ADVANCE = range(len(OPERATIONS))


HOLD, UP, DOWN = range(3)
"""Modes of a blend: alpha is constant, rises or falls to its target."""
LINEAR, COSINE, SIGMOID = range(3)
"""Curves of a blend."""
ADD, MULTIPLY, GATE = range(3)
"""Operators by which a module's output joins the host's features."""
KINDS = ("add", "scale", "low-rank", "attention")
"""Kinds of blueprints."""


class Blueprint(NamedTuple):
    """Module that a slot can hold."""

    name: str
    rank: int
    """Number of hidden units."""
    taps: bool
    """True if it reads the two neighbors of a position too."""
    kind: str = "add"
    """``add``: a layer of hidden units whose output is added; ``scale``: it multiplies the features; ``low-rank``:
    hidden units without nonlinearity; ``attention``: one head over all positions, with ``rank`` components of query,
    key and value.
    """

    def size(self, width: int) -> int:
        """Return the number of parameters at a slot of ``width`` features; the memory of a slot is that of the largest
        blueprint.
        """
        if self.kind == "attention":
            return 4 * width * self.rank
        if self.kind == "low-rank":
            return 2 * width * self.rank
        return (3 if self.taps else 1) * width * self.rank + self.rank + self.rank * width


BLUEPRINTS = (
    Blueprint("scale4", 4, False, "scale"),
    Blueprint("point4", 4, False),
    Blueprint("point8", 8, False),
    Blueprint("taps2", 2, True),
    Blueprint("taps4", 4, True),
    Blueprint("taps8", 8, True),
    Blueprint("lowrank4", 4, False, "low-rank"),
    Blueprint("attention8", 8, False, "attention"),
)
"""Blueprints that rules can offer."""
MAX_RANK = max(blueprint.rank for blueprint in BLUEPRINTS)
STYLES = (
    ("linear add", LINEAR, ADD),
    ("linear multiply", LINEAR, MULTIPLY),
    ("sigmoid add", SIGMOID, ADD),
    ("gated", LINEAR, GATE),
)
"""Name, curve and operator of each style."""
TEMPOS = (3, 5, 8)
"""Numbers of steps in which a new module is blended in."""
TARGETS = (0.5, 0.7, 1.0)
"""Alpha at which a blend ends."""
SPEEDS = (0, 3, 5, 8)
"""Numbers of steps in which a later change of alpha takes place; 0 is at once."""
CURVES = (
    ("linear", LINEAR, 0.0),
    ("cosine", COSINE, 0.0),
    ("sigmoid 6", SIGMOID, 6.0),
    ("sigmoid 12", SIGMOID, 12.0),
    ("sigmoid 24", SIGMOID, 24.0),
)
"""Name, curve and steepness of a later change of alpha."""
STEEPNESS = 12.0
"""Steepness of the sigmoid of a style."""

HEADS = ("slot", "blueprint", "style", "tempo", "alpha target", "alpha speed", "alpha curve", "operation")
"""Heads of an action, in their order."""


class Head:
    """Heads of an action by name."""

    SLOT, BLUEPRINT, STYLE, TEMPO, TARGET, SPEED, CURVE, OPERATION = range(len(HEADS))


RELEVANT = {
    Operation.WAIT: (),
    Operation.GERMINATE: (Head.SLOT, Head.BLUEPRINT, Head.STYLE, Head.TEMPO, Head.TARGET),
    Operation.RETARGET: (Head.SLOT, Head.STYLE, Head.TARGET, Head.SPEED, Head.CURVE),
    Operation.PRUNE: (Head.SLOT, Head.SPEED, Head.CURVE),
    Operation.KEEP: (Head.SLOT,),
    Operation.ADVANCE: (Head.SLOT,),
}
"""Heads that can matter for each operation, besides the operation's own."""
PLACEHOLDERS = (0, 0, 2, 1, 2, 0, 0)
"""Value of each head but the last where it cannot matter."""

REWARDS = ("net", "contribution", "sparse")
BLENDS = ("residual", "lerp")
POOLINGS = ("max", "mean")
HOSTS = ("pointwise", "mlp", "cnn", "transformer")


class SlottedHost(Protocol):
    """Host that brings its own forward pass (envs/growth/hosts.py)."""

    widths: tuple[int, ...]
    """Number of features at each slot."""

    def draw(self, chance: Chance) -> Any:
        """Draw the weights of fresh hosts."""

    def host_forward(self, host: Any, inputs: Tensor) -> Tensor:
        """Compute the logits [N, 1, B, K] of hosts without modules."""

    def forward(self, weights: Any, inputs: Tensor, mixture: Any, rules: Any) -> Tensor:
        """Compute the logits [N, G, B, K] in each of G configurations."""


@dataclass(frozen=True)
class Rules:
    """Rules of the growth world; ``dataclasses.replace`` makes variants."""

    max_steps: int = 64
    """Length of an episode, at whose end it terminates: the time is observed."""
    slots: int = 3
    """Number of slots of a host, each behind a block of its own."""
    host: str | SlottedHost = "pointwise"
    """``pointwise``: a host sees the positions of a row one by one; ``mlp``: all of them at once; ``cnn`` and
    ``transformer``: modules of envs/growth/hosts.py, of two slots.
    """
    width: int = 16
    """Number of features of the host at each position."""
    blueprints: tuple[str, ...] = tuple(blueprint.name for blueprint in BLUEPRINTS[:6])
    """Modules to choose from, the one that scripted players grow last."""
    updates: int = 4
    """Number of minibatches on which a host is trained in each step."""
    batch_size: int = 32
    """Number of rows of a minibatch, drawn with replacement, so that a task may have fewer."""
    validation_rows: int = 64
    """Number of rows on which all configurations are evaluated after each step, never trained on."""
    learning_rate: float = 0.02
    clip: float = 1.0
    """Largest norm of the host's gradient, and of each module's."""
    pooling: str = "max"
    """Reduction over positions before the classifier: ``max`` or ``mean``."""
    near_taps: bool = False
    """True if every slot reads the nearest neighbors, instead of each slot those at its own distance."""
    blend: str = "residual"
    """``residual``: features + alpha x module; ``lerp``: (1 - alpha) x features + alpha x (detached features + module),
    in which the gradient of the blocks before a slot vanishes as alpha rises to 1.
    """
    noise: tuple[float, float] = (0.1, 0.3)
    """Range of the standard deviation of a world's input noise."""

    min_training: int = 6
    """Number of steps that a module is trained before it may blend."""
    min_age: int = 5
    """Least age at which a module may be pruned."""
    embargo: int = 3
    """Number of steps for which a slot stays empty after a module was pruned, besides two of passing."""
    auto_advance: bool = True
    """True if a module passes on as soon as its gate is open; else the operation ``advance`` does it."""
    strict: bool = False
    """True if gates also ask for improvement and contribution."""

    reward: str = "net"
    """``net``, ``contribution`` or ``sparse`` (envs/growth/scoring.py)."""
    reward_gain: float = 0.1
    """Reward per step for an accuracy one above the twin's."""
    reward_final: float = 2.0
    """Reward at the end for an accuracy one above the twin's."""
    reward_rent: float = 0.02
    """Cost per step of a network e - 1 times as large as the host's beyond the host."""
    reward_operation: float = 0.005
    """Cost of an operation other than waiting."""

    fault_probability: float = 0.0
    """Probability per step with which a host's weights are multiplied by ``fault_scale``, to test the governor."""
    fault_scale: float = 30.0
    governor: bool = True
    """True if damaged hosts are rolled back."""
    snapshot_every: int = 5
    history: int = 10
    """Number of past losses that the governor compares with."""
    reward_rollback: float = -5.0
    """Return of an episode in which the host was rolled back: earlier rewards are forfeited."""

    def __post_init__(self) -> None:
        """Check the parameters."""
        sizes = ("max_steps", "slots", "width", "updates", "batch_size", "validation_rows", "snapshot_every")
        check_least(self, "rules.", 1, *sizes)
        others = ("min_training", "min_age", "embargo", "learning_rate", "clip", "fault_probability")
        check_least(self, "rules.", 0, *others)
        check_least(self, "rules.", 2, "history")
        for name, choices in (("reward", REWARDS), ("blend", BLENDS), ("pooling", POOLINGS)):
            check_choice(getattr(self, name), choices, f"rules.{name}")
        if isinstance(self.host, str):
            check_choice(self.host, HOSTS, "rules.host")
        for blueprint in self.blueprints:
            check_choice(blueprint, [each.name for each in BLUEPRINTS], "a blueprint")
        if not self.blueprints:
            raise ValueError("rules.blueprints is empty: name at least one, such as [taps8].")
        if self.slots > 16:
            raise ValueError(f"rules.slots is {self.slots}: a host has places for at most 16.")
        if self.max_steps < self.lifecycle:
            raise ValueError(
                f"rules.max_steps is {self.max_steps}: a module needs {self.lifecycle} steps from germination to "
                "holding, so give at least as many, or a smaller min_training."
            )
        if not 0 <= self.noise[0] <= self.noise[1]:
            raise ValueError(f"rules.noise is {self.noise}: give a range from 0 on, such as (0.1, 0.3).")

    @property
    def lifecycle(self) -> int:
        """Least number of steps from germination to holding."""
        return self.min_training + min(TEMPOS)

    @property
    def offered(self) -> tuple[Blueprint, ...]:
        """Blueprints by the values of their head."""
        known = {blueprint.name: blueprint for blueprint in BLUEPRINTS}
        return tuple(known[name] for name in self.blueprints)

    @property
    def widths(self) -> tuple[int, ...]:
        """Number of features at each slot, at most ``width``."""
        return (self.width,) * self.slots if isinstance(self.host, str) else self.host.widths

    @property
    def head_values(self) -> tuple[Sequence[Any], ...]:
        """Values of each head of an action, a table whose rows begin with a name where they have several parts."""
        return (range(self.slots), self.blueprints, STYLES, TEMPOS, TARGETS, SPEEDS, CURVES, OPERATIONS)

    @property
    def head_sizes(self) -> tuple[int, ...]:
        """Number of values of each head of an action."""
        return tuple(len(values) for values in self.head_values)


WORDS = {bool: "truth value", int: "whole number", float: "number", str: "word"}
"""Kinds of values in error messages."""


def make_rules(rules: Rules | Mapping[str, Any] | None) -> Rules:
    """Make rules from a mapping of what differs from the defaults.

    Raises:
        ValueError: a name is unknown, or a value is of another type.
    """
    if isinstance(rules, Rules):
        return rules
    defaults = {each.name: each.default for each in dataclasses.fields(Rules)}
    changes = dict(rules or {})
    for name, value in changes.items():
        if name not in defaults:
            raise ValueError(f"rules.{name} is unknown{did_you_mean(name, defaults)}: use {', '.join(defaults)}.")
        if name == "noise":
            changes[name] = _checked_range(value)
        elif name == "blueprints":
            changes[name] = _checked_names(value)
        elif not _fits(value, defaults[name]):
            kind = WORDS[type(defaults[name])]
            raise ValueError(f"rules.{name} is {value!r}: give a {kind}, such as {defaults[name]!r}.")
    return Rules(**changes)


def _checked_range(value: Any) -> tuple[float, float]:
    if not isinstance(value, list | tuple) or len(value) != 2 or not all(_fits(each, 0.0) for each in value):
        raise ValueError(f"rules.noise is {value!r}: give two numbers, such as [0.1, 0.3].")
    return float(value[0]), float(value[1])


def _checked_names(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
        raise ValueError(f"rules.blueprints is {value!r}: give a list of names, such as [point4, taps8].")
    return tuple(value)


def _fits(value: Any, default: Any) -> bool:
    """True if a value can stand for a default: a number for a float, else its own type."""
    if isinstance(value, bool) or isinstance(default, bool):
        return isinstance(value, bool) and isinstance(default, bool)
    return isinstance(value, (int, float) if isinstance(default, float) else type(default))
