"""Training speed in small worlds on the host, beside Stable-Baselines3 with the same hyperparameters.

Both sides train in one process with one thread, in turns: a round of one, a round of the other. Speeds are frames per
second of processor time, without the first round of each side, which compiles; from how many frames on compiling pays
is computed. The world's own step is timed alone, on Stable-Baselines3's vector environment with random actions, so that
what is left is each side's own cost.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from torchrl_agent.core.tables import aligned

OURS, THEIRS = "torchrl_agent", "stable_baselines3"
SMALL = ["model.hidden_sizes=[64,64]", "model.activation=tanh"]
WIDE = ["model.hidden_sizes=[256,256]", "model.activation=relu"]
PICTURE = [
    *("model.hidden_sizes=[]", "model.activation=relu", "model.normalize_observations=false"),
    *("algorithm.scale_rewards=false", "model.perception.plain=true", "model.perception.embedding_size=128"),
    "model.perception.encoders.observation={_target_: benchmarks.sb3_speed.Encoder}",
]
"""The network of Young and Tian (2019) and pictures and rewards as they are, as on the other side."""
ATARI = [
    *(each for each in PICTURE if "perception.e" not in each),
    *("model.perception.embedding_size=512", "model.perception.encoders.observation=nature"),
]
"""The network of Mnih et al. (2015), likewise."""
GRID = [*SMALL, "world.wrappers=[{FilterObservation: {filter_keys: [image]}}, FlattenObservation]"]
"""The cells in sight as one vector, as on the other side."""


class Encoder(nn.Sequential):
    """The encoder of Young and Tian (2019) up to its last activation, for pictures [rows, *shape]."""

    def __init__(self, shape: tuple[int, int, int], out: int) -> None:
        channels, height, width = shape
        convolution = nn.Conv2d(channels, 16, 3)
        super().__init__(convolution, nn.ReLU(), nn.Flatten(), nn.Linear(16 * (height - 2) * (width - 2), out))


class Case(NamedTuple):
    """A world, an algorithm and its sizes."""

    world: str
    algorithm: str
    num_envs: int
    network: list[str]
    """Overrides of the network."""
    task: str | None = None
    """Kind of world for which the other side has wrappers or a network of its own; None for plain ones."""


CASES = {
    **{
        f"{title}_{algorithm}_{num_envs}": Case(world, algorithm, num_envs, network, task)
        for title, world, network, task in (
            ("cartpole", "gym:CartPole-v1", SMALL, None),
            ("minatar", "gym:MinAtar/Breakout-v1", PICTURE, "minatar"),
        )
        for algorithm in ("ppo", "dqn")
        for num_envs in (1, 8, 16)
    },
    "hopper_ppo_1": Case("gym:Hopper-v5", "ppo", 1, SMALL),
    "hopper_ppo_16": Case("gym:Hopper-v5", "ppo", 16, SMALL),
    "door_key_ppo_16": Case("minigrid:MiniGrid-DoorKey-5x5-v0", "ppo", 16, GRID, "minigrid"),
    "pong_ppo_4": Case("ale:ALE/Pong-v5", "ppo", 4, ATARI, "atari"),
    "half_cheetah_sac_1": Case("gym:HalfCheetah-v5", "sac", 1, WIDE),
    "pendulum_td3_1": Case("gym:Pendulum-v1", "td3", 1, WIDE),
}
PPO_FRAMES, PPO_MINIBATCH, PPO_EPOCHS = 2048, 64, 10
DQN_BATCH, DQN_EVERY = 32, 4
OFF_POLICY_BATCH, STARTS = 256, 1000


def ours(case: Case, overrides: list[str]) -> Iterator[tuple[int, float]]:
    """Train in a case; yields the number of frames of each iteration, and the seconds spent compiling so far."""
    from torchrl_agent import Experiment
    from torchrl_agent.loop import learn
    from torchrl_agent.trust.targets import calling

    sizes = {
        "ppo": [
            f"algorithm.rollout_steps={PPO_FRAMES // case.num_envs}",
            f"algorithm.minibatch_size={PPO_MINIBATCH}",
            f"algorithm.num_epochs={PPO_EPOCHS}",
        ],
        "dqn": [
            f"algorithm.rollout_steps={DQN_EVERY}",
            f"algorithm.batch_size={DQN_BATCH}",
            f"algorithm.replay_ratio={DQN_BATCH / DQN_EVERY}",
            "algorithm.num_steps=1",
            "algorithm.double=false",
            "algorithm.dueling=false",
            "algorithm.target_interval=2500",
            "algorithm.target_rate=1",
        ],
    }
    off_policy = [
        "algorithm.rollout_steps=1",
        f"algorithm.batch_size={OFF_POLICY_BATCH}",
        f"algorithm.replay_ratio={OFF_POLICY_BATCH}",
        "algorithm.num_steps=1",
    ]
    replays = case.algorithm != "ppo"
    starts = [f"algorithm.learning_starts={STARTS}"] if replays else []
    inside = [] if case.task == "atari" else ["world.processes=false"]  # time of other processes is not counted
    compiled = {"step": True, "update": True, "advantages": replays}
    with calling(trust=True, folder=None):
        experiment = Experiment.load(
            case.world,
            f"algorithm={case.algorithm}",
            f"world.num_envs={case.num_envs}",
            "total_frames=1000000000",
            "evaluation.every=null",
            "threads=1",
            *case.network,
            *sizes.get(case.algorithm, off_policy),
            *starts,
            *inside,
            *(f"acceleration.{part}={'true' if on else 'false'}" for part, on in compiled.items()),
            *overrides,
        )
    frames = 0
    for iteration in learn(experiment):
        yield iteration.frames - frames, iteration.learner.compile_seconds
        frames = iteration.frames


def theirs(case: Case) -> tuple[Any, int]:
    """Return an algorithm of Stable-Baselines3 in the same case, and the frames of one of its iterations."""
    import stable_baselines3
    from stable_baselines3.common.vec_env import VecNormalize

    env = _vector_env(case)
    settings: dict[str, Any] = {"learning_starts": STARTS}
    policy: dict[str, Any] = {"net_arch": [256, 256]}
    at_once = case.num_envs
    if case.algorithm == "ppo":
        settings = {"n_steps": PPO_FRAMES // case.num_envs, "batch_size": PPO_MINIBATCH, "n_epochs": PPO_EPOCHS}
        policy, at_once = {}, PPO_FRAMES
    elif case.algorithm == "dqn":
        settings |= {"train_freq": DQN_EVERY, "gradient_steps": case.num_envs, "batch_size": DQN_BATCH}
        settings["buffer_size"] = 100_000
        policy = {"net_arch": [64, 64], "activation_fn": torch.nn.Tanh}
        at_once *= DQN_EVERY
    if case.task == "minatar":
        from benchmarks.stable_baselines3 import MinAtarNetwork

        policy = {"features_extractor_class": MinAtarNetwork, "net_arch": []}
    elif case.task != "atari":
        env = VecNormalize(env)
    kind = "CnnPolicy" if case.task == "atari" else "MlpPolicy"
    rival = getattr(stable_baselines3, case.algorithm.upper())
    return rival(kind, env, device="cpu", policy_kwargs=policy, **settings), at_once


def _vector_env(case: Case) -> Any:
    """Return Stable-Baselines3's vector environment of a case, in this process."""
    from gymnasium.wrappers import DtypeObservation, FilterObservation, FlattenObservation
    from stable_baselines3.common.env_util import make_atari_env, make_vec_env
    from stable_baselines3.common.vec_env import VecFrameStack

    from envs.libs.gymnasium_packages import import_package

    name = case.world.partition(":")[2]
    import_package(name)
    if case.task == "atari":  # its wrapper repeats actions itself
        return VecFrameStack(make_atari_env(name, case.num_envs, seed=0, env_kwargs={"frameskip": 1}), 4)
    wrappers = {
        "minatar": lambda env: DtypeObservation(env, np.float32),
        "minigrid": lambda env: FlattenObservation(FilterObservation(env, ["image"])),
    }
    return make_vec_env(name, case.num_envs, seed=0, wrapper_class=wrappers.get(case.task or ""))


def world_seconds(case: Case, seconds: float) -> float:
    """Return the processor seconds of a frame of the world alone, with random actions."""
    env = _vector_env(case)
    env.reset()
    space = env.action_space
    actions = [np.array([space.sample() for _ in range(case.num_envs)]) for _ in range(64)]
    start, steps = time.process_time(), 0
    while time.process_time() - start < seconds:
        env.step(actions[steps % 64])
        steps += 1
    taken = time.process_time() - start
    env.close()
    return taken / (steps * case.num_envs)


def speeds(turns: dict[str, Callable[[], int]], rounds: int, seconds: float) -> dict[str, list[float]]:
    """Frames per processor second of each side in each round, after a round that does not count.

    Args:
        turns: a function of each side that trains a little and returns the number of frames.
        rounds: rounds that count.
        seconds: least processor seconds of a side's round.
    """
    found: dict[str, list[float]] = {side: [] for side in turns}
    for number in range(rounds + 1):
        for side, turn in turns.items():
            start, frames = time.process_time(), 0
            while frames == 0 or time.process_time() - start < seconds:
                frames += turn()
            if number:
                found[side].append(frames / (time.process_time() - start))
    return found


def compare(name: str, rounds: int, seconds: float, overrides: list[str]) -> dict[str, Any]:
    """Return the speeds of a case, their ratio by rounds, the number of frames after which ours is ahead although it
    compiles (None for never), and each side's own microseconds per frame.
    """
    case = CASES[name]
    torch.manual_seed(0)
    model, at_once = theirs(case)
    iterations = ours(case, overrides)

    def learn_there() -> int:
        frames = max(at_once, PPO_FRAMES if case.algorithm == "ppo" else 64 * case.num_envs)
        model.learn(frames, reset_num_timesteps=False)
        return frames

    if case.algorithm != "ppo":
        model.learn(STARTS + case.num_envs)
        frames = 0
        while frames <= STARTS:
            frames += next(iterations)[0]
    found = speeds({OURS: lambda: next(iterations)[0], THEIRS: learn_there}, rounds, seconds)
    world = world_seconds(case, seconds / 2)
    compiling = next(iterations)[1]
    own, other = (median(found[side]) for side in (OURS, THEIRS))
    ratios = sorted(own / other for own, other in zip(found[OURS], found[THEIRS], strict=True))
    return {
        "frames_per_second": {side: round(median(values)) for side, values in found.items()},
        "ratio": {"median": median(ratios), "low": ratios[0], "high": ratios[-1]},
        "compile_seconds": compiling,
        "ahead_after_frames": compiling / (1 / other - 1 / own) if own > other else None,
        "world_microseconds": 1e6 * world,
        "own_microseconds": {side: 1e6 * (1 / median(values) - world) for side, values in found.items()},
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the study's arguments to a parser."""
    parser.add_argument("cases", nargs="*", help=f"of {', '.join(CASES)}; by default all")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each side (3)")
    parser.add_argument("--seconds", type=float, default=5.0, help="processor seconds of a round (5)")
    parser.add_argument("--override", action="append", default=[], help="override of our configuration, repeatable")


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run the study and print its table."""
    unknown = [name for name in arguments.cases if name not in CASES]
    if unknown:
        raise ValueError(f"there is no case {unknown[0]!r}: use some of {', '.join(CASES)}.")
    torch.set_num_threads(1)
    results = {}
    for name in arguments.cases or CASES:
        results[name] = compare(name, arguments.rounds, arguments.seconds, arguments.override)
        print(f"{name}: {results[name]['ratio']['median']:.2f}", flush=True)
    rows = [["case", "frames/s here", "there", "ratio", "of rounds", "world us", "own us here", "there"]]
    for name, result in results.items():
        speed, ratio, own = (result[key] for key in ("frames_per_second", "ratio", "own_microseconds"))
        micro = (result["world_microseconds"], own[OURS], own[THEIRS])
        rows.append(
            [
                name,
                *(f"{speed[side]:,}" for side in (OURS, THEIRS)),
                f"{ratio['median']:.2f}",
                f"{ratio['low']:.2f} to {ratio['high']:.2f}",
                *(f"{value:.0f}" for value in micro),
            ]
        )
    print("\n".join(aligned(rows)))
    return {"config": "sb3_speed", "overrides": arguments.override, "cases": results}
