"""Every kind of learning, in the smallest size: for what must hold on a device whatever is learned."""

from __future__ import annotations

from torchrl_agent import Experiment
from torchrl_agent.training.learner import Learner

UNCOMPILED = [f"acceleration.{part}=false" for part in ("step", "advantages", "update")]
SMALL = ["tuned.ppo.rollout_steps=2", "tuned.ppo.minibatch_size=16", "world.num_envs=16"]
REPLAY = ["algorithm={rollout_steps: 2, learning_starts: 32, batch_size: 32, replay_size: 256}"]
PICTURES = ["policy=cnn", "world.num_envs=4", "algorithm={minibatch_size: 4, num_epochs: 1, rollout_steps: 2}"]
MIND = [
    "model.perception={embedding_size: 8, memory_size: 8, belief_size: 4, channels: 2}",
    "model.social_model={memory_size: 8, pooled_size: 8}",
    "world.num_envs=2",
    "algorithm={rollout_steps: 2, minibatch_size: 8, num_epochs: 1}",
]
KINDS = {
    "ppo": [],
    "gru": ["policy=gru"],
    "dqn": ["algorithm=dqn", *REPLAY],
    "sac": ["algorithm=sac", *REPLAY],
    "impala": ["algorithm=impala", "algorithm.rollout_steps=2"],
    "stops early": ["algorithm.target_kl=0.001"],
    "bfloat16": ["algorithm.precision=bfloat16"],
    "float16": ["algorithm.precision=float16"],
    "pixels": ["world.observation=pixels", *PICTURES],
    "heatmap": ["world.observation=heatmap", *PICTURES],
    "layer norm, decay and a narrowing clip": [
        "policy=gru",
        "model.layer_norm=true",
        "algorithm={weight_decay: 0.01, final_clip_epsilon: 0.1}",
    ],
    "dict": ["world.observation=dict"],
    "repeated actions": ["+world.action_repeat=4"],
    "duel": ["config=duel", "world.num_envs=4", "algorithm.rollout_steps=2", "algorithm.minibatch_size=8"],
    "rmsprop": ["algorithm=a2c", "algorithm.rollout_steps=2", "algorithm.optimizer=rmsprop"],
    "impala with a memory": ["algorithm=impala", "algorithm.rollout_steps=2", "policy=lstm"],
    "dqn by priority": ["algorithm=dqn", *REPLAY, "algorithm.priority_exponent=0.6", "algorithm.target_interval=3"],
    "town": ["config=town", "world.num_envs=4", "algorithm.rollout_steps=2", "algorithm.minibatch_size=8"],
    "mind": ["config=town_agent", *MIND],
    "mind by itself": ["config=small_town", *MIND, "algorithm.minibatch_size=6"],
}
"""By name: overrides of the smoke test's configuration, or of the one that they name."""


def learner_of(overrides: list[str], *more: str) -> Learner:
    """A learner of a kind on CUDA."""
    config = next((word.split("=")[1] for word in overrides if word.startswith("config=")), "smoke")
    words = [word for word in overrides if not word.startswith("config=")]
    return Experiment.load(config, "device=cuda", *SMALL, *words, *more).make_learner()


def uncompiled(learner: Learner) -> set[str]:
    """Names of a learner's functions that run eagerly, without those that are compiled on CUDA alone."""
    functions = (*learner.collector.accelerated, *learner.algorithm.accelerated)
    on_cuda = {"the advantage function", "the reward scaler"} if learner.device.type == "cpu" else set()
    return {each.name for each in functions if not each.compiled} - on_cuda
