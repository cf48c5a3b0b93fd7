"""A film of a policy that acts, for worlds that can be drawn (that have ``draw(world) -> image``)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torchrl.envs import EnvBase
from torchrl.envs.utils import ExplorationType, set_exploration_type

from envs.toolkit.film import check_suffix, grid, write_film
from torchrl_agent.core import keys
from torchrl_agent.core.abilities import abilities, world_name, world_seed
from torchrl_agent.core.progress import Progress
from torchrl_agent.experiment import Experiment
from torchrl_agent.optimization.compilation import AccelerationConfig
from torchrl_agent.training.collector import RolloutCollector, episode_entries
from torchrl_agent.training.evaluator import Stepper

PICTURES_PER_SECOND = 20
"""Largest number of pictures drawn for a second of a film, approximately."""
BEST_OF = 4
"""Number of episodes of which a run's film shows the best."""
DEFAULT_FPS = 10.0
"""Steps of the game per second in a film of a world that names no rate."""


def film_rate(env: EnvBase) -> float:
    """Steps of the game that a second of a film of ``env`` shows: its ``film_fps``, or the ``render_fps`` of its
    ``metadata`` (Gymnasium's and PettingZoo's), or 10.
    """
    rate = abilities(env).film_fps or (abilities(env).metadata or {}).get("render_fps")
    return float(rate or DEFAULT_FPS)


@torch.no_grad()
def film_policy(
    env: EnvBase,
    policy: TensorDictModuleBase,
    path: Path,
    steps: int = 900,
    every: int | None = None,
    deterministic: bool = True,
    acceleration: AccelerationConfig | None = None,
    fps: float | None = None,
    best_from: int | None = None,
    rows: int | None = None,
    collector: RolloutCollector | None = None,
) -> Path:
    """Run a policy in all worlds of ``env``, write them side by side as a film and return its path.

    Args:
        env: a world with few rows.
        path: ``.gif``, or ``.mp4`` with the extra ``video``.
        steps: longest film, in steps of the game; it ends early when every world has finished an episode.
        every: steps of the game between two pictures, or one step of the world where that is longer; by default so that
            a second has about 20 pictures at most. The film's length does not depend on it.
        acceleration: on CUDA, what to capture.
        fps: steps of the game per second of the film; by default the world's rate (:func:`film_rate`).
        best_from: a seed to show the best world alone (:func:`best_world`); None for all worlds.
        rows: number of worlds that are shown or of which the best one is, the first ones; by default all.
        collector: takes the steps instead of the policy, by code that is compiled already; of the same ``env``.

    Raises:
        ValueError: the world cannot be drawn, or the film cannot be written.
    """
    if abilities(env).draw is None:
        raise ValueError(f"{world_name(env)} cannot be drawn: only worlds with a draw method can be filmed.")
    check_suffix(path)
    fps = film_rate(env) if fps is None else fps
    if not 0 < fps < math.inf:
        raise ValueError(f"fps is {fps}: give the steps of the game per second, a number above 0.")
    every = max(1, round(fps / PICTURES_PER_SECOND)) if every is None else every
    mode = ExplorationType.DETERMINISTIC if deterministic else ExplorationType.RANDOM
    repeat = abilities(env).action_repeat
    steps, every = math.ceil(steps / repeat), max(1, every // repeat)
    frames: list[Any] = []
    worlds: Sequence[int] = range(env.batch_size[0])[:rows]
    finished = torch.zeros(env.batch_size, dtype=torch.bool, device=env.device)

    def watch(played: TensorDictBase) -> None:
        finished.logical_or_(played.get((keys.NEXT, keys.DONE)).squeeze(-1))

    acting = set_exploration_type(mode) if collector is None else collector.acting(mode)
    with acting, Progress(steps, "step", "filming", leave=False) as progress:
        if best_from is not None:
            worlds = [best_world(env, policy, steps, best_from, len(worlds), collector)]
        stepper = Stepper(env, policy, min(every, steps), watch, acceleration, collector=collector)
        for step in range(0, steps, every):
            frames.append(grid([env.draw(world) for world in worlds]))
            stepper()
            progress.reach(step)
            if bool(finished[list(worlds)].all()):
                break
    return write_film(frames, path, fps / (every * repeat))


def best_world(
    env: EnvBase,
    policy: TensorDictModuleBase,
    steps: int,
    seed: int,
    rows: int | None = None,
    collector: RolloutCollector | None = None,
) -> int:
    """Play the first episode of every world, for ``steps`` steps at most, and return which of the first ``rows`` worlds
    has the highest return. It plays the same episode again after the next reset: the worlds are seeded before and
    afterwards. The first one where no returns are reported.
    """
    key = episode_entries(env).get(keys.EPISODE_RETURN)
    if key is None or rows == 1:
        env.set_seed(world_seed(env, seed))
        return 0
    returns = torch.zeros(env.batch_size, device=env.device)
    finished = torch.zeros_like(returns, dtype=torch.bool)

    def watch(played: TensorDictBase) -> None:
        following = played.get(keys.NEXT)
        returns.copy_(torch.where(finished, returns, following.get(key).squeeze(-1).float()))
        finished.logical_or_(following.get(keys.DONE).squeeze(-1))

    env.set_seed(world_seed(env, seed))
    stepper = Stepper(env, policy, 1, watch, collector=collector)
    for _ in range(steps):
        stepper()
        if bool(finished[:rows].all()):
            break
    env.set_seed(world_seed(env, seed))
    return int(returns[:rows].argmax())


def film_world(experiment: Experiment, num_envs: int, live: bool = False) -> EnvBase:
    """The evaluation world, made so that it can be drawn: with its ``film_arguments``, if it has any, or so that it
    opens a window, with its ``live_arguments``.

    Raises:
        ValueError: it cannot be made with these arguments.
    """
    seed, evaluation = experiment.evaluation.seed, experiment.evaluation
    world = experiment.make_world(evaluation=True, num_envs=num_envs, seed=seed)
    arguments = abilities(world).live_arguments if live else abilities(world).film_arguments
    if not arguments:
        return world
    world.close()
    drawn = dataclasses.replace(evaluation, world={**arguments, **evaluation.world})
    try:
        return dataclasses.replace(experiment, evaluation=drawn).make_world(True, num_envs=num_envs, seed=seed)
    except ValueError as error:
        given = ", ".join(f"{name}={value}" for name, value in arguments.items())
        raise ValueError(f"{world_name(world)} cannot be drawn: let it be made with {given} ({error}).") from None
