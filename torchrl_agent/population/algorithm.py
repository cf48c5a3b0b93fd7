"""Training of all members of a population at once, each as it would be trained alone."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.utils import NestedKey
from torch import Tensor
from torchrl.envs.utils import ExplorationType, set_exploration_type
from torchrl.modules import set_recurrent_mode
from torchrl.objectives.value.functional import generalized_advantage_estimate
from typing_extensions import override

from torchrl_agent.algorithms.actor_critic import NEXT_VALUE, UNROLLED, Draw, OnPolicyActorCritic
from torchrl_agent.algorithms.algorithm import Algorithm
from torchrl_agent.core import keys, ranks
from torchrl_agent.core.ranks import explained_variance
from torchrl_agent.core.spans import span
from torchrl_agent.losses.policy_gradient import PAID
from torchrl_agent.models.agent import AdaptedAgent, Agent
from torchrl_agent.optimization.compilation import CompiledFunction, CudaGraphFunction
from torchrl_agent.optimization.schedules import ADAPTIVE, scheduled
from torchrl_agent.optimization.updater import SKIPS_BEFORE_HALT, NonFiniteError, summarize_updates
from torchrl_agent.population.agent import Member, MembersPolicy
from torchrl_agent.population.genes import PLACES, numbers_of
from torchrl_agent.population.stack import RowAdam, Stack, Values, entries, stack_rows, tensors_of

WORLDS_OWN = "scaler.returns"
"""Running returns of a member's worlds: they belong to the worlds, whichever member acts in them."""
TOTAL = "total"
"""Sum of the losses."""
UNIT = "unit"
"""Divisor of a member's rewards."""


class MembersAlgorithm(Algorithm):
    """P algorithms of one kind as one; see :class:`~torchrl_agent.algorithms.algorithm.Algorithm`, whose parts are made
    by the algorithms that it is given.

    Agents with memory learn member by member, by one compiled function: ``torch.vmap`` cannot run their sequences.

    Args:
        algorithms: PPO or A2C, each with a member's fresh agent and for its part of the worlds.

    Attributes:
        agent, scaler: copies of those of the member that was shown last, see :meth:`show`.
        numbers: hyper-parameters that may differ between members, by their names in a configuration, [P] on the device:
            values written there hold from the next update on.
        lr_scale: factor on the learning rate of each member, [P].

    Raises:
        ValueError: the algorithm or its configuration cannot be that of a population.
    """

    def __init__(self, algorithms: Sequence[Algorithm]) -> None:
        template = algorithms[0]
        check_algorithm(template)
        assert isinstance(template, OnPolicyActorCritic)
        if template.fills_up:
            raise ValueError(
                "algorithm.minibatch_size does not divide the frames of a member's rollout, which all members share: "
                "choose a divisor of algorithm.rollout_steps times a member's worlds."
            )
        self.template, self.config, self.device = template, template.config, template.device
        self.acceleration = template.acceleration
        self.updater = template.updater  # of it the precision alone is used
        self.reads_values, self.rows = template.reads_values, template.rows
        parts = [[each for each in part if each.requires_grad] for part in template.agent.parts()]
        self.stack = Stack([Member(each) for each in algorithms], [part for part in parts if part])
        self._shown = copy.deepcopy(Member(template))
        self.agent, self.scaler = self._shown.agent, self._shown.scaler
        adapt = partial(MembersPolicy, self.stack, group=template.agent.group)
        self.behavior = AdaptedAgent(template.agent, adapt, "members")
        self.together = not template.agent.sequential
        if self.together:
            template.frames_at_once = max(1, template.frames_at_once // self.stack.size)
        options = (self.config.adam_epsilon, self.config.weight_decay)
        self.optimizer = RowAdam(self.stack.flat, self.stack.ranges, *options)
        self.numbers = self._numbers()
        self.rates = self.numbers["algorithm.learning_rate.initial"].clone()
        self.lr_scale, self.running = (torch.ones(self.stack.size, device=self.device) for _ in range(2))
        self.skips_in_row = torch.zeros(self.stack.size, device=self.device)
        self._compile()

    def _compile(self) -> None:
        """Make the functions that may be compiled, or captured."""
        compile = self.acceleration.advantages_on(self.device)
        self.estimate = CompiledFunction("the advantage function", self._estimate, compile, UNROLLED)
        function = self._losses if self.together else self._losses_of_one
        self.program = self.losses = CompiledFunction("the loss", function, self.acceleration.update)
        self.adam = CompiledFunction("the optimizer", self._step, self.acceleration.update)
        self.graphs_on = self.template.graphs_on
        self.captured = CudaGraphFunction("an iteration's updates", self.improve, self.graphs_on)
        self.accelerated = (self.estimate, self.losses, self.adam)

    def show(self, member: int) -> Agent:
        """Copy a member, of any rank, to :attr:`agent` and :attr:`scaler`; all ranks call this."""
        owner, place = divmod(member, self.stack.size)
        if owner == ranks.rank():
            self.stack.show(place, self._shown)
        ranks.broadcast(tensors_of(self._shown).values(), owner)
        return self.agent

    @override
    def make_loss(self) -> torch.nn.Module:
        """Loss module of the template."""
        return self.template.loss

    @override
    def anneal(self, progress: float) -> None:
        """Anneal entropy bonus and clipping range from the members' own ones to the final one."""
        start, end = self.numbers["algorithm.entropy_coeff"], self.config.final_entropy_coeff
        now = start if end is None else start + (end - start) * min(progress, 1.0)
        others = self.stack.others()
        others["loss.objective.entropy_coeff"].copy_(now)
        name, smallest = "algorithm.clip_epsilon", getattr(self.config, "final_clip_epsilon", None)
        if smallest is not None:
            others[PLACES[name]].copy_(scheduled(self.config.clip_schedule, self.numbers[name], smallest, progress))

    def write_numbers(self) -> None:
        """Write :attr:`numbers` into the members' tensors, so that they hold from now on."""
        others = self.stack.others()
        for name, place in PLACES.items():
            if place in others:
                others[place].copy_(self.numbers[name])

    def copy(self, source: Tensor) -> None:
        """Copy member ``source[i]`` to member ``i`` (int64 [P], of all ranks' members): weights, statistics, optimizer
        and numbers; the worlds go on.
        """
        mine = [value for name, value in self.stack.others().items() if name != WORLDS_OWN]
        rows = [self.stack.flat, *mine, *self.optimizer.tensors().values(), *self.numbers.values(), self.skips_in_row]
        with torch.no_grad():
            for value in rows:
                value.copy_(ranks.fetch_rows(value, source))

    @torch.no_grad()
    def begin_anew(self, member: int, tensors: Mapping[str, Tensor]) -> None:
        """Reset a member to these weights and statistics, by their names in a :class:`Member`, and to a fresh optimizer
        state; its worlds go on.
        """
        for name, value in self.stack.member(member).items():
            if name != WORLDS_OWN:
                value.copy_(tensors[name])
        for value in (*self.optimizer.tensors().values(), self.skips_in_row):
            value[member] = 0

    # --- learning -----------------------------------------------------------------------------------------------------

    @override
    def learn(self, rollout: TensorDict, learning_rate: float) -> dict[str, Tensor]:
        """Train all members on a rollout [T, rows], of which each has an equal part; return diagnostics [P].

        Args:
            rollout: see ``agent_rows``.
            learning_rate: learning rate of the schedule; members' own rates move in proportion.
        """
        share = learning_rate / self.config.learning_rate.initial
        torch.mul(self.numbers["algorithm.learning_rate.initial"] * self.lr_scale, share, out=self.rates)
        self.template.truncates_once = self.truncates_once
        return {**self.captured(rollout), "learning_rate": self.rates}

    def improve(self, rollout: TensorDict) -> dict[str, Tensor]:
        """Compute advantages and make the updates of an iteration."""
        data, explained, unit = self.advantages(rollout)
        self.running.fill_(1.0)
        # all members draw the same frames, which gives no member information about the others
        count = next(iter(data.values())).shape[1]
        history = [
            self.update({key: _drawn(value, draw) for key, value in data.items()})
            for _ in range(self.template.num_epochs)
            for draw in self.template.draws(count)
        ]
        self.stack.call(self._conclude, data, self._dims, together=self.together)
        metrics = summarize_updates(torch.stack(history))
        return {**metrics, "value_loss": metrics["scaled_value_loss"] * unit.square(), "explained_variance": explained}

    @torch.no_grad()
    def advantages(self, rollout: TensorDict) -> tuple[dict[NestedKey, Tensor], Tensor, Tensor]:
        """Data that minibatches are drawn from, [P, frames] (sequences [P, rows, T] for agents with memory), the
        fraction of the targets' variance that the critics explain, and the divisor of rewards, [P] each.
        """
        own = (self.stack.size, -1)
        played = {key: value.unflatten(1, own).transpose(0, 1) for key, value in entries(rollout).items()}
        judged = self.stack.call(self.template.judged, played, 2, together=self.together)
        values = judged[keys.VALUE], judged[NEXT_VALUE][..., :1]
        advantage, target, reward, unit, explained = self.estimate(played, *values)
        estimated = {keys.ADVANTAGE: advantage, keys.VALUE_TARGET: target, keys.REWARD: reward}
        data = self.stack.call(self._prepare, {**played, **judged, **estimated}, 2, together=self.together)
        return data, explained, unit

    def _estimate(self, played: Values, values: Tensor, next_values: Tensor) -> tuple[Tensor, ...]:
        """Advantages, value targets and scaled rewards, [P, T, rows, 1]; their unit and the fraction of variance that
        is explained, [P].
        """
        earned = self.stack.call(self._earn, played, 2)
        discounts = [self.numbers[f"algorithm.{name}"].view(-1, 1, 1, 1) for name in ("gamma", "lmbda")]
        rewritten = [earned[key] for key in PAID]
        advantage, target = generalized_advantage_estimate(*discounts, values, next_values, *rewritten, time_dim=1)
        alive = played.get(keys.ALIVE)
        counted = torch.ones_like(values, dtype=torch.bool) if alive is None else alive.unsqueeze(-1)
        explained = torch.vmap(explained_variance)(target, values, counted)
        return advantage, target, earned[keys.REWARD], earned[UNIT], explained

    def _earn(self, played: TensorDictBase) -> dict[str, Tensor]:
        """Scaled rewards of a member, their unit, and the signals that its controller learns from (:data:`PAID`)."""
        reward, signals = self.template.rewards(played)
        return {keys.REWARD: reward, UNIT: self.template.scaler.unit, **dict(zip(PAID, signals, strict=True))}

    def _prepare(self, played: TensorDictBase) -> TensorDictBase:
        estimated = [keys.VALUE, keys.ADVANTAGE, keys.VALUE_TARGET]
        data = self.template.recorded(played, played.get(keys.REWARD), played.get(NEXT_VALUE))
        data.update(played.select(*estimated))
        return data.reshape(-1) if self.together else data.transpose(0, 1)

    def _conclude(self, data: TensorDictBase) -> dict[NestedKey, Tensor]:
        normalizer = self.template.agent.normalizer
        normalizer.update(normalizer.join(data), data.get(keys.VALID, None))
        return {}

    @property
    def _dims(self) -> int:
        """Number of batch dimensions of a member's data: 1 for frames, 2 for sequences of them."""
        return 1 if self.together else 2

    # --- an update ----------------------------------------------------------------------------------------------------

    def update(self, minibatch: Values) -> TensorDict:
        """Make one step of every member whose loss and gradient are finite; return diagnostics [P]."""
        modes = set_exploration_type(ExplorationType.DETERMINISTIC), set_recurrent_mode(not self.together)
        with self.updater.autocast(), modes[0], modes[1]:
            gradient, metrics = self._gradient(minibatch) if self.together else self._gradients_one_by_one(minibatch)
        total = metrics.pop(TOTAL)
        norm, made, bad = self.adam(gradient, total, metrics.get("kl", total))
        counts = {"made": made.float(), "skipped": bad.float(), "skipped_in_row": self.skips_in_row.clone()}
        return TensorDict({**metrics, "loss": total, "grad_norm": norm, **counts}, [self.stack.size])

    def _gradient(self, minibatch: Values) -> tuple[Tensor, dict[str, Tensor]]:
        flat = self.stack.flat
        metrics = self.losses(flat, minibatch)
        with span("backward"):
            (gradient,) = torch.autograd.grad(metrics[TOTAL].sum(), flat)
        return gradient, {name: value.detach() for name, value in metrics.items()}

    def _gradients_one_by_one(self, minibatch: Values) -> tuple[Tensor, dict[str, Tensor]]:
        gradients, metrics = [], []
        for index in range(self.stack.size):
            # copies: compiled code would be compiled anew for another alignment of its inputs
            row = self.stack.flat[index].detach().clone().requires_grad_()
            others = {name: value[index].clone() for name, value in self.stack.others().items()}
            found = self.losses(row, others, {key: value[index].clone() for key, value in minibatch.items()})
            with span("backward"):
                gradients.append(torch.autograd.grad(found[TOTAL], row)[0])
            for name, value in self.stack.others().items():  # buffers that losses update
                value[index].copy_(others[name])
            metrics.append({name: value.detach() for name, value in found.items()})
        return torch.stack(gradients), stack_rows(metrics)

    def _losses(self, flat: Tensor, minibatch: Values) -> dict[str, Tensor]:
        run = self.stack.one(self._terms, self._dims)
        return torch.vmap(run)(self.stack.split(flat), self.stack.others(), dict(minibatch))

    def _losses_of_one(self, row: Tensor, others: dict[str, Tensor], minibatch: Values) -> dict[str, Tensor]:
        return self.stack.one(self._terms, self._dims)(self.stack.split(row), others, minibatch)

    def _terms(self, minibatch: TensorDictBase) -> dict[str, Tensor]:
        losses = self.template.loss(minibatch)
        return {TOTAL: sum(value for key, value in losses.items() if key.startswith("loss_")), **dict(losses.items())}

    @torch.no_grad()
    def _step(self, gradient: Tensor, total: Tensor, kl: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Make an optimizer step; return the gradients' norms, and masks of members that stepped and that were not
        finite, [P].
        """
        limit = getattr(self.config, "target_kl", None)
        if limit is not None:  # once over it, a member makes no other update in this iteration
            self.running.mul_(kl <= 1.5 * limit)
        finite = total.isfinite()
        max_norm = self.numbers["algorithm.max_grad_norm"]
        norm, made = self.optimizer.step(gradient, self.rates, max_norm, finite & (self.running > 0))
        bad = ~(finite & norm.isfinite())
        self.skips_in_row.copy_(torch.where(bad, self.skips_in_row + 1, 0.0))
        return norm, made, bad

    @override
    def check(self, metrics: Mapping[str, float]) -> None:
        """Raise NonFiniteError if every member had to skip several updates in a row."""
        if metrics.get("skipped_in_row", 0) >= SKIPS_BEFORE_HALT:
            raise NonFiniteError(
                f"the loss or its gradient was not finite in {SKIPS_BEFORE_HALT} updates in a row of every member: "
                "lower algorithm.learning_rate.initial, or look for NaN in the world's observations and rewards."
            )

    # --- saving -------------------------------------------------------------------------------------------------------

    def _numbers(self) -> dict[str, Tensor]:
        """Hyper-parameters as configured, for every member."""
        size = (self.stack.size,)
        return {name: torch.full(size, value, device=self.device) for name, value in numbers_of(self.config).items()}

    @override
    def state_dict(self) -> dict[str, Any]:
        """All members, stacked, [P, ...] each, on the first rank those of all; views of one tensor are saved as that
        tensor.
        """
        mine = {
            "members": self.stack.flat.detach().clone(),
            "others": {name: value.clone() for name, value in self.stack.others().items()},
            "optimizer": {name: value.clone() for name, value in self.optimizer.tensors().items()},
            "skips_in_row": self.skips_in_row.clone(),
        }
        shown = {"name": self.template.name, "reward_scaler": self.scaler.state_dict()}
        return {**shown, **ranks.gather_rows(mine, 0)}

    def optimizer_state_of(self, member: int) -> dict[str, Any]:
        """Optimizer state of a member, in the format of a single learner's."""
        optimizer, agent = self.template.updater.optimizer, self.template.agent
        names = {parameter: name for name, parameter in Member(self.template).named_parameters()}
        mean, square = (self.stack.split(each) for each in (self.optimizer.mean, self.optimizer.square))
        learning = [names[parameter] for parameter in agent.parameters() if parameter.requires_grad]
        step = self.optimizer.steps[member, 0]
        state = {
            # clones: a view would be saved with all that it is a view of
            place: {
                "step": step.clone(),
                "exp_avg": mean[name][member].clone(),
                "exp_avg_sq": square[name][member].clone(),
            }
            for place, name in enumerate(learning)
        }
        return {
            "optimizer": {**optimizer.state_dict(), "state": state},
            "grad_scaler": self.updater.grad_scaler.state_dict(),
            "skips_in_row": self.skips_in_row[member].clone(),
        }

    @override
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from :meth:`state_dict`; numbers are the configuration's, until genes are written over them.

        Raises:
            ValueError: another algorithm wrote it, or another number of members.
        """
        if state["name"] != self.template.name:
            raise ValueError(f"algorithm {state['name']} wrote it, this is {self.template.name}")
        size, columns = self.stack.flat.shape
        if state["members"].shape != (size * ranks.size(), columns):
            raise ValueError(
                f"{len(state['members'])} members wrote it, these are {size * ranks.size()}, or other networks"
            )
        parts = ("members", "others", "optimizer", "skips_in_row")
        state = ranks.own_rows({name: state[name] for name in parts}, 0)
        with torch.no_grad():
            self.stack.flat.copy_(state["members"])
            self.skips_in_row.copy_(state["skips_in_row"])
            for name, value in self.stack.others().items():
                if name not in PLACES.values():
                    value.copy_(state["others"][name])
        self.optimizer.load(state["optimizer"])
        self.captured.forget()


def check_algorithm(algorithm: Algorithm) -> None:
    """Raise ValueError if an algorithm cannot train members of a population."""
    if getattr(type(algorithm), "improve", None) is not OnPolicyActorCritic.improve:
        raise ValueError(
            f"population.members is above 1 but {algorithm.name} learns one agent at a time: use algorithm=ppo or a2c."
        )
    if algorithm.agent.recomputes:
        raise ValueError("members of a population learn at once, without recomputation: leave model.recompute empty.")
    precision = algorithm.updater.precision
    if precision in ("float8", "float16"):
        raise ValueError(
            f"members of a population cannot learn in {precision}: use algorithm.precision=bfloat16 or float32."
        )
    if algorithm.config.learning_rate.schedule == ADAPTIVE:
        raise ValueError(
            "members of a population cannot adapt their rates: use another algorithm.learning_rate.schedule."
        )
    if algorithm.config.lag:
        raise ValueError("members of a population play what they have learned: use algorithm.lag=0.")
    if getattr(algorithm.config, "optimizer", "adam") != "adam":
        raise ValueError(f"members of a population learn by Adam, not {algorithm.config.optimizer}: use adam.")


def _drawn(values: Tensor, draw: Draw) -> Tensor:
    """Frames or sequences of every member, [P, drawn, ...]."""
    return values[:, draw] if isinstance(draw, slice) else values.index_select(1, draw)
