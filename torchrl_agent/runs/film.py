"""A film of a policy playing, for worlds that can be drawn (that have ``draw(world) -> image``)."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torchrl.envs import EnvBase
from torchrl.envs.utils import ExplorationType, set_exploration_type

from envs.toolkit.film import grid, write_film
from torchrl_agent import keys
from torchrl_agent.experiment import Experiment
from torchrl_agent.progress import Progress
from torchrl_agent.training.acceleration import AccelerationConfig
from torchrl_agent.training.evaluation import Player


@torch.no_grad()
def film_policy(
    env: EnvBase,
    policy: TensorDictModuleBase,
    path: Path,
    steps: int = 900,
    every: int = 3,
    deterministic: bool = True,
    acceleration: AccelerationConfig | None = None,
) -> Path | None:
    """Play all worlds of ``env`` side by side and write the film; None if the world cannot be drawn.

    Args:
        env: a world with few rows.
        policy: writes actions.
        path: ``.gif``, or ``.mp4`` with the extra ``video``.
        steps: longest film, in steps of the game; it ends early when every world has finished an episode.
        every: draw each so many steps of the game, or each step of the world where one of those is longer.
        deterministic: take the most likely action.
        acceleration: on CUDA, what to compile and capture.
    """
    if not hasattr(env, "draw"):
        return None
    mode = ExplorationType.DETERMINISTIC if deterministic else ExplorationType.RANDOM
    repeat = getattr(env, "action_repeat", 1)
    steps, every = math.ceil(steps / repeat), max(1, every // repeat)
    frames, worlds = [], range(env.batch_size[0])
    finished = torch.zeros(env.batch_size, dtype=torch.bool, device=env.device)

    def watch(played: TensorDictBase) -> None:
        finished.logical_or_(played.get((keys.NEXT, keys.DONE)).squeeze(-1))

    with set_exploration_type(mode), Progress(steps, "step", "filming", leave=False) as progress:
        play = Player(env, policy, min(every, steps), watch, acceleration)
        for step in range(0, steps, every):
            frames.append(grid([env.draw(world) for world in worlds]))
            play()
            progress.reach(step)
            if bool(finished.all()):
                break
    return write_film(frames, path)


def film_world(experiment: Experiment, num_envs: int) -> EnvBase:
    """The evaluation world, made so that it can be drawn: with its ``film_arguments``, if it has any."""
    seed, evaluation = experiment.evaluation.seed, experiment.evaluation
    world = experiment.make_world(evaluation=True, num_envs=num_envs, seed=seed)
    arguments = getattr(world, "film_arguments", None)
    if not arguments:
        return world
    world.close()
    drawn = dataclasses.replace(evaluation, world={**arguments, **evaluation.world})
    return dataclasses.replace(experiment, evaluation=drawn).make_world(evaluation=True, num_envs=num_envs, seed=seed)
