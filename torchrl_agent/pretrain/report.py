"""What a pre-trained module can do, in figures, each beside what is possible without it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from tensordict import TensorDictBase
from torch import Tensor, nn

from torchrl_agent import keys
from torchrl_agent.models.networks import masked_mean, one_hot_actions, symexp
from torchrl_agent.models.social_model import LABELS, SocialModel, follow
from torchrl_agent.models.world_model import WorldModel

HORIZONS = (1, 5, 15)
"""Steps ahead that the world model is judged by."""
STATE_TOLERANCE = 0.02
"""A foreseen change of a number of the own state is right if it is no further off."""
REWARD_TOLERANCE = 0.1
"""A foreseen (scaled) reward is right if it is no further off."""


def perception_figures(
    decoder: nn.Module, predictor: nn.Module, heads: Sequence[int], data: TensorDictBase, train: TensorDictBase
) -> dict[str, float | None]:
    """Errors of seeing again and of foreseeing, as shares of the error of always saying the mean (which is 1).

    Args:
        decoder: from a belief to the normalised observation.
        predictor: from a belief and an action to the next one.
        heads: choices of each discrete action.
        data: encoded validation sequences [R, T].
        train: encoded training sequences, for the mean.
    """
    seen, valid = data.get(keys.NORMALIZED), data.get(keys.VALID)
    following = valid[:, :-1] & ~data.get(keys.DONE)[:, :-1, 0]
    mean = _mean(train.get(keys.NORMALIZED), train.get(keys.VALID))
    belief, actions = data.get((keys.BELIEF, "mean")), one_hot_actions(data.get(keys.ACTION), heads)
    later = seen[:, 1:]
    foreseen = predictor(torch.cat((belief, actions), -1))[:, :-1]
    by_mean = _error(mean, later, following)
    return {
        "reconstruction_error": _ratio(_error(decoder(belief), seen, valid), _error(mean, seen, valid)),
        "prediction_error": _ratio(_error(foreseen, later, following), by_mean),
        "prediction_error_of_copying_the_last": _ratio(_error(seen[:, :-1], later, following), by_mean),
        "error_of_the_mean": 1.0,
    }


def world_model_figures(model: WorldModel, data: TensorDictBase, train: TensorDictBase) -> dict[str, object]:
    """How well consequences are foreseen without looking.

    Args:
        model: the world model.
        data: encoded validation sequences [R, T].
        train: encoded training sequences, for the mean.

    Returns:
        errors of the own state after 1, 5, 15 steps as shares of the mean's error, beside those of "nothing changes";
        shares of changes of the own state and of rewards within :data:`STATE_TOLERANCE` and :data:`REWARD_TOLERANCE`
        after one step, AUROC of the end, and mean absolute errors by quartiles of confidence, the least sure first.
    """
    own, valid = data.get((keys.BELIEF, "known_state")), data.get(keys.VALID)
    done = data.get(keys.DONE).squeeze(-1)
    longest = max(horizon for horizon in (1, *HORIZONS) if horizon < own.shape[1])
    starts = own.shape[1] - longest
    actions = one_hot_actions(data.get(keys.ACTION), model.heads)
    mean = _mean(train.get((keys.BELIEF, "known_state")), train.get(keys.VALID))
    belief, dreamt, counted = data.get((keys.BELIEF, "mean"))[:, :starts], own[:, :starts], valid[:, :starts]
    figures: dict[str, object] = {}
    for ahead in range(longest):
        outcome = model(belief, dreamt, actions[:, ahead : ahead + starts])
        belief, dreamt = outcome["belief"], outcome["known_state"]
        counted = counted & ~done[:, ahead : ahead + starts]
        if ahead + 1 in HORIZONS:
            truth = own[:, ahead + 1 : ahead + 1 + starts]
            by_mean = _error(mean, truth, counted)
            figures[f"state_error_{ahead + 1}"] = _ratio(_error(dreamt, truth, counted), by_mean)
            figures[f"state_error_{ahead + 1}_of_no_change"] = _ratio(_error(own[:, :starts], truth, counted), by_mean)
    return figures | _one_step(model, data, actions) | calibration(model, data)


def _one_step(model: WorldModel, data: TensorDictBase, actions: Tensor) -> dict[str, float]:
    belief, own, valid = data.get((keys.BELIEF, "mean")), data.get((keys.BELIEF, "known_state")), data.get(keys.VALID)
    outcome, done = model(belief, own, actions), data.get(keys.DONE).squeeze(-1)
    goes_on = valid[:, :-1] & ~done[:, :-1]
    error = (outcome["known_state"][:, :-1] - own[:, 1:]).abs()
    change = (own[:, 1:] - own[:, :-1]).abs()
    reward = data.get(keys.REWARD).squeeze(-1)
    usual = reward[valid].median() if bool(valid.any()) else reward.new_zeros(())
    reward_right = (symexp(outcome["reward"]) - reward).abs() <= REWARD_TOLERANCE
    terminated = data.get(keys.TERMINATED).squeeze(-1)
    return {
        "state_tolerance": STATE_TOLERANCE,
        "changes_within_tolerance": masked_mean((error <= STATE_TOLERANCE).float().mean(-1), goes_on).item(),
        "no_change_within_tolerance": masked_mean((change <= STATE_TOLERANCE).float().mean(-1), goes_on).item(),
        "reward_tolerance": REWARD_TOLERANCE,
        "rewards_within_tolerance": masked_mean(reward_right.float(), valid).item(),
        "median_reward_within_tolerance": masked_mean(
            ((reward - usual).abs() <= REWARD_TOLERANCE).float(), valid
        ).item(),
        "end_auroc": auroc(outcome["end"][valid], terminated[valid]),
    }


def calibration(model: WorldModel, data: TensorDictBase) -> dict[str, object]:
    """Mean absolute error of the own state over an imagined future, by quartiles of the confidence in it."""
    own, action = data.get((keys.BELIEF, "known_state")), data.get(keys.ACTION)
    first = action if len(model.heads) == 1 else action[..., 0]
    horizon = min(model.config.horizon, own.shape[1] - 1)
    starts = own.shape[1] - horizon
    plans = first.unfold(1, horizon, 1)[:, :starts].unsqueeze(-2)  # [R, S, 1, H]
    futures = model.imagine(data.get((keys.BELIEF, "mean"))[:, :starts], own[:, :starts], plans)
    truth = own[:, 1:].unfold(1, horizon, 1).transpose(-1, -2)  # [R, S, H, K]
    ended = data.get(keys.DONE).squeeze(-1)[:, :-1].unfold(1, horizon, 1).any(-1)
    counted = data.get(keys.VALID)[:, :starts] & ~ended
    error = (futures["states"].squeeze(-3) - truth).abs().mean((-1, -2))[counted]
    confidence = futures["confidence"].squeeze(-1)[counted]
    parts = error[confidence.argsort()].tensor_split(4)
    return {"error_by_confidence_quartile": [part.mean().item() if len(part) else None for part in parts]}


def social_figures(
    model: SocialModel, data: TensorDictBase, train: TensorDictBase, meter_names: Sequence[str]
) -> dict[str, float]:
    """How well others are read, among those who are seen.

    Args:
        model: the social model.
        data: validation sequences [R, T] on which it has run.
        train: training sequences on which it has run, for what is most frequent.
        meter_names: of the others' meters, in order.
    """
    social, meters = data.get(keys.SOCIAL), data.get(LABELS[1])
    need, seen, following, acted = _labels(model, data)
    usual_need, was_seen, usual_action, had_acted = _labels(model, train)
    frequent_need = _most_frequent(usual_need, was_seen, model.goals)
    frequent_action = _most_frequent(usual_action, had_acted, model.actions)
    figures = {
        "goal_accuracy": masked_mean((social["goal"].argmax(-1) == need).float(), seen).item(),
        "goal_accuracy_of_the_most_frequent": masked_mean((need == frequent_need).float(), seen).item(),
        "action_accuracy": masked_mean((social["next_action"].argmax(-1) == following).float(), acted).item(),
        "action_accuracy_of_the_most_frequent": masked_mean((following == frequent_action).float(), acted).item(),
        "meters_error": masked_mean((social["meters"] - meters).abs().mean(-1), seen).item(),
    }
    known = _mean(train.get(LABELS[1]), was_seen)
    if len(meter_names) == model.meters:
        for place, name in enumerate(meter_names):
            truth = meters[..., place]
            figures[f"{name}_error"] = masked_mean((social["meters"][..., place] - truth).abs(), seen).item()
            figures[f"{name}_error_of_the_mean"] = masked_mean((known[place] - truth).abs(), seen).item()
    return figures


def policy_figures(logits: Tensor, data: TensorDictBase, train: TensorDictBase) -> dict[str, float]:
    """How often the likeliest action is the player's, in the first head of the action.

    Args:
        logits: of the first head on validation sequences, illegal actions masked out, [R, T, actions].
        data: validation sequences.
        train: training sequences, for what is most frequent.
    """
    (action, usual), valid = (
        (_first_head(part.get(keys.ACTION), logits) for part in (data, train)),
        data.get(keys.VALID),
    )
    frequent = _most_frequent(usual, train.get(keys.VALID), logits.shape[-1])
    return {
        "accuracy": masked_mean((logits.argmax(-1) == action).float(), valid).item(),
        "accuracy_of_the_most_frequent": masked_mean((action == frequent).float(), valid).item(),
    }


def auroc(score: Tensor, positive: Tensor) -> float | None:
    """Probability that a positive case has a higher score than a negative one, ties counting half (Mann and Whitney
    1947); None without cases of both kinds.

    Args:
        score: [cases].
        positive: bool [cases].
    """
    count, others = int(positive.sum()), int((~positive).sum())
    if not count or not others:
        return None
    _, place, counts = score.unique(return_inverse=True, return_counts=True)
    last = counts.cumsum(0).double()
    rank = (last - (counts.double() - 1) / 2)[place]  # mean rank of equal scores, from 1 on
    return ((rank[positive].sum() - count * (count + 1) / 2) / (count * others)).item()


def _labels(model: SocialModel, data: TensorDictBase) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """True goals, who is seen, what they do next, and of whom that is known; each [R, T, V]."""
    need, last_action = data.get(LABELS[0]), data.get(LABELS[2])
    visible, number = (data.get((keys.BELIEF, name)) for name in ("visible", "number"))
    seen = visible & data.get(keys.VALID).unsqueeze(-1)
    following, again = follow(number, last_action, visible, model.agents)
    goes_on = ~data.get(keys.DONE)
    goes_on[:, -1] = False
    return need, seen, following, seen & again & goes_on


def _first_head(action: Tensor, logits: Tensor) -> Tensor:
    return action if action.ndim == logits.ndim - 1 else action[..., 0]


def _most_frequent(values: Tensor, counted: Tensor, count: int) -> Tensor:
    return torch.bincount(values[counted], minlength=count).argmax()


def _mean(values: Tensor, counted: Tensor) -> Tensor:
    """Mean [F] of the counted values [..., F]."""
    return torch.where(counted.unsqueeze(-1), values, 0.0).flatten(0, -2).sum(0) / counted.sum().clamp_min(1)


def _error(guess: Tensor, truth: Tensor, counted: Tensor) -> float:
    return masked_mean((guess - truth).square().mean(-1), counted).item()


def _ratio(error: float, baseline: float) -> float | None:
    """A share of the baseline; None if the baseline makes no error either."""
    return error / baseline if baseline > 0 and math.isfinite(error) else None
