"""TorchRL's collector, GAE and loop around our world, our agent and our loss, which is a ClipPPOLoss of TorchRL's."""

import argparse

import torch
from torchrl.collectors import Collector
from torchrl.objectives.value import GAE

from envs import ArenaEnv
from torchrl_agent.losses import PPOLoss
from torchrl_agent.models import Agent


def main(frames: int = 200_000, num_envs: int = 64, steps: int = 32) -> float:
    """Train for ``frames``; returns the mean reward of the last batch."""
    env = ArenaEnv(num_envs)
    agent = Agent(env)
    loss = PPOLoss(agent.actor, agent.critic, clip_epsilon=0.2, entropy_coeff=0.01, normalize_advantage=True)
    advantage = GAE(gamma=0.99, lmbda=0.95, value_network=agent.critic)
    optimizer = torch.optim.Adam(loss.parameters(), lr=3e-4)
    batch_size = num_envs * steps
    for batch in Collector(env, agent.policy, frames_per_batch=batch_size, total_frames=frames):
        with torch.no_grad():
            advantage(batch)
        for _ in range(4):
            for minibatch in batch.reshape(-1)[torch.randperm(batch_size)].split(batch_size // 4):
                losses = loss(minibatch)
                optimizer.zero_grad()
                sum(value for key, value in losses.items() if key.startswith("loss_")).backward()
                optimizer.step()
        agent.normalizer.update(agent.normalizer.join(batch.reshape(-1)))  # after the updates, as it changes the policy
        reward = batch["next", "reward"].mean().item()
        print(f"reward {reward:.3f}, KL {losses['kl'].item():.4f}, clipped {losses['clip_fraction'].item():.0%}")
    return reward


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=200_000)
    main(parser.parse_args().frames)
