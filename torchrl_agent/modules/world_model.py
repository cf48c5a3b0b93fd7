"""The world model as a module of the agent: the features of imagined futures that the policy reads, its losses, and
the errors of its predictions.

Shapes: [...] is rows (worlds times agents) in a step, or sequences [B, T] of them; D numbers of a belief, K of the own
state that is exactly known, E heads of the ensemble, P candidate futures of H steps each.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor, nn
from torchrl.modules import recurrent_mode
from typing_extensions import override

from torchrl_agent.core import keys
from torchrl_agent.core.ranks import masked_mean
from torchrl_agent.core.spans import spanned
from torchrl_agent.modules.dynamics import CHANGE, KNOWN, MEAN, WorldModel, WorldModelConfig, dreaming_state, spread
from torchrl_agent.modules.module import AgentModule, Built, ModuleContext
from torchrl_agent.modules.networks import first_head, have_later, one_hot_actions, symexp, symlog
from torchrl_agent.modules.records import auroc, correlation, feature_means, share_of, squared_error
from torchrl_agent.modules.specs import action_masked

__all__ = ["WorldModel", "WorldModelConfig", "WorldModelLoss", "WorldModelModule", "calibration"]

HORIZONS = (1, 5, 15)
"""Numbers of steps ahead at which the world model is evaluated."""
STATE_TOLERANCE = 0.02
"""Largest error of a predicted change of a number of the own state that counts as right."""
CONVICTION = 5.0
"""Largest change of a logit by imagined returns."""
BELIEF_WEIGHT = 0.1
"""Weight of the predicted belief's error beside that of the own state, in the loss of both."""
REWARD_TOLERANCE = 0.1
"""Largest error of a predicted (scaled) reward that counts as right."""


class WorldModelModule(AgentModule):
    """The world model inside a policy: writes ``futures``, and the features of them that the policy reads,
    ``imagination_features`` [..., 3 actions]: for each first action its symlog return, its confidence and a flag, 1 if
    it was imagined at all.
    """

    runs_in_imagination = learns_alone = predicts_rewards = for_discrete_actions = allows_float8 = True

    def __init__(self, model: WorldModel, masked: bool) -> None:
        super().__init__()
        self.model, self.masked = model, masked
        self.acts = model.config.candidates > 0
        self.in_keys = [MEAN, KNOWN, *([keys.FORECAST] if model.forecast_size else [])]
        self.in_keys += [keys.ACTION_MASK] if masked else []
        self.out_keys = [keys.IMAGINATION_FEATURES, keys.FUTURES]
        self.size = 3 * model.heads[0]
        self.recorded_keys = self.replayed_keys = (keys.IMAGINATION_FEATURES,) if self.acts else ()

    @classmethod
    def build(cls, context: ModuleContext) -> Built:
        """Build it if a world model is switched on, with its losses; without candidates it is only trained."""
        config, model = context.config.world_model, context.config
        if config.enabled:
            world_model = WorldModel(
                context.built["perception"].size,
                context.built["perception"].known_size,
                context.heads,
                config,
                model.activation,
                context.gamma,
                context.built["social_model"].forecast_size if config.predict_others else 0,
            )
            module = cls(world_model, action_masked(context.env))
            module.losses.append(WorldModelLoss(module.model))
            yield "world_model", module

    @override
    @staticmethod
    def switch_on(model: Any) -> None:
        """Switch the world model on in a ``ModelConfig``, with losses that shape the belief too."""
        model.world_model.enabled, model.world_model.coeff = True, model.world_model.coeff or 1.0
        model.world_model.shapes_perception = True

    @override
    @property
    def weights(self) -> nn.Module:
        """The world model."""
        return self.model

    @spanned("world_model")
    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Imagine futures; no gradient passes back from the policy's use of them. In TorchRL's recurrent mode, and in
        :meth:`recall`, futures that a rollout recorded are not imagined again.
        """
        if (recurrent_mode() or self.recalls) and keys.IMAGINATION_FEATURES in tensordict.keys():
            return tensordict
        belief, known = (value.detach() for value in dreaming_state(tensordict))
        with torch.no_grad():
            futures = self.model.candidates(belief, known, tensordict.get(keys.ACTION_MASK) if self.masked else None)
            worth, sure = symlog(self.model.expected_return(futures)), futures["confidence"]
            facts = torch.stack((worth, sure, torch.ones_like(sure)), -1)  # [..., P, 3]
            first = futures["actions"][..., 0].unsqueeze(-1).expand_as(facts)
            nothing = facts.new_zeros(*facts.shape[:-2], self.model.heads[0], 3)
            imagined = nothing.scatter(-2, first, facts).flatten(-2)  # what was imagined twice is the same
        tensordict.set(keys.FUTURES, futures)
        return tensordict.set(keys.IMAGINATION_FEATURES, imagined)


class PolicyImprovement(TensorDictModuleBase):
    """Adds to the logits [..., actions] of first actions their advantage over the other ones in imagination:
    ``softmax(logits + sigma(q))`` (Danihelka et al. 2022, equation 11), where ``q`` is the symlog return of an
    imagined future over the mean of all, and sigma multiplies by ``weight`` and stays within :data:`CONVICTION`.
    """

    def __init__(self, weight: float) -> None:
        super().__init__()
        self.weight = weight
        self.in_keys, self.out_keys = [keys.LOGITS, keys.IMAGINATION_FEATURES], [keys.LOGITS]

    def gains(self, imagined: Tensor) -> Tensor:
        """Gain of each first action's logit, [..., actions], from ``imagination_features`` [..., 3 actions]; 0 for
        actions that were not imagined.
        """
        worth, _, there = imagined.unflatten(-1, (-1, 3)).unbind(-1)
        mean = (worth * there).sum(-1, keepdim=True) / there.sum(-1, keepdim=True).clamp_min(1)
        return (self.weight * there * (worth - mean)).clamp(-CONVICTION, CONVICTION)

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Add the gains to ``logits``; those of other heads stay."""
        gains, logits = self.gains(tensordict.get(keys.IMAGINATION_FEATURES)), tensordict.get(keys.LOGITS)
        return tensordict.set(keys.LOGITS, logits + F.pad(gains, (0, logits.shape[-1] - gains.shape[-1])))


class _Frames(NamedTuple):
    """Frames of sequences [B, T], which a world model is trained to predict."""

    belief: Tensor
    """[B, T, D + F], without a gradient: the prediction moves to the belief, never the belief to the prediction."""
    known: Tensor
    """Own state, [B, T, K]."""
    action: Tensor
    """One-hot choices, [B, T, sum of heads]."""
    reward: Tensor
    """Scaled rewards, [B, T], as all that follow."""
    done: Tensor
    terminated: Tensor
    value: Tensor
    """Symlog of the value target."""

    def later(self, ahead: int, stride: int) -> _Frames:
        """The frames ``ahead`` steps after each ``stride``-th one; where the sequence has ended, those of its
        beginning, which do not count.
        """
        return _Frames(*(part.roll(-ahead, 1)[:, ::stride] for part in self))


class WorldModelLoss(nn.Module):
    """Losses of predicting ``open_loop`` steps from each ``stride``-th frame of sequences [B, T] whose encoder has run.

    Reads ``belief``, ``action``, ``reward`` (scaled), ``done``, ``terminated`` and ``value_target``; frames after an
    episode's end, after the sequence's end and of dead agents do not count. Writes ``loss_world_state``,
    ``loss_world_reward``, ``loss_world_end``, ``loss_world_value``, ``loss_world_proposal``, and ``world_error`` (mean
    absolute error of the own state after one step).
    """

    subsampled = True
    in_keys = (keys.REWARD, keys.DONE, keys.TERMINATED, keys.VALUE_TARGET)

    def __init__(self, model: WorldModel) -> None:
        super().__init__()
        self.model, self.coeff = model, model.config.coeff

    @spanned("world_model")
    def forward(self, tensordict: TensorDictBase) -> TensorDict:
        """Compute the losses, means over the frames that count."""
        model = self.model
        mean, known = dreaming_state(tensordict)
        mean = mean if model.config.shapes_perception else mean.detach()
        action = one_hot_actions(tensordict.get(keys.ACTION), model.heads)
        reward, done, terminated, target = (tensordict.get(key).squeeze(-1) for key in self.in_keys)
        frames = _Frames(mean.detach(), known, action, reward, done, terminated, symlog(target))
        valid = tensordict.get(keys.VALID, torch.ones_like(done))
        losses, error = self._rollout_losses(frames, mean, valid)

        # value at the end of an imagined future, and the agent's action in one
        value = model.symlog_value(frames.belief, known)
        losses["value"] = losses["value"] + masked_mean((value - frames.value).square(), valid)
        proposal = model.propose(frames.belief, known)
        first = action[..., : model.heads[0]].argmax(-1)
        losses["proposal"] = masked_mean(F.cross_entropy(proposal.movedim(-1, 1), first, reduction="none"), valid)
        correlation = self._imagination_correlation(tensordict, valid)
        result = {f"loss_world_{name}": self.coeff * value for name, value in losses.items()}
        return TensorDict({**result, "world_error": error, **correlation})

    def _rollout_losses(self, frames: _Frames, mean: Tensor, valid: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """Losses, and the error of the own state after one step, of open-loop rollouts from every ``stride``-th frame:
        true actions go in, true observations do not.

        Args:
            frames: [B, T].
            mean: beliefs [B, T, D + F] from which rollouts begin, with a gradient if they learn to be predictable.
            valid: frames that count, bool [B, T].
        """
        model, config, steps = self.model, self.model.config, valid.shape[1]
        losses = dict.fromkeys(("state", "reward", "end", "value"), torch.zeros((), device=mean.device))
        error = losses["state"]
        now = frames.later(0, config.stride)
        belief, own, counts = (part[:, :: config.stride] for part in (mean, frames.known, valid))
        for ahead in range(1, min(config.open_loop, steps - 1) + 1):
            outcome, following = model(belief, own, now.action), frames.later(ahead, config.stride)
            # nothing follows an episode's end that could be predicted; its last reward can be
            goes_on = counts & ~now.done & have_later(frames.done, ahead)[:: config.stride]
            found = self._step_losses(outcome, now, following, counts, goes_on)
            losses = {name: loss + found[name] for name, loss in losses.items()}
            if ahead == 1:
                error = masked_mean((outcome["proprioception"] - following.known).abs().mean(-1), goes_on).detach()
                if torch.is_grad_enabled():  # not in evaluation
                    model.update_usual_spread(masked_mean(spread(outcome["opinions"]), counts).detach())
            now, belief, own, counts = following, outcome["belief"], outcome["proprioception"], goes_on
        return losses, error

    def _step_losses(
        self, outcome: dict[str, Tensor], now: _Frames, following: _Frames, counts: Tensor, goes_on: Tensor
    ) -> dict[str, Tensor]:
        """Losses of one predicted step: means over the steps that count, and, for the states after them, over those
        after which the episode goes on.
        """
        # each head of the ensemble is trained alone, or their disagreement would mean nothing
        opinions = outcome["opinions"]
        # own state in units of a usual change, belief, symlog reward, and -log p of the episode's end
        own_error = ((opinions[..., :-1] - following.known.unsqueeze(-2)) / CHANGE).square().mean((-1, -2))
        belief_error = (outcome["belief"] - following.belief).square().mean(-1)
        reward_error = (opinions[..., -1] - symlog(now.reward).unsqueeze(-1)).square().mean(-1)
        end_error = F.binary_cross_entropy_with_logits(outcome["end"], now.terminated.float(), reduction="none")
        losses = {
            "state": masked_mean(own_error + BELIEF_WEIGHT * belief_error, goes_on),
            "reward": masked_mean(reward_error, counts),
            "end": masked_mean(end_error, counts),
        }
        value = self.model.symlog_value(outcome["belief"], outcome["proprioception"])
        return {**losses, "value": masked_mean((value - following.value).square(), goes_on)}

    def _imagination_correlation(self, tensordict: TensorDictBase, valid: Tensor) -> dict[str, Tensor]:
        """``imagination_correlation``: correlation of the imagined return of the action taken, over the mean of the
        first actions imagined, with the advantage that it turned out to have.
        """
        if keys.IMAGINATION_FEATURES not in tensordict.keys() or keys.ADVANTAGE not in tensordict.keys():
            return {}
        worth, _, imagined = tensordict.get(keys.IMAGINATION_FEATURES).unflatten(-1, (-1, 3)).unbind(-1)
        mean = worth.sum(-1) / imagined.sum(-1).clamp_min(1)
        first = first_head(tensordict.get(keys.ACTION), self.model.heads).unsqueeze(-1)
        counted = valid & (imagined.gather(-1, first).squeeze(-1) > 0)
        promised = worth.gather(-1, first).squeeze(-1) - mean
        return {"imagination_correlation": correlation(promised, tensordict.get(keys.ADVANTAGE).squeeze(-1), counted)}

    def figures(self, data: TensorDictBase, train: TensorDictBase) -> dict[str, Any]:
        """Errors of open-loop predictions.

        Args:
            data: encoded test sequences [R, T].
            train: encoded training sequences, for the mean.

        Returns:
            errors of the own state after 1, 5, 15 steps as fractions of the mean's error, beside those of
            "nothing changes"; fractions of changes of the own state and of rewards within :data:`STATE_TOLERANCE` and
            :data:`REWARD_TOLERANCE` after one step, AUROC of the end, and mean absolute errors by quartiles of
            confidence, the least sure first.
        """
        return {**_open_loop(self.model, data, train), **_one_step(self.model, data), **calibration(self.model, data)}


def _open_loop(model: WorldModel, data: TensorDictBase, train: TensorDictBase) -> dict[str, Any]:
    """Errors of the own state after :data:`HORIZONS` steps, as fractions of those of always predicting the mean."""
    (mean, own), valid = dreaming_state(data), data.get(keys.VALID)
    done = data.get(keys.DONE).squeeze(-1)
    longest = max(horizon for horizon in (1, *HORIZONS) if horizon < own.shape[1])
    starts = own.shape[1] - longest
    actions = one_hot_actions(data.get(keys.ACTION), model.heads)
    usual = feature_means(train.get(KNOWN), train.get(keys.VALID))
    belief, dreamed, counted = mean[:, :starts], own[:, :starts], valid[:, :starts]
    figures: dict[str, Any] = {}
    for ahead in range(longest):
        outcome = model(belief, dreamed, actions[:, ahead : ahead + starts])
        belief, dreamed = outcome["belief"], outcome["proprioception"]
        counted = counted & ~done[:, ahead : ahead + starts]
        if ahead + 1 in HORIZONS:
            truth = own[:, ahead + 1 : ahead + 1 + starts]
            by_mean = squared_error(usual, truth, counted)
            for name, guess in (("", dreamed), ("_of_no_change", own[:, :starts])):
                error = squared_error(guess, truth, counted)
                figures[f"state_error_{ahead + 1}{name}"] = share_of(error, by_mean)
    return figures


def _one_step(model: WorldModel, data: TensorDictBase) -> dict[str, Any]:
    """Fractions of right predictions one step ahead."""
    actions = one_hot_actions(data.get(keys.ACTION), model.heads)
    (belief, own), valid = dreaming_state(data), data.get(keys.VALID)
    outcome, done = model(belief, own, actions), data.get(keys.DONE).squeeze(-1)
    goes_on = valid[:, :-1] & ~done[:, :-1]
    error = (outcome["proprioception"][:, :-1] - own[:, 1:]).abs()
    change = (own[:, 1:] - own[:, :-1]).abs()
    reward = data.get(keys.REWARD).squeeze(-1)
    usual = reward[valid].median() if bool(valid.any()) else reward.new_zeros(())
    right, usual_right = ((guess - reward).abs() <= REWARD_TOLERANCE for guess in (symexp(outcome["reward"]), usual))
    terminated = data.get(keys.TERMINATED).squeeze(-1)
    return {
        "state_tolerance": STATE_TOLERANCE,
        "changes_within_tolerance": masked_mean((error <= STATE_TOLERANCE).float().mean(-1), goes_on).item(),
        "no_change_within_tolerance": masked_mean((change <= STATE_TOLERANCE).float().mean(-1), goes_on).item(),
        "reward_tolerance": REWARD_TOLERANCE,
        "rewards_within_tolerance": masked_mean(right.float(), valid).item(),
        "median_reward_within_tolerance": masked_mean(usual_right.float(), valid).item(),
        "end_auroc": auroc(outcome["end"][valid], terminated[valid]),
    }


def calibration(model: WorldModel, data: TensorDictBase) -> dict[str, Any]:
    """Mean absolute error of the own state over an imagined future, by quartiles of the confidence in it."""
    (mean, own), first = dreaming_state(data), first_head(data.get(keys.ACTION), model.heads)
    horizon = min(model.config.horizon, own.shape[1] - 1)
    starts = own.shape[1] - horizon
    plans = first.unfold(1, horizon, 1)[:, :starts].unsqueeze(-2)  # [R, S, 1, H]
    futures = model.imagine(mean[:, :starts], own[:, :starts], plans)
    truth = own[:, 1:].unfold(1, horizon, 1).transpose(-1, -2)  # [R, S, H, K]
    ended = data.get(keys.DONE).squeeze(-1)[:, :-1].unfold(1, horizon, 1).any(-1)
    counted = data.get(keys.VALID)[:, :starts] & ~ended
    error = (futures["states"].squeeze(-3) - truth).abs().mean((-1, -2))[counted]
    confidence = futures["confidence"].squeeze(-1)[counted]
    parts = error[confidence.argsort()].tensor_split(4)
    return {"error_by_confidence_quartile": [part.mean().item() if len(part) else None for part in parts]}
