"""The world model: what would follow if the agent did this? It dreams in beliefs, several steps ahead.

Shapes: [...] is rows (worlds times agents) in a step, or sequences [B, T] of them; D numbers of a belief, K of the own
state that is exactly known, E heads of the ensemble, P candidate futures of H steps each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from tensordict import TensorDict, TensorDictBase
from torch import Tensor, nn

from torchrl_agent import keys
from torchrl_agent.models.module import AgentModule, Built, ModuleContext
from torchrl_agent.models.networks import masked_mean, mlp, one_hot_actions, symexp, symlog
from torchrl_agent.models.specs import action_masked
from torchrl_agent.ranges import OLD
from torchrl_agent.spans import spanned

NOTHING, NOVEL_STATE, HIGH_VARIANCE = 0, 1, 2
"""Reasons for little confidence: none; the heads disagree from the first step on; they come to disagree later."""
CHANGE = 0.1
"""The own state's changes are foreseen in units of this, about the size that they have."""
UNUSUAL = 2.0
"""Disagreement of so many times the usual one is a reason."""


@dataclass
class WorldModelConfig:
    """The world model: dreaming of consequences."""

    enabled: bool = False
    hidden_size: int = 128
    ensemble: int = 4
    """Size of the ensemble of heads, whose disagreement gives the confidence."""
    candidates: int = 4
    """P, first actions whose futures the policy looks at; 0 for none (the model is then only trained)."""
    horizon: int = 5
    """Imagination horizon H: steps of each imagined future."""
    open_loop: int = 5
    """Length of open-loop rollouts in training: steps foreseen without looking."""
    stride: int = 4
    """Frames between the starts of what is foreseen in training; 1 starts from every frame."""
    shapes_perception: bool = False
    """Let its losses change the belief too. That is good in pre-training; beside PPO it cost the agent of
    configs/small_town.yaml half of its return after 120,000 frames (71 against 132).
    """
    coeff: float = 0.5
    """Weight of its losses beside PPO's."""
    planner: Any = field(default=None, metadata=OLD)
    cem: Any = field(default=None, metadata=OLD)
    """The planner's place in the last release, which is ``model.planner`` now."""


class WorldModel(nn.Module):
    """(belief, action) -> next belief, own state, reward, end and value; a residual network, so that "nothing changes"
    is where it starts.

    Args:
        belief_size: D.
        known_size: K, numbers that the agent exactly knows of itself.
        heads: choices of each discrete action.
        config: sizes.
        activation: of its networks.
        gamma: discount, to sum up an imagined future.
    """

    def __init__(
        self,
        belief_size: int,
        known_size: int,
        heads: Sequence[int],
        config: WorldModelConfig,
        activation: str,
        gamma: float,
    ) -> None:
        super().__init__()
        self.heads, self.config, self.gamma = list(heads), config, gamma
        self.belief_size, self.known_size = belief_size, known_size
        width = belief_size + known_size
        self.body = mlp(width + sum(heads), config.hidden_size, [config.hidden_size], activation)
        self.activation = nn.SiLU()
        self.change = mlp(config.hidden_size, belief_size, [], activation, gain=0.1)
        self.ensemble = mlp(config.hidden_size, config.ensemble * (known_size + 1), [], activation, gain=0.1)
        self.end = mlp(config.hidden_size, 1, [], activation, gain=0.1)
        self.value = mlp(width, 1, [config.hidden_size], activation, gain=0.1)
        self.proposal = mlp(width, heads[0], [config.hidden_size], activation, gain=0.01)
        self.register_buffer("usual_spread", torch.ones(()))

    def forward(self, belief: Tensor, known: Tensor, action: Tensor) -> dict[str, Tensor]:
        """One imagined step.

        Args:
            belief: [..., D].
            known: the agent's own state, [..., K].
            action: one-hot choices side by side, [..., sum of heads].

        Returns:
            ``belief`` and ``known_state`` after the step, symlog ``reward`` [...], ``end`` (logit of termination,
            [...]), and every head's opinion of own state and reward, ``opinions`` [..., E, K + 1].
        """
        hidden = self.activation(self.body(torch.cat((belief, known, action), -1)))
        opinions = self.ensemble(hidden).unflatten(-1, (self.config.ensemble, self.known_size + 1))
        opinions = torch.cat((CHANGE * opinions[..., :-1] + known.unsqueeze(-2), opinions[..., -1:]), -1)
        mean = opinions.mean(-2)
        return {
            "belief": belief + self.change(hidden),
            "known_state": mean[..., :-1],
            "reward": mean[..., -1],
            "end": self.end(hidden).squeeze(-1),
            "opinions": opinions,
        }

    def worth(self, belief: Tensor, known: Tensor) -> Tensor:
        """Symlog value [...] of a belief."""
        return self.value(torch.cat((belief, known), -1)).squeeze(-1)

    def first_head(self, action: Tensor) -> Tensor:
        """Choices [...] of the first head as one-hot actions, [..., sum of heads]; every other head chooses 0."""
        others = [torch.zeros_like(action)] * (len(self.heads) - 1)
        return one_hot_actions(torch.stack([action, *others], -1) if others else action, self.heads)

    def propose(self, belief: Tensor, known: Tensor) -> Tensor:
        """Logits [..., first-head actions] of what the agent would do with a belief."""
        return self.proposal(torch.cat((belief, known), -1)).float()

    def imagine(self, belief: Tensor, known: Tensor, actions: Tensor) -> TensorDict:
        """Futures of given sequences of (first-head) actions, [..., P, H] from beliefs [..., D].

        Returns:
            a tensordict [..., P] of ``actions`` [H], ``states`` [H, K], ``rewards``, ``dones`` (probabilities),
            ``values`` [H], ``confidence`` in 0..1 and ``reason`` (:data:`NOTHING`, :data:`NOVEL_STATE`,
            :data:`HIGH_VARIANCE`).
        """
        return self._dream(belief, known, actions.shape[-2], lambda step, *_: actions[..., step], actions.shape[-1])

    def candidates(self, belief: Tensor, known: Tensor, mask: Tensor | None) -> TensorDict:
        """Futures (see :meth:`imagine`) of the ``candidates`` likeliest legal first actions, each continued by what the
        agent would then likeliest do; selective imagination. Where fewer are legal, the likeliest fills up.

        Args:
            belief: [..., D].
            known: [..., K].
            mask: legal actions, bool [..., actions of all heads], None for all.
        """
        count = min(self.config.candidates, self.heads[0])
        logits = self.propose(belief, known)
        if mask is not None:
            logits = logits.masked_fill(~mask[..., : self.heads[0]], torch.finfo(logits.dtype).min)
        first = logits.topk(count, -1).indices
        if mask is not None:
            first = torch.where(mask.gather(-1, first), first, first[..., :1])

        def choose(step: int, belief: Tensor, known: Tensor) -> Tensor:
            return first if step == 0 else self.propose(belief, known).argmax(-1)

        return self._dream(belief, known, count, choose, self.config.horizon)

    def _dream(
        self, belief: Tensor, known: Tensor, count: int, choose: Callable[[int, Tensor, Tensor], Tensor], horizon: int
    ) -> TensorDict:
        batch = (*belief.shape[:-1], count)
        belief = belief.unsqueeze(-2).expand(*batch, belief.shape[-1])
        known = known.unsqueeze(-2).expand(*batch, known.shape[-1])
        steps: list[dict[str, Tensor]] = []
        spreads = []
        for step in range(horizon):
            action = choose(step, belief, known)
            outcome = self(belief, known, self.first_head(action))
            belief, known = outcome["belief"], outcome["known_state"]
            spreads.append(spread(outcome["opinions"]))
            steps.append(
                {
                    "actions": action,
                    "states": known,
                    "rewards": symexp(outcome["reward"]),
                    "dones": outcome["end"].sigmoid(),
                    "values": symexp(self.worth(belief, known)),
                }
            )
        dim = len(batch)
        stacked = {name: torch.stack([step[name] for step in steps], dim) for name in steps[0]}
        futures = TensorDict(stacked, batch, device=belief.device)
        first, worst = spreads[0] / self.usual_spread, torch.stack(spreads).amax(0) / self.usual_spread
        futures["confidence"] = torch.exp(-torch.stack(spreads).mean(0) / (UNUSUAL * self.usual_spread))
        later = torch.where(worst > UNUSUAL, HIGH_VARIANCE, NOTHING)
        futures["reason"] = torch.where(first > UNUSUAL, NOVEL_STATE, later)
        return futures

    @torch.no_grad()
    def notice(self, usual: Tensor) -> None:
        """Follow what disagreement is usual in training, from a minibatch's mean; one that is not finite, which the
        algorithm will skip, leaves no trace.
        """
        usual = torch.where(usual.isfinite(), usual.clamp_min(1e-6), self.usual_spread)
        self.usual_spread.lerp_(usual, 0.01)

    def expected_return(self, futures: TensorDictBase) -> Tensor:
        """What each future is worth, [..., P]: discounted rewards as long as it lives, and the value at its end."""
        alive, total, discount = torch.ones_like(futures["confidence"]), 0.0, 1.0
        for step in range(futures["rewards"].shape[-1]):
            total = total + discount * alive * futures["rewards"][..., step]
            alive = alive * (1.0 - futures["dones"][..., step])
            discount *= self.gamma
        return total + discount * alive * futures["values"][..., -1]


def spread(opinions: Tensor) -> Tensor:
    """Disagreement of the heads, [...] of [..., E, K + 1]."""
    return opinions.std(-2, correction=0).mean(-1)


class Imagination(AgentModule):
    """The world model inside a policy: writes ``futures``, and what the policy reads of them in ``imagined`` [..., 3
    actions]: for each first action its symlog return, its confidence and whether it was imagined at all.
    """

    foreseen = True

    def __init__(self, model: WorldModel, masked: bool) -> None:
        super().__init__()
        self.model, self.masked = model, masked
        self.acts = model.config.candidates > 0
        self.in_keys = [(keys.BELIEF, "mean"), (keys.BELIEF, "known_state"), *([keys.ACTION_MASK] if masked else [])]
        self.out_keys = [keys.IMAGINED, keys.FUTURES]
        self.size = 3 * model.heads[0]

    @classmethod
    def build(cls, context: ModuleContext) -> Built:
        """If a world model is switched on, with its losses; without candidates it is only taught."""
        config, model = context.config.world_model, context.config
        if config.enabled:
            sizes = model.perception.belief_size, context.built["perception"].known_size
            module = cls(
                WorldModel(*sizes, context.heads, config, model.activation, context.gamma), action_masked(context.env)
            )
            module.losses.append(WorldModelLoss(module.model))
            yield "world_model", module

    @staticmethod
    def switch_on(model: Any) -> None:
        """Change a ``ModelConfig`` so that there is one, with losses that shape the belief too."""
        model.world_model.enabled, model.world_model.coeff = True, model.world_model.coeff or 1.0
        model.world_model.shapes_perception = True

    @property
    def weights(self) -> nn.Module:
        """The world model."""
        return self.model

    @spanned("world_model")
    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Dream; nothing learns from the policy's use of its dreams."""
        belief, known = (tensordict.get(key).detach() for key in self.in_keys[:2])
        with torch.no_grad():
            futures = self.model.candidates(belief, known, tensordict.get(keys.ACTION_MASK) if self.masked else None)
            facts = torch.stack(
                (
                    symlog(self.model.expected_return(futures)),
                    futures["confidence"],
                    torch.ones_like(futures["confidence"]),
                ),
                -1,
            )  # [..., P, 3]
            first = futures["actions"][..., 0].unsqueeze(-1).expand_as(facts)
            nothing = facts.new_zeros(*facts.shape[:-2], self.model.heads[0], 3)
            imagined = nothing.scatter(-2, first, facts).flatten(-2)  # what was imagined twice is the same
        tensordict.set(keys.FUTURES, futures)
        return tensordict.set(keys.IMAGINED, imagined)


class WorldModelLoss(nn.Module):
    """Losses of foreseeing ``open_loop`` steps from each ``stride``-th frame of sequences [B, T] whose encoder has run.

    Reads ``belief``, ``action``, ``reward`` (scaled), ``done``, ``terminated`` and ``value_target``; frames after an
    episode's end, after the sequence's end and of the dead do not count. Writes ``loss_world_state``,
    ``loss_world_reward``, ``loss_world_end``, ``loss_world_value``, ``loss_world_proposal``, and ``world_error`` (mean
    absolute error of the own state after one step).
    """

    in_keys = (keys.REWARD, keys.DONE, keys.TERMINATED, keys.VALUE_TARGET)

    def __init__(self, model: WorldModel) -> None:
        super().__init__()
        self.model, self.coeff = model, model.config.coeff

    @spanned("world_model")
    def forward(self, tensordict: TensorDictBase) -> TensorDict:
        """Means over the frames that count."""
        model, steps, stride = self.model, tensordict.shape[1], self.model.config.stride
        mean, known = tensordict.get((keys.BELIEF, "mean")), tensordict.get((keys.BELIEF, "known_state"))
        mean = mean if model.config.shapes_perception else mean.detach()
        action = one_hot_actions(tensordict.get(keys.ACTION), model.heads)
        reward, done, terminated, target = (tensordict.get(key).squeeze(-1) for key in self.in_keys)
        valid = tensordict.get(keys.VALID, torch.ones_like(done))
        losses = dict.fromkeys(("state", "reward", "end"), torch.zeros((), device=mean.device))

        # an open-loop rollout from every stride-th frame: true actions go in, true observations do not
        belief, own, counts, error = mean[:, ::stride], known[:, ::stride], valid[:, ::stride], None
        for ahead in range(min(model.config.open_loop, steps - 1)):
            acted, earned, ended, died = (_later(part, ahead, stride) for part in (action, reward, done, terminated))
            outcome = model(belief, own, acted)
            # what would follow an episode's end is not there to be foreseen; its last reward is
            goes_on = counts & ~ended & _before(steps, ahead + 1, done)[::stride]
            future_belief, future_own = (_later(part, ahead + 1, stride) for part in (mean.detach(), known))
            # each head of the ensemble is taught alone, or their disagreement would mean nothing
            opinions = outcome["opinions"]
            own_error = ((opinions[..., :-1] - future_own.unsqueeze(-2)) / CHANGE).square().mean((-1, -2))
            belief_error = (outcome["belief"] - future_belief).square().mean(-1)
            reward_error = (opinions[..., -1] - symlog(earned).unsqueeze(-1)).square().mean(-1)
            end_error = F.binary_cross_entropy_with_logits(outcome["end"], died.float(), reduction="none")
            losses["state"] = losses["state"] + masked_mean(own_error + 0.1 * belief_error, goes_on)
            losses["reward"] = losses["reward"] + masked_mean(reward_error, counts)
            losses["end"] = losses["end"] + masked_mean(end_error, counts)
            if error is None:
                error = masked_mean((outcome["known_state"] - future_own).abs().mean(-1), goes_on).detach()
                if torch.is_grad_enabled():  # not where it is only judged
                    model.notice(masked_mean(spread(opinions), counts).detach())
            belief, own, counts = outcome["belief"], outcome["known_state"], goes_on

        # what a dream is worth at its end, and what the agent would do in one
        losses["value"] = masked_mean((model.worth(mean.detach(), known) - symlog(target)).square(), valid)
        proposal = model.propose(mean.detach(), known)
        first = action[..., : model.heads[0]].argmax(-1)
        losses["proposal"] = masked_mean(F.cross_entropy(proposal.movedim(-1, 1), first, reduction="none"), valid)
        result = {f"loss_world_{name}": self.coeff * value for name, value in losses.items()}
        return TensorDict({**result, "world_error": losses["state"].detach() if error is None else error})


def _later(values: Tensor, ahead: int, stride: int) -> Tensor:
    """Values [B, T, ...] of ``ahead`` frames after each ``stride``-th one; the last ones are those of the start and do
    not count.
    """
    return values.roll(-ahead, 1)[:, ::stride]


def _before(steps: int, ahead: int, like: Tensor) -> Tensor:
    """Frames that have another one ``ahead`` frames later, bool [T]."""
    return torch.arange(steps, device=like.device) < steps - ahead
