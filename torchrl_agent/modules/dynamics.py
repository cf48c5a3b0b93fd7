"""The world model's network: it predicts the consequences of actions for beliefs, several steps ahead.

Shapes: [...] is rows (worlds times agents) in a step, or sequences [B, T] of them; D numbers of a belief, K of the own
state that is exactly known, E heads of the ensemble, P candidate futures of H steps each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from tensordict import TensorDict, TensorDictBase
from torch import Tensor, nn

from torchrl_agent.core import keys, ranks
from torchrl_agent.core.bounds import MOST_STEPS, count, number, weight
from torchrl_agent.modules.networks import mlp, one_hot_actions, symexp

MEAN, KNOWN = (keys.BELIEF, "mean"), (keys.BELIEF, "proprioception")
NOTHING, NOVEL_STATE, HIGH_VARIANCE = 0, 1, 2
"""Reasons for low confidence: none; the heads disagree from the first step on; they come to disagree later."""
CHANGE = 0.1
"""Unit in which changes of the own state are predicted, about the size that they have."""
END = 0.5
"""An imagined episode ends with the first step whose probability of being the last is above this."""
UNUSUAL = 2.0
"""Disagreement of more than this many times the usual one is a reason."""


@dataclass
class WorldModelConfig:
    """The world model: dreaming of consequences."""

    enabled: bool = False
    """Use it."""
    hidden_size: int = count(128)
    """Width of its hidden layers."""
    ensemble: int = count(4)
    """Heads of the ensemble; their disagreement gives the confidence."""
    candidates: int = number(4, least=0)
    """P, first actions whose futures the policy reads. 0 for none: the model is then only trained."""
    horizon: int = count(5, MOST_STEPS)
    """Imagination horizon H: steps of each imagined future."""
    open_loop: int = count(5, MOST_STEPS)
    """Open-loop steps predicted in training."""
    stride: int = count(4)
    """Frames between starts of predictions in training. 1 starts from every frame."""
    shapes_perception: bool = False
    """Let its losses change the belief too. That is good in pre-training; beside PPO it cost the agent of
    configs/small_town.yaml half of its return after 120,000 frames (71 against 132)."""
    coeff: float = weight(0.5)
    """Weight of its losses beside PPO's."""
    improvement: float = weight(0.0)
    """w, gain of logits per unit of imagined return. An imagined return that is larger by 1 in its logarithm adds it to
    the logit of its first action (policy improvement); 0 leaves the use of imagination to the controller."""
    predict_others: bool = False
    """Imagine others too. Each imagined step reads what the social model predicts of the others in sight, and predicts
    how that changes."""


class WorldModel(nn.Module):
    """(belief, action) -> next belief, own state, reward, end and value; a residual network, which starts from
    "nothing changes".

    Args:
        belief_size: D.
        known_size: K, size of the agent's exact knowledge of itself.
        heads: number of choices of each discrete action.
        gamma: discount factor of imagined rewards.
        forecast_size: F, size of the forecast of others, which a belief then has behind its own D numbers (see
            :func:`dreaming_state`); 0 for a model without other agents.
    """

    def __init__(
        self,
        belief_size: int,
        known_size: int,
        heads: Sequence[int],
        config: WorldModelConfig,
        activation: str,
        gamma: float,
        forecast_size: int = 0,
    ) -> None:
        super().__init__()
        self.heads, self.config, self.gamma = list(heads), config, gamma
        self.belief_size, self.known_size, self.forecast_size = belief_size, known_size, forecast_size
        belief_size += forecast_size
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
        """Predict one imagined step.

        Args:
            belief: [..., D + F].
            known: the agent's own state, [..., K].
            action: one-hot choices side by side, [..., sum of heads].

        Returns:
            ``belief`` and ``proprioception`` after the step, symlog ``reward`` [...], ``end`` (logit of termination,
            [...]), and every head's prediction of own state and reward, ``opinions`` [..., E, K + 1].
        """
        hidden = self.activation(self.body(torch.cat((belief, known, action), -1)))
        opinions = self.ensemble(hidden).unflatten(-1, (self.config.ensemble, self.known_size + 1))
        opinions = torch.cat((CHANGE * opinions[..., :-1] + known.unsqueeze(-2), opinions[..., -1:]), -1)
        mean = opinions.mean(-2)
        return {
            "belief": belief + self.change(hidden),
            "proprioception": mean[..., :-1],
            "reward": mean[..., -1],
            "end": self.end(hidden).squeeze(-1),
            "opinions": opinions,
        }

    def symlog_value(self, belief: Tensor, known: Tensor) -> Tensor:
        """Symlog value [...] of a belief."""
        return self.value(torch.cat((belief, known), -1)).squeeze(-1)

    def first_head(self, action: Tensor) -> Tensor:
        """Choices [...] of the first head as one-hot actions, [..., sum of heads]; every other head chooses 0."""
        others = [torch.zeros_like(action)] * (len(self.heads) - 1)
        return one_hot_actions(torch.stack([action, *others], -1) if others else action, self.heads)

    def propose(self, belief: Tensor, known: Tensor) -> Tensor:
        """Logits [..., first-head actions] of the agent's predicted action at a belief."""
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
        """Futures (see :meth:`imagine`) of the ``candidates`` most likely legal first actions, each continued by the
        agent's most likely next actions; selective imagination. Where fewer are legal, the most likely one fills up.

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
        ended = torch.zeros(batch, dtype=torch.bool, device=belief.device)
        for step in range(horizon):
            action = choose(step, belief, known)
            outcome = self(belief, known, self.first_head(action))
            # the model is not trained on what follows an end, so an imagined episode that ended keeps its state
            belief, known = (
                torch.where(ended.unsqueeze(-1), old, new)
                for old, new in ((belief, outcome["belief"]), (known, outcome["proprioception"]))
            )
            done = torch.where(ended, 1.0, outcome["end"].sigmoid())
            ended = done > END
            spreads.append(spread(outcome["opinions"]))
            steps.append(
                {
                    "actions": action,
                    "states": known,
                    "rewards": symexp(outcome["reward"]),
                    "dones": done,
                    "values": symexp(self.symlog_value(belief, known)),
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
    def update_usual_spread(self, usual: Tensor) -> None:
        """Move :attr:`usual_spread` toward the heads' mean disagreement [] in a minibatch; if that is not finite, in
        which case the algorithm will skip the update too, nothing changes.
        """
        usual = ranks.mean(usual)
        usual = torch.where(usual.isfinite(), usual.clamp_min(1e-6), self.usual_spread)
        self.usual_spread.lerp_(usual, 0.01)

    def expected_return(self, futures: TensorDictBase) -> Tensor:
        """Expected return of each future, [..., P]: discounted rewards while it lives, and the value at its end."""
        alive, total, discount = torch.ones_like(futures["confidence"]), 0.0, 1.0
        for step in range(futures["rewards"].shape[-1]):
            total = total + discount * alive * futures["rewards"][..., step]
            alive = alive * (1.0 - futures["dones"][..., step])
            discount *= self.gamma
        return total + discount * alive * futures["values"][..., -1]


def dreaming_state(tensordict: TensorDictBase) -> tuple[Tensor, Tensor]:
    """Start of imagined rollouts: the belief's mean, behind it the forecast of others where the social model writes
    one, [..., D + F], and the own state, [..., K].
    """
    mean, known = tensordict.get(MEAN), tensordict.get(KNOWN)
    forecast = tensordict.get(keys.FORECAST, None)
    return (mean if forecast is None else torch.cat((mean, forecast), -1)), known


def spread(opinions: Tensor) -> Tensor:
    """Disagreement of the heads, [...] of [..., E, K + 1]."""
    return opinions.std(-2, correction=0).mean(-1)
