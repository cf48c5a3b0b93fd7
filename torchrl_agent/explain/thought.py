"""Records of one agent's outputs in one step of an episode: tensors on the CPU; one row, no batch dimensions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor

UNSEEN = -1
"""Number of an action that was not observed."""
EMPTY = -1
"""Number of the agent in an empty slot."""
DIGITS = 3
"""Decimals of numbers."""


@dataclass(frozen=True)
class Names:
    """Names of a world, empty where it offers none; numbers replace them."""

    actions: Sequence[str] = ()
    meters: Sequence[str] = ()
    observation: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By key: names of each number of a vector, or of each channel of a picture."""
    colors: Mapping[str, Sequence[tuple[int, int, int]]] = field(default_factory=dict)
    """By key of a picture: red, green, blue [0 to 255] of each channel."""
    heads: Sequence[str] = ()
    choices: Sequence[Sequence[str]] = ()
    """Names of the values of each head."""
    legend: Mapping[str, tuple[int, int, int]] = field(default_factory=dict)
    """Red, green, blue [0 to 255] in which pictures show a thing or a meter, by its name."""
    raised: Sequence[str] | None = None
    """Meters that something in the world can raise; None if the world does not tell."""

    def action(self, index: int) -> str:
        return self.actions[index] if index < len(self.actions) else f"action {index}"

    def head(self, index: int) -> str:
        return self.heads[index] if index < len(self.heads) else f"action head {index}"

    def choice(self, head: int, index: int) -> str:
        words = self.choices[head] if head < len(self.choices) else ()
        return words[index] if index < len(words) else str(index)

    def meter(self, index: int) -> str:
        return self.meters[index] if index < len(self.meters) else f"meter {index}"

    def seen(self, key: str, index: int) -> str:
        words = self.observation.get(key, ())
        return words[index] if index < len(words) else str(index)

    def channel(self, key: str, index: int) -> str:
        return self.seen(key, index) if key in self.observation else f"channel {index}"


@dataclass(frozen=True)
class Belief:
    """The belief: ``mean`` and ``log_std`` [D], and the agent's exact knowledge of its own state, [K]."""

    mean: Tensor
    log_std: Tensor
    proprioception: Tensor
    known_names: list[str]
    """Names of the numbers in ``proprioception``."""
    usual: float | None
    """Mean of ``log_std`` over dimensions and over the episode; None if perception has no loss of its own."""

    @property
    def uncertainty(self) -> float:
        """Mean of ``log_std`` over dimensions."""
        return self.log_std.mean().item()


@dataclass(frozen=True)
class Futures:
    """Futures: the candidates, as ``world_model.WorldModel.imagine`` writes them ([P], [P, H], [P, H, K]), one for each
    first action; and predictions of the L actions that were taken afterward, beside the truth. Rewards are in the
    agent's units.
    """

    actions: Tensor
    states: Tensor
    rewards: Tensor
    dones: Tensor
    values: Tensor
    confidence: Tensor
    reason: Tensor
    expected_return: Tensor
    predicted_states: Tensor
    predicted_rewards: Tensor
    predicted_dones: Tensor
    true_states: Tensor
    true_rewards: Tensor
    true_dones: Tensor
    gains: Tensor | None = None
    """Gains of the candidates' first actions in the policy's logits, [P], where imagination improves the policy."""


@dataclass(frozen=True)
class Others:
    """For every visible other agent its ``number``, probabilities of ``goal`` [V, G] and ``next_action`` [V, actions],
    ``meters`` [V, M], ``confidence`` and ``reason`` [V]; the policy's ``attention`` [V] to it, None without attention;
    weights of the episode's steps so far in the memory retrieved of it, ``found`` [V, steps], None without an
    associative memory; and the truth, None where the world gives no labels. The next action of an agent that does not
    learn and went out of sight is :data:`UNSEEN`.
    """

    number: Tensor
    goal: Tensor
    next_action: Tensor
    meters: Tensor
    confidence: Tensor
    reason: Tensor
    true_next_action: Tensor
    true_goal: Tensor | None = None
    true_meters: Tensor | None = None
    attention: Tensor | None = None
    found: Tensor | None = None


@dataclass(frozen=True)
class Goal:
    """Number of the goal, ``probabilities`` [G] of all, ``target`` [M] (0: does not matter), own ``meters`` [M]."""

    type: int
    names: list[str]
    probabilities: Tensor
    priority: float
    target: Tensor
    targets: Tensor
    """Targets of all goals, [G, M]."""
    meters: Tensor
    meter_names: list[str]
    steps_left: int
    decided: bool
    steps: int
    """Largest number of steps for which a goal is held."""
    option: bool = False
    """True if the critic's value is the reward to come for this goal alone."""


@dataclass(frozen=True)
class ActionValues:
    """Action values of an agent without a policy: ``values`` [A] in the agent's units, ``legal`` [A], and ``epsilon``,
    the fraction of random legal actions in training when the checkpoint was written.
    """

    values: Tensor
    legal: Tensor
    epsilon: float


@dataclass(frozen=True)
class Numbers:
    """The continuous part of an action: ``taken``, and ``mean`` and ``deviation`` of the distribution, [D]; for SAC the
    latter two before the squashing into the bounds.
    """

    taken: Tensor
    mean: Tensor
    deviation: Tensor
    squashed: bool


class Evidence(NamedTuple):
    """Evidence over the last steps: its ``value``, beside the ``usual`` one of the healthy agent and its ``limit``."""

    value: float
    usual: float
    limit: float


@dataclass(frozen=True)
class Thought:
    """Record of an agent's step with everything that led to its action; modules that the agent lacks are None."""

    world: int
    agent: int | None
    """Number of the agent; None in a world of one agent."""
    step: int
    length: int
    """Number of the agent's steps in the episode."""
    names: Names
    picture: Any
    """The scene before the action, uint8 [height, width, 3]; None if the world cannot be drawn."""
    observation: dict[str, Tensor]
    privileged: dict[str, Tensor]
    """Labels that the agent does not observe; empty if the world gives none."""
    visible: Tensor | None
    """Numbers of the other agents in its slots, :data:`EMPTY` in empty ones; None if it observes no others."""
    action: Tensor
    """The action, [heads + D]."""
    probabilities: list[Tensor]
    """Probabilities of each head's choices; empty for continuous actions."""
    value: float
    reward: float
    """Reward of the action, in the agent's units, like ``value``."""
    reward_unit: float
    """The world's reward that is one of the agent's units."""
    belief: Belief | None = None
    futures: Futures | None = None
    others: Others | None = None
    goal: Goal | None = None
    action_values: ActionValues | None = None
    """Action values of a DQN agent."""
    numbers: Numbers | None = None
    """Continuous actions of an agent that has them."""
    ablated: tuple[str, ...] = ()
    """Modules that were ablated in this episode."""
    evidence: Mapping[str, Evidence] | None = None
    """Evidence for errors of modules over the last steps, by name; None without a reference of the healthy agent."""


def plain(value: Any, digits: int | None = DIGITS) -> Any:
    """Return tensors and nested values as values of JSON, with numbers rounded unless ``digits`` is None; NaN and
    infinity become None.
    """
    if isinstance(value, Tensor):
        value = value.detach().cpu().tolist()
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        if digits is None:
            return value
        rounded = round(value, digits)
        return int(rounded) if rounded == int(rounded) else rounded
    if isinstance(value, dict):
        return {name: plain(part, digits) for name, part in value.items()}
    return [plain(part, digits) for part in value] if isinstance(value, (list, tuple)) else value
