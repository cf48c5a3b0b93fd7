"""TorchRL's PPO trainer in the Arena, built from YAML by Hydra; run it in this folder."""

from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from torchrl.trainers.algorithms import configs  # noqa: F401  (fills Hydra's store)

with initialize_config_dir(str(Path.cwd()), version_base="1.3"):
    trainer = instantiate(compose("ppo_arena", ["optimizer.lr=1e-3"]).trainer)
trainer.train()
print(trainer.collected_frames)
