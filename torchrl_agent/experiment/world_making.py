"""Batched worlds of the target that a configuration names, with transforms by their names: ``num_envs`` goes to the
class or function that makes the batch.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import gymnasium
from torchrl.envs import EnvBase, SerialEnv, TransformedEnv
from torchrl.envs import transforms as torchrl_transforms

from torchrl_agent.core.text import did_you_mean
from torchrl_agent.trust.allowed import TRANSFORM_NAMES
from torchrl_agent.trust.targets import build, find

NUM_ENVS, DEVICE = "num_envs", "device"
BATCH_ARGUMENTS = {
    "GymEnv": NUM_ENVS,
    **dict.fromkeys(("BraxEnv", "JumanjiEnv", "MujocoPlaygroundEnv"), "batch_size"),
    **dict.fromkeys(("ParallelEnv", "SerialEnv"), "num_workers"),
}
"""TorchRL's classes whose number of worlds has another name, or is hidden among other arguments."""

GYMNASIUM = "envs.libs.gymnasium.VectorGymEnv"
"""Class that makes a batch of Gymnasium's worlds."""
WRAPPED = ("base_env", "env")
"""Names of TransformedEnv's argument for the environment that it wraps."""


def build_batched(arguments: Mapping[str, Any]) -> EnvBase:
    """The batched environment of ``{"_target_": ..., "num_envs": N, "device": ..., **arguments}``.

    A target that takes no ``num_envs`` may make one world: then ``N`` of them are stepped one after another. It may be
    a world of Gymnasium or a function that makes one, too.

    Raises:
        ValueError: the target makes no environment, or a batch of another size.
        Exception: any that importing or making it raises.
    """
    arguments = dict(arguments)
    number, device = arguments.pop(NUM_ENVS, None), arguments.pop(DEVICE, None)
    if isinstance(number, int) and number < 1:
        raise ValueError(f"num_envs is {number}: give a whole number of worlds, at least 1.")
    target = find(str(arguments["_target_"]))
    inner = next((name for name in WRAPPED if isinstance(arguments.get(name), Mapping)), None)
    if inner is not None and isinstance(target, type) and issubclass(target, TransformedEnv):
        arguments[inner] = build_batched({**arguments[inner], NUM_ENVS: number, DEVICE: device})
        arguments.setdefault("auto_unwrap", True)
        return _checked(build(arguments), number)
    if isinstance(target, type) and issubclass(target, gymnasium.Env):
        return _gymnasium(arguments, number, device)
    name = BATCH_ARGUMENTS.get(getattr(target, "__name__", ""), NUM_ENVS)
    pixels = arguments.get("from_pixels", False)  # TorchRL's GymEnv has no pictures of several worlds
    if number is not None and name not in arguments and _takes(target, name) and not pixels:
        arguments[name] = [number] if name == "batch_size" else number
    if device is not None and _takes(target, DEVICE):
        arguments[DEVICE] = device
    env = build(arguments)
    if isinstance(env, gymnasium.Env):
        env.close()
        return _gymnasium(arguments, number, device)
    if isinstance(env, EnvBase) and len(env.batch_size) == 0:
        env.close()
        env = SerialEnv(number or 1, partial(build, arguments))
    env = _checked(env, number)
    return env if device is None or str(env.device) == device else env.to(device)


def _gymnasium(arguments: dict[str, Any], number: int | None, device: str | None) -> EnvBase:
    """A batch of a world of Gymnasium that a target makes; keys of ``VectorGymEnv`` go to that."""
    batch = find(GYMNASIUM)
    of_batch = inspect.signature(batch.__init__).parameters
    taken = {name: arguments[name] for name in arguments if name in of_batch and name != "env_name"}
    own = {name: value for name, value in arguments.items() if name not in taken}

    def make(**more: Any) -> gymnasium.Env:
        return build({**own, **more})

    make.__name__ = str(arguments["_target_"]).rpartition(".")[2]
    return batch(make, number or 1, device=device, **taken)


def _takes(target: Any, name: str) -> bool:
    """True if a class or function has an argument of this name, or a function takes any. Classes that take any pass
    them on to their bases; those of TorchRL name the number of worlds nowhere, so it is listed in the table.
    """
    kind = isinstance(target, type)
    listed = name == DEVICE or getattr(target, "__name__", "") in BATCH_ARGUMENTS
    for each in [base.__init__ for base in target.__mro__ if "__init__" in vars(base)] if kind else [target]:
        taken = inspect.signature(each).parameters
        if name in taken:
            return True
        if not any(argument.kind is argument.VAR_KEYWORD for argument in taken.values()):
            return False
        if listed or not kind:
            return True
    return False


def _checked(env: Any, number: int | None) -> EnvBase:
    if not isinstance(env, EnvBase):
        raise ValueError(f"it is a {type(env).__name__}, no environment of TorchRL or Gymnasium: name what makes one.")
    if len(env.batch_size) != 1:
        raise ValueError(f"it is a batch of shape {tuple(env.batch_size)}: make batches of one axis, [num_envs].")
    if number is not None and env.batch_size[0] != number:
        raise ValueError(
            f"it is a batch of {env.batch_size[0]}, whatever num_envs is, but evaluation and films need other numbers "
            "than training: let a function make it that takes num_envs."
        )
    return env


# --- transforms ------------------------------------------------------------------------------------------------------

TRANSFORMS = "transforms"
"""Key of a world's transforms."""
OF_REWARDS = ("BinarizeReward", "LineariseRewards", "RewardClipping", "RewardScaling", "SignTransform")
"""Transforms of the rewards for training, not of those by which an agent is judged: evaluations leave them out."""


def with_transforms(env: EnvBase, transforms: Sequence[str | Mapping[str, Any]], evaluation: bool = False) -> EnvBase:
    """A world with TorchRL's transforms, the first one innermost.

    Args:
        transforms: names in ``torchrl.envs.transforms``, or ``{name: arguments}``.
        evaluation: leave out those of rewards.

    Raises:
        ValueError: a transform is unknown, its arguments do not fit, or it cannot be put on this world.
    """
    for name, arguments in map(transform_arguments, transforms):
        if evaluation and name in OF_REWARDS:
            continue
        there = {*env.observation_spec.keys(True), *env.reward_keys, *env.done_keys}
        missing = [key for key in arguments.get("in_keys", ()) if key not in there]
        if missing:
            raise ValueError(
                f"world.transforms: {name} reads {missing[0]!r}, which the world does not show"
                f"{did_you_mean(missing[0], there)}: look at its in_keys, and the order of the transforms."
            )
        try:
            env = TransformedEnv(env, getattr(torchrl_transforms, name)(**arguments), auto_unwrap=True)
            env.fake_tensordict()  # what does not fit shows here
        except Exception as error:  # of many kinds
            reason = " ".join(str(error).split()) or type(error).__name__
            raise ValueError(
                f"world.transforms: {name} cannot be put here ({reason}): check its arguments, and the order of the "
                "transforms."
            ) from None
    return env


def transform_arguments(transform: str | Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The name and the arguments of a transform as listed.

    Raises:
        ValueError: it is no allowed transform, or has another form.
    """
    if not isinstance(transform, str) and (not isinstance(transform, Mapping) or len(transform) != 1):
        raise ValueError(f"world.transforms holds {transform}: give each as NAME or {{NAME: {{ARGUMENT: VALUE}}}}.")
    name, arguments = (transform, {}) if isinstance(transform, str) else next(iter(transform.items()))
    if name not in TRANSFORM_NAMES:
        raise ValueError(
            f"world.transforms names {name!r}, which there is not{did_you_mean(name, TRANSFORM_NAMES)}: use some of "
            f"{', '.join(sorted(TRANSFORM_NAMES))}."
        )
    return name, dict(arguments or {})
