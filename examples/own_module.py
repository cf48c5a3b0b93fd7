"""A module of your own that rewrites the rewards: curiosity by random network distillation (Burda et al. 2019)."""

import argparse

import torch
from tensordict import TensorDict
from torch import Tensor, nn

from torchrl_agent import Experiment, keys, learn
from torchrl_agent.models import AgentModule, masked_mean

PATH = f"{__name__}.Curiosity"


class Curiosity(AgentModule):
    """Rewards what it has not seen: the error with which a network predicts another one, random and fixed.

    Args:
        env: the world.
        sizes: widths of what the controller reads so far, by key.
        coeff: weight of the intrinsic reward, in units of scaled rewards.
    """

    recorded_keys = ("observation", ("next", "observation"))

    def __init__(self, env, sizes, coeff: float = 0.1, hidden: int = 64) -> None:
        super().__init__()
        self.coeff, self.size = coeff, 1
        self.in_keys, self.out_keys = ["observation"], ["surprise"]
        width = env.observation_spec["observation"].shape[-1]

        def network() -> nn.Sequential:
            return nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, hidden))

        self.target, self.predictor = network().requires_grad_(False), network()
        self.losses.append(CuriosityLoss(self))

    def error(self, observation: Tensor) -> Tensor:
        """Mean squared error of the prediction [...]."""
        return (self.predictor(observation) - self.target(observation)).square().mean(-1)

    def forward(self, tensordict):
        """Write the controller's input, [..., 1]."""
        return tensordict.set("surprise", self.error(tensordict.get("observation")).detach().unsqueeze(-1))

    def rewrite_rewards(self, rollout, reward, done, terminated):
        """The world's rewards, and what the step led to that is new, [T, rows, 1] each."""
        surprise = self.error(rollout.get(("next", "observation"))).unsqueeze(-1)
        return reward + self.coeff * surprise / surprise.mean().clamp_min(1e-8), done, terminated


class CuriosityLoss(nn.Module):
    """Mean prediction error of the frames that count."""

    def __init__(self, module: Curiosity) -> None:
        super().__init__()
        object.__setattr__(self, "module", module)  # its weights are the agent's already

    def forward(self, data) -> TensorDict:
        """``loss_curiosity``."""
        error = self.module.error(data.get("observation"))
        return TensorDict({"loss_curiosity": masked_mean(error, data.get(keys.VALID, None))})


def main(frames: int = 200_000, *overrides: str) -> float:
    """Train with curiosity in the Arena; returns the loss of its last iteration."""
    module = f"model.custom_modules={{curiosity: {{_target_: {PATH}}}}}"
    memory = ["policy=gru", "algorithm.minibatch_size=1024"]  # modules stand behind a perception
    for iteration in learn(Experiment.load("arena", module, *memory, f"total_frames={frames}", *overrides, trust=True)):
        print(f"{iteration.frames:,} frames, curiosity {iteration.metrics['train/loss_curiosity']:.4f}")
    return iteration.metrics["train/loss_curiosity"]


if __name__ == "__main__":
    PATH = "own_module.Curiosity"  # the module's name for the configuration: this file's folder is on Python's path
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=200_000)
    torch.manual_seed(0)
    main(parser.parse_args().frames)
