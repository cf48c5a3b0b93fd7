"""Configurations without a file: a world by a prefix and its name, such as ``gym:Hopper-v5``, and the rest by rules."""

from __future__ import annotations

import copy
import functools
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import torch
import yaml
from omegaconf import OmegaConf
from torchrl.envs import EnvBase

from torchrl_agent.core.abilities import abilities
from torchrl_agent.core.text import did_you_mean
from torchrl_agent.experiment.world_making import GYMNASIUM, build_batched
from torchrl_agent.modules.memory import KINDS
from torchrl_agent.modules.specs import action_bounds, agent_group, group_spec, mixed_choices, observation_shapes
from torchrl_agent.training.plain_worlds import plain_world
from torchrl_agent.trust import check
from torchrl_agent.trust.targets import name_object

LARGE_PICTURE = 36
"""Smallest side in pixels of pictures (of a camera or a game) for the network of Mnih et al. (2015)."""
WORLDS_PER_CORE, MOST_WORLDS = {False: 4, True: 8}, 64
"""Worlds per core, by True if actions are continuous, and the most worlds."""
MINIBATCH = {False: 256, True: 64}
"""Frames of a minibatch, by True if actions are continuous: with 128 Hopper and HalfCheetah learned less."""
INITIAL_STD = 0.37
"""Initial standard deviation of continuous actions, exp(-1): with 1 HalfCheetah learned less, with 0.135 Hopper and
Pendulum did."""
FRAMES = 500_000
STEPS = 128
PARTS = ("model.perception.", "model.world_model.", "model.social_model.", "model.manager.", "model.custom_modules.")
"""Beginnings of the keys of modules, which may have losses of their own."""
EPOCHS = {False: 4, True: 10}
"""Epochs of PPO, by True if actions are continuous."""
COMPILING = {"step": 10.0, "update": 20.0}
"""Seconds to compile policy and update on two cores (``python -m benchmarks sb3_speed``)."""
STEP_SAVES, UPDATE_SAVES = 3e-4, 2.5e-3
"""Seconds that compiled code saves of a step of all worlds, and of an update, of networks of two layers of 64."""


def _gym(name: str) -> dict[str, Any]:
    return {"_target_": GYMNASIUM, "env_name": name}


def _versioned(name: str, version: str) -> str:
    return name if re.search(r"-v\d+$", name) else f"{name}-{version}"


def _atari(name: str) -> dict[str, Any]:
    name = _versioned(name, "v4" if "NoFrameskip" in name else "v5")
    return {**_gym(name if "/" in name or "NoFrameskip" in name else f"ALE/{name}"), "atari": True}


PREFIXES: dict[str, tuple[Callable[[str], dict[str, Any]], str]] = {
    "gym": (_gym, "gym:Hopper-v5"),
    "ale": (_atari, "ale:ALE/Pong-v5"),
    "minigrid": (_gym, "minigrid:MiniGrid-DoorKey-5x5-v0"),
    "dmc": (lambda name: _gym(_versioned(f"dm_control/{name}", "v0")), "dmc:cartpole-swingup"),
    "pettingzoo": (
        lambda name: {"_target_": "envs.libs.pettingzoo.VectorPettingZooEnv", "module": name},
        "pettingzoo:mpe2.simple_spread_v3",
    ),
    "vmas": (lambda name: {"_target_": "envs.libs.vmas.VectorVmasEnv", "scenario": name}, "vmas:navigation"),
}
"""By prefix: a function from the name behind it to the world's arguments, and an example."""


class Rule(NamedTuple):
    """A part of a configuration, and the reason for it."""

    section: dict[str, Any]
    reason: str


SIGNS = Rule(
    {"world": {"transforms": [{"SignTransform": {"in_keys": ["reward"]}}]}},
    "of rewards the sign alone is learned from (Mnih et al. 2015)",
)


def is_world(config: object) -> bool:
    """True if this is a world, by a prefix and its name or an object, rather than a configuration's name or file."""
    if not isinstance(config, (str, Path)):
        return True
    prefix, colon, name = str(config).partition(":")
    return bool(colon) and bool(name) and prefix in PREFIXES


def configuration(config: Any, overrides: Sequence[str] = (), trust: bool = False) -> tuple[str, list[str]]:
    """The YAML text of a world's configuration, and the rules that made it, a sentence each.

    The world is made once, to see what it shows and takes.

    Args:
        config: such as ``gym:Hopper-v5``; or a class or function that makes a world of Gymnasium or TorchRL, or such a
            world, of which copies are made.
        overrides: those of ``world`` and of ``algorithm.rollout_steps`` count in the rules; all of them override the
            rules.
        trust: the name may say which module to import.

    Raises:
        ValueError: there is no such world, its package is missing, or its name needs trust.
    """
    named = isinstance(config, str)
    if named:
        prefix, _, name = config.partition(":")
        world = PREFIXES[prefix][0](name)
    else:
        name, kinds = getattr(config, "__name__", type(config).__name__), (EnvBase, gymnasium.Env)
        is_class = isinstance(config, type)
        if not (issubclass(config, kinds) if is_class else isinstance(config, kinds) or callable(config)):
            raise ValueError(
                f"{name} is no environment: give a class of Gymnasium's or TorchRL's environments, a function that "
                "makes one, or a name such as gym:CartPole-v1."
            )
        make = functools.partial(copy.deepcopy, config) if isinstance(config, kinds) else config
        world = {"_target_": name_object(make)}
    check.check(check.in_targets({"world": world}), Path(name), trust or not named)
    given = _given(overrides)
    asked = {key.partition(".")[2]: value for key, value in given.items() if key.startswith("world.")}
    asked.pop("transforms", None)  # put on by whoever makes the world to learn in
    try:
        env = plain_world(build_batched({**world, **asked, "num_envs": 1, "device": "cpu"}))
    except Exception as error:  # a constructor of others raises any
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"{config if named else name}: {reason}") from None
    try:
        rules = _rules(env, world, asked, given)
    finally:
        env.close(raise_if_closed=False)
    content = {"name": re.sub(r"\W+", "_", name).strip("_").lower()}
    merged = OmegaConf.to_container(OmegaConf.merge(content, *(rule.section for rule in rules)))
    body = yaml.safe_dump(merged, sort_keys=False, allow_unicode=True)
    return f"defaults: [experiment_schema, _self_]\n{body}", [rule.reason for rule in rules]


def _rules(env: EnvBase, world: dict[str, Any], asked: dict[str, Any], given: dict[str, Any]) -> list[Rule]:
    steps = int(given.get("algorithm.rollout_steps", STEPS))
    shapes = observation_shapes(env)
    pictures = {name: shape for name, shape in shapes.items() if len(shape) == 3}
    large = {name: shape for name, shape in pictures.items() if min(shape[-2:]) >= LARGE_PICTURE}
    agents = 1 if agent_group(env) is None else group_spec(env).shape[1]
    continuous = action_bounds(env) is not None and not mixed_choices(env)
    per_core = WORLDS_PER_CORE[continuous]
    num_envs = int(asked.get("num_envs", min(MOST_WORLDS, per_core * (os.cpu_count() or 1))))
    frames = num_envs * agents * steps
    whole = steps if _learns_sequences(given) else 1
    minibatch = min(frames, max(1, MINIBATCH[continuous] // whole) * whole)
    own = {**world, "num_envs": num_envs}
    return [
        Rule(
            {"world": own}, f"{num_envs} world{'s' * (num_envs != 1)}: {per_core} for each core, {MOST_WORLDS} at most"
        ),
        *([SIGNS] if "atari" in own else []),
        *([] if "total_frames" in given else [Rule({"total_frames": FRAMES}, f"{FRAMES:,} frames")]),
        Rule({"evaluation": {"episodes": 32}}, "evaluations of 32 episodes"),
        Rule(
            {"tuned": {"ppo": {"rollout_steps": steps, "minibatch_size": minibatch}}},
            f"rollouts of {steps} steps, minibatches of {minibatch} of their {frames} frames",
        ),
        *_network(pictures, large),
        _discount(abilities(env).time_limit, 100 if continuous else 200),
        *_learning(continuous),
        *_goals(env),
        _acceleration(env, given, num_envs * agents, minibatch, EPOCHS[continuous]),
    ]


def _learns_sequences(given: dict[str, Any]) -> bool:
    """True if the agent learns from whole sequences, because it has a memory or modules with losses of their own."""
    memory = {given.get("policy"), given.get("model.memory")} & set(KINDS[1:])
    return bool(memory) or any(key.startswith(PARTS) for key in given)


def _acceleration(env: EnvBase, given: dict[str, Any], rows: int, minibatch: int, epochs: int) -> Rule:
    """Rule to compile policy and update where the training is long enough to save more time than that takes."""
    frames = int(given.get("total_frames", FRAMES))
    name = str(given.get("algorithm", "ppo"))
    updates = {"ppo": frames * epochs // minibatch, "dqn": frames // 4, "sac": frames, "td3": frames // 2}.get(name, 0)
    steps = frames / rows if abilities(env).steps_arrays else 0
    saved = {"step": STEP_SAVES * steps, "update": UPDATE_SAVES * updates}
    sequences = _learns_sequences(given)  # a memory's steps take longer to compile
    compiled = {part: bool(not sequences and saved[part] > COMPILING[part]) for part in saved}
    replays = compiled["update"] and name != "ppo"  # their returns of n steps are compiled as quickly as the update
    section = {"acceleration": {**compiled, "advantages": replays}}
    if not any(compiled.values()):
        return Rule(section, "nothing is compiled, as the training is too short or the agent learns from sequences")
    names = {"step": "the policy", "update": "the update"}
    parts = " and ".join(names[part] for part in saved if compiled[part])
    parts += " are" if all(compiled.values()) else " is"
    cost, gain = (sum(each[part] for part in saved if compiled[part]) for each in (COMPILING, saved))
    return Rule(section, f"{parts} compiled in about {cost:.0f} s, to save about {gain:.0f} s of this training")


def _network(pictures: dict[str, torch.Size], large: dict[str, torch.Size]) -> list[Rule]:
    if not pictures:
        layers = {"hidden_sizes": [64, 64], "activation": "tanh"}
        return [Rule({"model": layers}, "a network of two layers of 64, observations and rewards normalized")]
    model: dict[str, Any] = {"hidden_sizes": [128], "activation": "relu", "perception": {"enabled": True}}
    model["perception"].update(embedding_size=256, belief_size=256, channels=32)
    rules = [Rule({"model": model}, "convolutions over pictures, joined with what else is seen")]
    if large:
        encoders = dict.fromkeys(large, "nature")
        section = {"model": {"normalize_observations": False, "perception": {"encoders": encoders}}}
        rules.append(Rule(section, "the network of Mnih et al. (2015) for large pictures, pixels in [0, 1]"))
    return rules


def _discount(limit: int | None, most: int) -> Rule:
    """Rule for a discount whose horizon is a fifth of an episode, between 10 and ``most`` steps."""
    gamma = 0.99 if limit is None else round(1 - 1 / min(most, max(10, limit / 5)), 3)
    ground = "no time limit is known" if limit is None else f"episodes end after {limit} steps"
    return Rule({"algorithm": {"gamma": gamma}}, f"a discount of {gamma}: {ground}")


def _learning(continuous: bool) -> list[Rule]:
    epochs = EPOCHS[continuous]
    rate, bonus = (3e-4, 0.0) if continuous else (1e-3, 0.01)
    ppo = {"num_epochs": epochs, "learning_rate": {"initial": rate, "schedule": "linear"}, "entropy_coeff": bonus}
    noise = Rule(
        {"model": {"initial_std": INITIAL_STD}}, f"actions deviate by {INITIAL_STD} of half their range at first"
    )
    replay = {"replay_size": 100_000, "learning_starts": 1000, "target_rate": 0.005}
    sac = {"batch_size": 256, "replay_ratio": 256.0, "learning_rate": {"initial": 3e-4}, **replay}
    dqn = {"batch_size": 64, "replay_ratio": 16.0, "learning_rate": {"initial": 5e-4}, **replay}
    return [
        Rule(
            {"tuned": {"ppo": {**ppo, "scale_rewards": True}}},
            f"PPO: {epochs} epochs, a learning rate from {rate} to 0, an entropy bonus of {bonus:g}",
        ),
        *([noise] if continuous else []),
        Rule(
            {"tuned": {"sac": sac, "td3": sac, "dqn": dqn}},
            "with algorithm=sac or td3 an update for each frame (Haarnoja et al. 2018, Fujimoto et al. 2018), with dqn "
            "one for every 4 frames (Mnih et al. 2015)",
        ),
    ]


def _goals(env: EnvBase) -> list[Rule]:
    if abilities(env).goal_outcome is None:
        return []
    replayed = {"hindsight": 0.8, "num_steps": 1}
    return [
        Rule(
            {"tuned": {name: replayed for name in ("sac", "td3", "dqn")}},
            "SAC, TD3 and DQN replay 4 of 5 frames with a goal that was reached later (Andrychowicz et al. 2017)",
        )
    ]


def _given(overrides: Sequence[str]) -> dict[str, Any]:
    """Overrides that set one value, by key."""
    found = {}
    for word in overrides:
        key, equals, value = word.lstrip("+").partition("=")
        if equals:
            found[key] = yaml.safe_load(value)
    return found


def unknown_prefix(config: str) -> str | None:
    """A sentence about a name with a colon that begins with no known prefix; None for other names."""
    prefix, colon, name = config.partition(":")
    if not colon or not name or re.fullmatch(r"[A-Za-z]", prefix):  # a drive of Windows
        return None
    examples = ", ".join(example for _, example in PREFIXES.values())
    return f"there is no prefix {prefix!r}{did_you_mean(prefix, PREFIXES)}: a world is named as in {examples}."
