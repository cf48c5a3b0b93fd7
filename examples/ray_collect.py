"""Gymnasium's worlds stepped by processes on a Ray cluster, for one that learns by TorchRL's PPO loss."""

import torch
from tensordict.nn import TensorDictModule
from torch.distributions import Categorical
from torchrl.collectors.distributed import RayCollector
from torchrl.modules import MLP, ProbabilisticActor, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

from envs.libs.gymnasium import VectorGymEnv


def make_world():
    """Worlds of one collector."""
    return VectorGymEnv("CartPole-v1", num_envs=8)


def main():
    """Train by PPO with batches of two collectors."""
    actor = ProbabilisticActor(
        TensorDictModule(MLP(4, 2, num_cells=[64, 64]), ["observation"], ["logits"]),
        in_keys=["logits"],
        distribution_class=Categorical,
        return_log_prob=True,
    )
    critic = ValueOperator(MLP(4, 1, num_cells=[64, 64]), ["observation"])
    advantage = GAE(gamma=0.99, lmbda=0.95, value_network=critic)
    loss = ClipPPOLoss(actor, critic, entropy_coeff=0.01)
    optimizer = torch.optim.Adam(loss.parameters(), 1e-3)
    collector = RayCollector(
        make_world,
        actor,
        frames_per_batch=512,
        total_frames=4096,
        num_collectors=2,
        sync=True,  # a batch comes from all collectors, with the newest weights
        ray_init_config={"num_cpus": 2, "include_dashboard": False},
        remote_configs={"num_cpus": 1, "num_gpus": 0},
    )
    for batch in collector:
        with torch.no_grad():
            advantage(batch)
        for minibatch in batch.reshape(-1).split(128):
            losses = loss(minibatch)
            sum(value for name, value in losses.items() if name.startswith("loss_")).backward()
            optimizer.step()
            optimizer.zero_grad()
        collector.update_policy_weights_()
        print(batch.numel(), "frames,", batch["next", "done"].sum().item(), "episodes ended")
    collector.shutdown()


if __name__ == "__main__":
    main()
