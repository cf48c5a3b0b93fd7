"""An algorithm of your own: REINFORCE (Williams 1992), the policy gradient with the discounted return."""

import argparse
from dataclasses import dataclass

import torch
from tensordict import TensorDict
from torch import Tensor, nn

from envs import ArenaEnv
from torchrl_agent import Learner, iterate, keys
from torchrl_agent.algorithms import ActorCritic, ActorCriticConfig
from torchrl_agent.losses import AgentLoss, masked_mean
from torchrl_agent.models import Agent


@dataclass
class ReinforceConfig(ActorCriticConfig):
    """Keys of every actor-critic; none of its own."""


class ReinforceLoss(nn.Module):
    """``-log pi(a|s) G``, with returns of zero mean and unit deviation as a baseline."""

    def __init__(self, agent: Agent, config: ReinforceConfig) -> None:
        super().__init__()
        self.actor, self.config = agent.actor_head, config

    def forward(self, encoded) -> TensorDict:
        """``loss_objective`` and ``loss_entropy`` of frames [B]."""
        policy, valid = self.actor.get_dist(encoded), encoded.get(keys.VALID, None)
        returns = encoded.get("return").squeeze(-1)
        returns = (returns - returns.mean()) / returns.std().clamp_min(1e-6)
        entropy = masked_mean(policy.entropy(), valid)
        objective = masked_mean(-policy.log_prob(encoded.get(keys.ACTION)) * returns, valid)
        loss_entropy = -self.config.entropy_coeff * entropy
        return TensorDict({"loss_objective": objective, "loss_entropy": loss_entropy, "entropy": entropy.detach()})


class Reinforce(ActorCritic):
    """One update with all frames of a rollout."""

    name = "reinforce"
    config_class = ReinforceConfig

    def make_loss(self) -> AgentLoss:
        """The loss behind the agent's encoder."""
        return AgentLoss(self.agent, ReinforceLoss(self.agent, self.config))

    def improve(self, rollout: TensorDict) -> dict[str, Tensor]:
        """Returns within the rollout [T, rows], then one gradient step."""
        following = rollout.get(keys.NEXT)
        reward, done = following.get(keys.REWARD), following.get(keys.DONE)
        total, returns = torch.zeros_like(reward[0]), torch.empty_like(reward)
        for step in reversed(range(len(reward))):
            total = reward[step] + self.config.gamma * torch.where(done[step], 0.0, total)  # G_t = r_t + gamma G_t+1
            returns[step] = total
        data = rollout.select(*self.agent.recorded_keys, keys.ACTION).set("return", returns).reshape(-1)
        update = self.updater.update(data)  # a gradient step, skipped where something is not finite
        return self.conclude(data, update.unsqueeze(0))


def main(frames: int = 500_000, num_envs: int = 64) -> float:
    """Train in the Arena, put together by hand; returns the last mean return."""
    env = ArenaEnv(num_envs)
    agent = Agent(env)
    algorithm = Reinforce(agent, ReinforceConfig(rollout_steps=64), rows=num_envs)
    for iteration in iterate(Learner(env, agent, algorithm, total_frames=frames)):
        print(f"{iteration.frames:,} frames, return {iteration.metrics['rollout/ep_rew_mean']:.1f}")
    return iteration.metrics["rollout/ep_rew_mean"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=500_000)
    main(parser.parse_args().frames)
