"""Scripted policies of the growth world, which bound what an agent can gain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor
from typing_extensions import override

from envs.base.players import Player, any_legal
from envs.growth.rules import PLACEHOLDERS, Head, Operation, Rules, Stage


class Planting(NamedTuple):
    """Germination of a schedule."""

    slot: int
    start: int
    """First step at which it germinates, if it is legal then."""
    blueprint: int = -1
    """Value of its head, or -1 for the last one."""
    style: int = 0
    tempo: int = 1


class GrowthPlayer(Player):
    """Base of the policies, which read the record of the world.

    Args:
        env: the world to act in.
    """

    def __init__(self, env: Any) -> None:
        super().__init__(env, "action_mask", "head_mask")

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write the actions."""
        legal = tensordict.get("head_mask")[..., : self.env.rules.slots].permute(1, 2, 0)  # [6, S, N]
        return tensordict.set("action", self.choose(legal).T.contiguous())

    def choose(self, legal: Tensor) -> Tensor:
        """Return actions int64 [8, N], given the slots at which each operation is legal, bool [6, S, N]."""
        raise NotImplementedError

    def waiting(self, worlds: int) -> Tensor:
        """Return actions that wait, int64 [8, N]."""
        values = torch.tensor((*PLACEHOLDERS, Operation.WAIT), device=self.env.device)
        return values.unsqueeze(1).repeat(1, worlds)


class WaitingPlayer(GrowthPlayer):
    """Policy that always waits."""

    @override
    def choose(self, legal: Tensor) -> Tensor:
        """Return actions that wait."""
        return self.waiting(legal.shape[-1])


class LegalPlayer(GrowthPlayer):
    """Policy of uniformly random legal operations, with a uniformly random legal value of each head that can matter."""

    @override
    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write the actions."""
        *others, operations = self.env.rules.head_sizes
        operation = any_legal(tensordict.get("action_mask")[:, -operations:])
        mask = tensordict.get("head_mask")[torch.arange(len(operation), device=operation.device), operation]
        action = torch.stack((*(any_legal(head) for head in mask.split(others, 1)), operation), 1)
        return tensordict.set("action", action)


class SchedulePlayer(GrowthPlayer):
    """Policy that germinates at fixed steps, and makes permanent what holds.

    Args:
        env: the world to act in.
        plan: germinations, the earliest first.
        levels: hidden levels in which each germination takes place; None for all of them.
    """

    def __init__(self, env: Any, plan: Sequence[Planting], levels: Sequence[Sequence[int]] | None = None) -> None:
        super().__init__(env)
        self.plan, self.levels = tuple(plan), levels

    @override
    def choose(self, legal: Tensor) -> Tensor:
        """Return the actions."""
        state = self.env.state
        action = keep_what_holds(self.waiting(legal.shape[-1]), legal)
        for number, planting in enumerate(self.plan):
            due = (state.step >= planting.start) & legal[Operation.GERMINATE, planting.slot]
            if self.levels is not None:
                due = due & sum(state.level == level for level in self.levels[number]).bool()
            action = germinating(action, due & (action[Head.OPERATION] == Operation.WAIT), planting, self.env.rules)
        return action


class HeuristicPlayer(GrowthPlayer):
    """Policy by thresholds: germinates the next slot when accuracy is on a plateau, prunes what harms and makes
    permanent what contributes.
    """

    plateau, least, harm, warm = 0.02, 0.005, -0.02, 6

    @override
    def choose(self, legal: Tensor) -> Tensor:
        """Return the actions."""
        state, slots = self.env.state, self.env.state.slots
        action = self.waiting(legal.shape[-1])
        useful = legal[Operation.KEEP] & (slots.contribution >= self.least)
        harmful = legal[Operation.PRUNE] & (slots.stage == Stage.HOLDING) & (slots.contribution <= self.harm)
        useless = legal[Operation.PRUNE] & (slots.stage == Stage.HOLDING) & (slots.stage_age >= 10) & ~useful
        action = operate_first(action, useful, Operation.KEEP)
        action = operate_first(action, harmful | useless, Operation.PRUNE)
        past = state.measures.accuracies
        flat = (past[0] >= 0) & (past[-1] - past[0] < self.plateau) & (state.step >= self.warm)
        busy = ((slots.stage != Stage.DORMANT) & (slots.stage < Stage.HOLDING)).any(0)
        grows = legal[Operation.GERMINATE] & flat & ~busy
        for slot in range(self.env.rules.slots):
            due = grows[slot] & (action[Head.OPERATION] == Operation.WAIT)
            action = germinating(action, due, Planting(slot, 0), self.env.rules)
        return action


class TrialPlayer(GrowthPlayer):
    """Policy that tries the first slot, judges by the accuracy how hard the task is, and tries the second slot where
    that is not enough; it makes permanent what contributes and prunes what the host does not need. It is made for the
    order task, whose hidden level shows in the accuracy that a host reaches in a few steps.
    """

    judged_at, tried_at, expired_at = 6, 16, 24
    """Step of the first judgment; ages by which a module should have an effect, and at which it is pruned without."""
    hard, enough, solved = 0.34, 0.7, 0.75
    """Accuracies: two modules are needed below the first, no second one above the second, and none if it is above the
    third without them.
    """
    least, useful = 0.05, 0.1
    """Contributions: pruned below the first, permanent above the second one."""

    @override
    def choose(self, legal: Tensor) -> Tensor:
        """Return the actions."""
        state, slots = self.env.state, self.env.state.slots
        accuracy, contribution = state.measures.accuracy, slots.contribution
        judges = state.step >= self.judged_at
        without = accuracy - contribution.amax(0).clamp_min(0)
        expired = (slots.age >= self.expired_at) & (contribution < self.least)
        useful, needless = contribution >= self.useful, judges & (without >= self.solved) | expired
        action = operate_first(self.waiting(legal.shape[-1]), legal[Operation.KEEP] & useful, Operation.KEEP)
        action = operate_first(action, legal[Operation.PRUNE] & needless, Operation.PRUNE)
        more = (judges & (accuracy < self.hard)) | ((slots.age[0] >= self.tried_at) & (accuracy < self.enough))
        for slot, wanted in enumerate((state.step == 0, more)[: self.env.rules.slots]):
            due = legal[Operation.GERMINATE, slot] & wanted & (action[Head.OPERATION] == Operation.WAIT)
            action = germinating(action, due, Planting(slot, 0, tempo=0), self.env.rules)
        return action


def germinating(action: Tensor, where: Tensor, planting: Planting, rules: Rules) -> Tensor:
    """Replace actions [8, N] by a germination in the worlds ``where``."""
    return torch.where(where, torch.tensor(germination(planting, rules), device=action.device).unsqueeze(1), action)


def germination(planting: Planting, rules: Rules) -> list[int]:
    """Return the action of a germination, by heads."""
    values = [*PLACEHOLDERS, Operation.GERMINATE]
    values[Head.SLOT], values[Head.BLUEPRINT] = planting.slot, planting.blueprint % len(rules.blueprints)
    values[Head.STYLE], values[Head.TEMPO] = planting.style, planting.tempo
    return values


def keep_what_holds(action: Tensor, legal: Tensor) -> Tensor:
    """Make permanent the first module that may be."""
    return operate_first(action, legal[Operation.KEEP], Operation.KEEP)


def operate_first(action: Tensor, where: Tensor, operation: int) -> Tensor:
    """Replace waiting by an operation at the first slot of ``where`` (bool [S, N]), if there is one."""
    due = where.any(0) & (action[Head.OPERATION] == Operation.WAIT)
    slot = where.long().argmax(0)
    rows = list(action)
    rows[Head.SLOT] = torch.where(due, slot, rows[Head.SLOT])
    rows[Head.OPERATION] = torch.where(due, operation, rows[Head.OPERATION])
    return torch.stack(rows)


def players(env: Any) -> dict[str, TensorDictModuleBase]:
    """Return the policies of a world by name: ``optimum`` knows which slots pay at the hidden level, if known;
    ``trial`` judges by accuracy; ``one`` and ``two`` grow the first slots at fixed steps.
    """
    last = min(1, env.rules.slots - 1)
    result: dict[str, TensorDictModuleBase] = {} if env.needed is None else {"optimum": optimum(env)}
    return result | {
        "trial": TrialPlayer(env),
        "heuristic": HeuristicPlayer(env),
        "two": SchedulePlayer(env, (Planting(0, 2), Planting(last, 10))),
        "one": SchedulePlayer(env, (Planting(0, 2),)),
        "wait": WaitingPlayer(env),
        "random": LegalPlayer(env),
    }


def optimum(env: Any) -> SchedulePlayer:
    """Return the policy that germinates, as early as is legal, what pays at the hidden level."""
    slots = sorted({slot for needed in env.needed for slot in needed if slot < env.rules.slots})
    levels = [[level for level, needed in enumerate(env.needed) if slot in needed] for slot in slots]
    return SchedulePlayer(env, [Planting(slot, 0) for slot in slots], levels)
