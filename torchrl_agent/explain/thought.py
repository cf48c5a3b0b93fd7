"""What one agent thinks in one step of an episode, as records of tensors on the CPU; one row, no batch dimensions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

UNSEEN = -1
"""Number of an action that nobody saw."""
NOBODY = -1
"""Number of who is in an empty slot."""


@dataclass(frozen=True)
class Names:
    """Words of a world, empty where it offers none; numbers stand in for them."""

    actions: tuple[str, ...] = ()
    meters: tuple[str, ...] = ()
    observation: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By key: of a vector what each number is, of a picture what each channel is."""
    colors: Mapping[str, Sequence[tuple[int, int, int]]] = field(default_factory=dict)
    """By key of a picture: red, green, blue [0 to 255] of each channel."""

    def action(self, index: int) -> str:
        return self.actions[index] if index < len(self.actions) else f"action {index}"

    def meter(self, index: int) -> str:
        return self.meters[index] if index < len(self.meters) else f"meter {index}"

    def seen(self, key: str, index: int) -> str:
        words = self.observation.get(key, ())
        return words[index] if index < len(words) else str(index)

    def channel(self, key: str, index: int) -> str:
        return self.seen(key, index) if key in self.observation else f"channel {index}"


@dataclass(frozen=True)
class Belief:
    """The belief: ``mean`` and ``log_std`` [D], and what the agent exactly knows of itself, [K]."""

    mean: Tensor
    log_std: Tensor
    proprioception: Tensor
    known_names: list[str]
    """Of each number in ``proprioception``."""
    usual: float | None
    """Mean of ``log_std`` over dimensions and over the episode; None if no loss of perception's own has taught it."""

    @property
    def uncertainty(self) -> float:
        """Mean of ``log_std`` over dimensions."""
        return self.log_std.mean().item()


@dataclass(frozen=True)
class Futures:
    """Futures: the candidates, as ``world_model.WorldModel.imagine`` writes them ([P], [P, H], [P, H, K]), one of each
    first action, and what it foresees of the L actions that were then really taken, beside what followed. Rewards are
    in the agent's units.
    """

    actions: Tensor
    states: Tensor
    rewards: Tensor
    dones: Tensor
    values: Tensor
    confidence: Tensor
    reason: Tensor
    expected_return: Tensor
    foreseen_states: Tensor
    foreseen_rewards: Tensor
    foreseen_dones: Tensor
    true_states: Tensor
    true_rewards: Tensor
    true_dones: Tensor
    gains: Tensor | None = None
    """What the first actions of the candidates gained in the policy's logits, [P], where dreams improve the policy."""


@dataclass(frozen=True)
class Others:
    """Of every visible other its ``number``, probabilities of ``goal`` [V, G] and ``next_action`` [V, actions],
    ``meters`` [V, M], ``confidence`` and ``reason`` [V], how much ``attention`` [V] the policy gives it, None where it
    does not choose, how much of what was ``found`` again of it comes from each step of the episode so far [V, steps],
    None without associations; and the truth, None where the world does not tell. Of who does not learn and went out of
    sight, nobody tells what it did next: :data:`UNSEEN`.
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
    """Of all goals, [G, M]."""
    meters: Tensor
    meter_names: list[str]
    steps_left: int
    decided: bool
    steps: int
    """For how many steps a goal is held at most."""
    option: bool = False
    """The critic values what is still paid for it, and nothing else."""


@dataclass(frozen=True)
class ActionValues:
    """What an agent without a policy thinks its actions are worth: ``values`` [A] in the agent's units, ``legal`` [A],
    and ``epsilon``, the share of random legal actions that it took in training when the checkpoint was written.
    """

    values: Tensor
    legal: Tensor
    epsilon: float


@dataclass(frozen=True)
class Numbers:
    """The continuous part of an action: what was taken, ``mean`` and ``deviation`` of what would be sampled, [D]; of
    SAC both before they are squashed into the bounds.
    """

    taken: Tensor
    mean: Tensor
    deviation: Tensor
    squashed: bool


@dataclass(frozen=True)
class Thought:
    """A step of an agent with everything that led to its action; modules that the agent lacks are None."""

    world: int
    agent: int | None
    """Its number; None in a world of one agent."""
    step: int
    length: int
    """Steps that the agent plays in the episode."""
    names: Names
    picture: Any
    """The scene before the action, uint8 [height, width, 3]; None if the world cannot be drawn."""
    observation: dict[str, Tensor]
    privileged: dict[str, Tensor]
    """Labels that the agent cannot see; empty if the world gives none."""
    visible: Tensor | None
    """Numbers of the others in its slots, :data:`NOBODY` where nobody is; None if it is shown no others."""
    action: Tensor
    """What it does, [heads + D]."""
    probabilities: list[Tensor]
    """Of each head's choices when they are sampled; none of continuous actions."""
    value: float
    reward: float
    """What the action brought, in the agent's units, like ``value``."""
    reward_unit: float
    """The world's reward that makes one of the agent's units."""
    belief: Belief | None = None
    futures: Futures | None = None
    others: Others | None = None
    goal: Goal | None = None
    action_values: ActionValues | None = None
    """Of an agent that values actions (DQN)."""
    numbers: Numbers | None = None
    """Of an agent with continuous actions."""
    silent: tuple[str, ...] = ()
    """Modules that nobody heard in this episode."""
