"""A world of your own that runs by the thousand: CartPole as a record of tensors, and pure functions on it."""

import argparse
import math
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torchrl.data import Categorical, Composite, Unbounded

from envs import World
from torchrl_agent import Learner, check_world, iterate
from torchrl_agent.algorithms import PPO, PPOConfig
from torchrl_agent.models import Agent

SECONDS, FORCE, GRAVITY = 0.02, 10.0, 9.8
"""Time of a step, and the forces."""
POLE, TOTAL, HALF_LENGTH = 0.1, 1.1, 0.5
"""Masses of the pole, and of pole and cart, and half the pole's length."""
FAR, TILTED, MAX_STEPS = 2.4, math.radians(12), 500
"""Position and angle beyond which an episode ends, and its most steps."""


class State(NamedTuple):
    """A batch of worlds, [N] each: the world axis is the last one of every tensor."""

    position: Tensor
    speed: Tensor
    angle: Tensor
    spin: Tensor
    step: Tensor


class CartPoleEnv(World):
    """CartPole-v1 of Gymnasium: keep the pole up, with 1 for each step."""

    truncation_limit = MAX_STEPS

    def __init__(self, num_envs: int = 1, *, device: Any = None, seed: int = 0) -> None:
        super().__init__(num_envs, device=device, seed=seed)
        seen = Unbounded((num_envs, 4), device=self.device)
        actions = Categorical(2, shape=(num_envs,), dtype=torch.int64, device=self.device)
        self._build(Composite(observation=seen, shape=(num_envs,), device=self.device), actions, midway=False)

    def spawn(self, settings: Any, chance: Any, midway: bool) -> State:
        """Fresh worlds: everything is near zero."""
        position, speed, angle, spin = 0.1 * chance.uniform(0, 4) - 0.05
        return State(position, speed, angle, spin, step=torch.zeros_like(angle))

    def advance(self, state: State, action: Tensor, chance: Any) -> State:
        """One step of Euler's method with a push to the left (0) or to the right (1)."""
        cosine, sine = state.angle.cos(), state.angle.sin()
        push = (FORCE * (2 * action - 1) + POLE * HALF_LENGTH * state.spin**2 * sine) / TOTAL
        turn = (GRAVITY * sine - cosine * push) / (HALF_LENGTH * (4 / 3 - POLE * cosine**2 / TOTAL))
        pull = push - POLE * HALF_LENGTH * turn * cosine / TOTAL
        return State(
            position=state.position + SECONDS * state.speed,
            speed=state.speed + SECONDS * pull,
            angle=state.angle + SECONDS * state.spin,
            spin=state.spin + SECONDS * turn,
            step=state.step + 1,
        )

    def observe(self, state: State) -> dict[str, Tensor]:
        """Positions and speeds of cart and pole, [N, 4]."""
        return {"observation": torch.stack(state[:4], -1)}

    def outcome(self, state: State) -> tuple[Tensor, Tensor, Tensor]:
        """Reward, terminated and truncated, [N] each."""
        fallen = (state.position.abs() > FAR) | (state.angle.abs() > TILTED)
        return torch.ones_like(state.step), fallen, (state.step >= MAX_STEPS) & ~fallen


def main(frames: int = 2_000_000, num_envs: int = 256) -> float:
    """Check the world, train PPO in it by hand, and return the last mean return."""
    check_world(CartPoleEnv(4))
    env = CartPoleEnv(num_envs)
    agent = Agent(env)
    ppo = PPO(agent, PPOConfig(rollout_steps=32, minibatch_size=1024), rows=num_envs)
    for iteration in iterate(Learner(env, agent, ppo, total_frames=frames)):
        print(f"{iteration.frames:,} frames, return {iteration.metrics['rollout/ep_rew_mean']:.0f}")
    return iteration.metrics["rollout/ep_rew_mean"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=2_000_000)
    main(parser.parse_args().frames)
