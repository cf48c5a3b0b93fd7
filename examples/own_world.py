"""A world of your own that runs by the thousand: a record of tensors, and pure functions on it."""

import argparse
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torchrl.data import Bounded, Categorical, Composite

from envs import World
from torchrl_agent import Learner, check_world, iterate
from torchrl_agent.algorithms import PPO, PPOConfig
from torchrl_agent.models import Agent

CELLS, MAX_STEPS = 11, 40


class Settings(NamedTuple):
    """Nothing differs between worlds beyond resets."""


class State(NamedTuple):
    """A batch of worlds, [N] each: the world axis is the last one of every tensor."""

    x: Tensor
    treasure: Tensor
    step: Tensor


class TreasureEnv(World):
    """Walk along a line of cells to a treasure: 1 for finding it, -0.01 for each step."""

    def __init__(self, num_envs: int = 1, *, device: Any = None, seed: int = 0) -> None:
        super().__init__(num_envs, device=device, seed=seed)
        seen = Bounded(0.0, 1.0, (num_envs, 3), device=self.device)
        actions = Categorical(2, shape=(num_envs,), dtype=torch.int64, device=self.device)
        self._build(Composite(observation=seen, shape=(num_envs,), device=self.device), actions, midway=False)

    def settings(self) -> Settings:
        """No settings."""
        return Settings()

    def spawn(self, settings: Settings, chance: Any, midway: bool) -> State:
        """Fresh worlds: walker and treasure at random cells."""
        x, treasure = torch.floor(chance.uniform(0, 2) * CELLS)
        return State(x, treasure, step=torch.zeros_like(x))

    def advance(self, state: State, action: Tensor, chance: Any) -> State:
        """One step to the left (0) or to the right (1)."""
        return state._replace(x=(state.x + 2 * action - 1).clamp(0, CELLS - 1), step=state.step + 1)

    def observe(self, state: State) -> dict[str, Tensor]:
        """Places and time as fractions, [N, 3]."""
        return {"observation": torch.stack([state.x / CELLS, state.treasure / CELLS, state.step / MAX_STEPS], -1)}

    def outcome(self, state: State) -> tuple[Tensor, Tensor, Tensor]:
        """Reward, terminated and truncated, [N] each."""
        found = state.x == state.treasure
        return found.float() - 0.01, found, (state.step >= MAX_STEPS) & ~found

    def statistics(self, state: State) -> dict[str, Tensor]:
        """Figures of an episode by name, float32 [N]."""
        return {"win": (state.x == state.treasure).float()}


def main(frames: int = 200_000, num_envs: int = 256) -> float:
    """Check the world, train PPO in it by hand, and return the last share of wins."""
    check_world(TreasureEnv(4))
    env = TreasureEnv(num_envs)
    agent = Agent(env)
    ppo = PPO(agent, PPOConfig(rollout_steps=32, minibatch_size=1024), rows=num_envs)
    for iteration in iterate(Learner(env, agent, ppo, total_frames=frames)):
        print(f"{iteration.frames:,} frames, wins {iteration.metrics['rollout/success_rate']:.0%}")
    return iteration.metrics["rollout/success_rate"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=200_000)
    main(parser.parse_args().frames)
