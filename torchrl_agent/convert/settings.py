"""Hyper-parameters of Stable-Baselines3 by this project's names, and the other way round."""

from __future__ import annotations

import functools
from typing import Any

from torchrl_agent.convert import layout, off_policy
from torchrl_agent.convert.archive import Archive
from torchrl_agent.convert.checks import policy_text
from torchrl_agent.convert.normalization import Normalization

HYPERPARAMETERS = {
    "n_envs": "world.num_envs",
    **layout.hyperparameters(gamma="gamma", gae_lambda="lmbda", ent_coef="entropy_coeff", vf_coef="critic_coeff"),
    **layout.hyperparameters(max_grad_norm="max_grad_norm", normalize_advantage="normalize_advantage"),
    **layout.hyperparameters(n_steps="rollout_steps", learning_rate="learning_rate.initial"),
}
"""Stable-Baselines3's names and this project's, for PPO and A2C."""
PPO_HYPERPARAMETERS = {
    **layout.hyperparameters(n_epochs="num_epochs", batch_size="minibatch_size", target_kl="target_kl"),
    **layout.hyperparameters(clip_range="clip_epsilon", clip_range_vf="clip_value"),
}
"""Hyper-parameters that only PPO has."""
KNOWN = {
    "PPO": HYPERPARAMETERS | PPO_HYPERPARAMETERS,
    "RecurrentPPO": HYPERPARAMETERS | PPO_HYPERPARAMETERS,
    "A2C": HYPERPARAMETERS,
    **off_policy.HYPERPARAMETERS,
}
"""Hyper-parameters converted from a model, by its algorithm."""
CLIP = "model.clip_observations"
"""The one setting of the model that a JSON file of statistics does not determine."""


def hyperparameters(archive: Archive, normalization: Normalization, notes: list[str]) -> dict[str, Any]:
    """Return the model's hyper-parameters by this project's names; add notes on those unreadable or different."""
    found: dict[str, Any] = {}
    for name, ours in KNOWN[archive.algorithm].items():
        try:
            found[ours] = archive.number(name)
        except LookupError:
            notes.append(f"{name} cannot be read without executing it: {ours} is the configuration's")
    if "algorithm.learning_rate.initial" in found:
        found |= {"algorithm.learning_rate.schedule": "constant", "algorithm.learning_rate.warmup": 0.0}
    if archive.algorithm in layout.OFF_POLICY:
        notes.append(f"{archive.algorithm} goes on as {archive.algorithm} with an empty replay, which fills first")
        found |= off_policy.to_ours(archive, int(found.get("world.num_envs") or 1), notes)
    else:
        _fit_minibatches(archive, found, notes)
    found |= _optimizer(archive, notes)
    clip = "algorithm.clip_rewards"
    found["algorithm.scale_rewards"] = normalization.rewards
    found[clip], found[CLIP] = normalization.clip_rewards, normalization.clip_observations
    if normalization.gamma is None and normalization.statistics:
        notes.append(f"{CLIP} and {clip} are 10, VecNormalize's default, unless you say otherwise: assumed")
    if normalization.gamma not in (None, found.get("algorithm.gamma")):
        notes.append(
            f"VecNormalize had gamma {normalization.gamma}: rewards are scaled with algorithm.gamma from now on"
        )
    return found


def _fit_minibatches(archive: Archive, found: dict[str, Any], notes: list[str]) -> None:
    """Give ``found`` a minibatch size that divides a rollout, and holds whole sequences if the policy is recurrent."""
    steps = int(found.get("algorithm.rollout_steps") or 0)
    frames = steps * int(found.get("world.num_envs") or 0)
    if archive.algorithm == "A2C":
        found |= {"algorithm.num_epochs": 1, "algorithm.minibatch_size": frames}
    wanted = int(found.get("algorithm.minibatch_size") or 0)
    least = steps if archive.algorithm == "RecurrentPPO" else 1
    if not (frames and wanted) or (frames % wanted == 0 and wanted % least == 0):
        return
    fitting = [size for size in range(least, frames + 1, least) if frames % size == 0]
    size = max((size for size in fitting if size <= wanted), default=fitting[0])
    found["algorithm.minibatch_size"] = size
    notes.append(
        f"algorithm.minibatch_size is {size}, since batches of {wanted} do not make up the {frames} frames of a rollout"
    )


def _optimizer(archive: Archive, notes: list[str]) -> dict[str, Any]:
    """Return the settings of the optimizer: RMSprop of an A2C, unless it was trained with Adam."""
    options = archive.optimizer
    usual = 1e-8 if archive.algorithm in layout.OFF_POLICY else 1e-5
    result = {"algorithm.adam_epsilon": options.get("eps", usual)}
    if options.get("decoupled_weight_decay"):
        result["algorithm.weight_decay"] = options["weight_decay"]
    if archive.algorithm == "A2C":
        rmsprop = "alpha" in options or not options
        result |= {"algorithm.optimizer": "rmsprop" if rmsprop else "adam", "algorithm.num_minibatches": 1}
        result["algorithm.rmsprop_decay"] = options.get("alpha", 0.99)
        if rmsprop and "RMSpropTFLike" in str(policy_text(archive, "optimizer_class")):
            notes.append("RMSprop adds its epsilon to the root from now on, where RMSpropTFLike added it to the square")
    return result


def known(experiment: Any, names: dict[str, str]) -> dict[str, Any]:
    """Return the run's hyper-parameters among ``names``, by Stable-Baselines3's names."""
    found = {}
    for theirs, ours in names.items():
        section, *rest = ours.split(".")
        owner = experiment.algorithm
        if section != "world" and hasattr(owner, rest[0]):  # the number of worlds is that of the vector environment
            found[theirs] = functools.reduce(getattr, rest, owner)
    return found
