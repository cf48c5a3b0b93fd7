"""The contract between a world and the learner, checked on any batched TorchRL environment before training begins."""

from __future__ import annotations

import torch
from tensordict import TensorDictBase
from tensordict.utils import NestedKey
from torchrl.data import Bounded, Composite, TensorSpec
from torchrl.envs import EnvBase

from torchrl_agent.core import keys
from torchrl_agent.core.abilities import abilities, world_name
from torchrl_agent.core.devices import forked_random
from torchrl_agent.modules.specs import NO_BOUND, agent_group, group_spec, observation_shapes

STEPS = 3
"""Number of random steps to check."""


def check_world(env: EnvBase) -> None:
    """Check that training can rely on a world: its specs first, then that the results of a reset and a few random steps
    have the keys, shapes and types of the specs and are finite.

    The world is left in the middle of an episode: seed and reset it afterward. The global random state is not touched.

    Args:
        env: any batched TorchRL environment, such as ``MyWorld(num_envs=4)``.

    Raises:
        ValueError: the first violation, in one sentence with its fix.
    """
    name = world_name(env)
    if not isinstance(env, EnvBase) or len(env.batch_size) != 1:
        raise ValueError(f"{name} is no batched TorchRL environment: give it a batch_size of one axis, [num_envs].")
    abilities(env).check_game()
    _check_specs(env, name)
    with forked_random(env.device), torch.no_grad():
        root = _call(name, "reset", env.reset)
        _compare(name, "reset", root, env.observation_spec)
        for _ in range(STEPS):
            root.set(env.action_key, _random_action(env, root))
            played, root = _call(name, "step", env.step_and_maybe_reset, root)
            following = played.get(keys.NEXT)
            for spec in (env.observation_spec, env.full_reward_spec, env.full_done_spec):
                _compare(name, "step", following, spec)
            _compare(name, "reset", root, env.observation_spec)


def _check_specs(env: EnvBase, name: str) -> None:
    n, group = env.batch_size[0], agent_group(env)
    rows = tuple(group_spec(env).shape)
    for key in observation_shapes(env):
        kind = group_spec(env)[key].dtype
        if kind not in (torch.float32, torch.uint8):
            raise ValueError(
                f"the observation {key} of {name} has type {_kind(kind)}: its spec must be float32, or uint8 for "
                "pictures; let a function make the world, wrap it in TransformedEnv(world, DoubleToFloat()) if it is "
                "float64, and name the function as world._target_."
            )
    reward = env.full_reward_spec[env.reward_key]
    if tuple(reward.shape) != (*rows, 1) or reward.dtype != torch.float32:
        raise ValueError(
            f"the reward of {name} has shape {tuple(reward.shape)} and type {_kind(reward.dtype)}: its spec must be "
            f"float32 of shape {(*rows, 1)}, one reward per {'world' if group is None else 'agent'}."
        )
    done = env.full_done_spec
    for key in (keys.DONE, keys.TERMINATED):
        if key not in done.keys():
            raise ValueError(f"{name} has no {key!r} for whole worlds: its done_spec needs one of shape ({n}, 1).")
        if tuple(done[key].shape) != (n, 1) or done[key].dtype != torch.bool:
            raise ValueError(
                f"{key} of {name} has shape {tuple(done[key].shape)} and type {_kind(done[key].dtype)}: its spec must "
                f"be bool of shape ({n}, 1)."
            )
    if keys.EPISODE not in env.observation_spec.keys():
        return
    statistics = env.observation_spec[keys.EPISODE]
    for key in (keys.EPISODE_RETURN, keys.EPISODE_LENGTH):
        if key not in statistics.keys():
            raise ValueError(
                f"the episode statistics of {name} lack {key!r}: report the sum of rewards as 'return' and the number "
                "of steps as 'length'."
            )
    for key, spec in statistics.items():
        if tuple(spec.shape) != (n, 1):
            raise ValueError(f"the statistic {key} of {name} has shape {tuple(spec.shape)}: it must have ({n}, 1).")


def _random_action(env: EnvBase, root: TensorDictBase) -> torch.Tensor:
    """Draw a random legal action, finite where the spec has no bound."""
    spec = env.full_action_spec[env.action_key].clone()
    if isinstance(spec, Bounded) and spec.dtype.is_floating_point:
        ends = (spec.space.low, spec.space.high)
        return _between(*(torch.where(end.abs() > NO_BOUND, end.sign() * torch.inf, end) for end in ends))
    mask = keys.ACTION_MASK if agent_group(env) is None else (agent_group(env), keys.ACTION_MASK)
    if mask in root.keys(True):
        spec.update_mask(root.get(mask))
    return spec.rand()


def _between(low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
    """Draw random numbers between bounds; near the other one where one is infinite, and near 0 where both are."""
    low = torch.where(low.isfinite(), low, torch.where(high.isfinite(), high - 1, -1.0))
    high = torch.where(high.isfinite(), high, low + 2)
    share = torch.rand_like(low)
    return (low * (1 - share) + high * share).clamp(low, high)  # a difference of great bounds would overflow


def _compare(name: str, origin: str, found: TensorDictBase, specs: Composite) -> None:
    """Compare every entry of the specs with the one that a reset or a step returned."""
    for key, spec in specs.items(True, True):
        value = found.get(key, None)
        title = f"{origin} of {name}: {_words(key)}"
        if value is None:
            raise ValueError(f"{title} is missing: return it, or leave it out of the specs.")
        if isinstance(value, torch.Tensor) and isinstance(spec, TensorSpec):
            if value.shape != spec.shape or value.dtype != spec.dtype:
                raise ValueError(
                    f"{title} has shape {tuple(value.shape)} and type {_kind(value.dtype)}, its spec "
                    f"{tuple(spec.shape)} and {_kind(spec.dtype)}: make them agree."
                )
            if not bool(value.isfinite().all()):
                raise ValueError(f"{title} holds NaN or infinity: look at what the world computes it from.")


def _call(name: str, function: str, method, *arguments):
    try:
        return method(*arguments)
    except Exception as error:
        if isinstance(error, ValueError) and "\n" not in str(error):
            raise
        reason = " ".join(str(error).split())
        raise ValueError(f"{function} of {name} failed ({type(error).__name__}: {reason}): fix it.") from error


def _kind(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _words(key: NestedKey) -> str:
    return key if isinstance(key, str) else ".".join(key)
