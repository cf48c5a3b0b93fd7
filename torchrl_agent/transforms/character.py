"""Inner rewards: drives weighted by an agent's own character, in addition to the world's reward."""

from __future__ import annotations

from dataclasses import dataclass

from tensordict import TensorDictBase
from tensordict.utils import NestedKey
from torchrl.envs.transforms import Transform

from torchrl_agent.core.bounds import weight


@dataclass
class CharacterConfig:
    """Inner rewards in training, for worlds whose agents have a character and show its drives."""

    scale: float = weight(0.0)
    """Weight of traits times drives; 0 for none. The sum over an agent's traits."""


class CharacterReward(Transform):
    """Add an inner reward, ``scale * sum_k trait_k * drive_k``: a character is the weights of its drives (Jaderberg et
    al. 2019, "Human-level performance in 3D multiplayer games with population-based reinforcement learning", whose
    agents evolve such weights).

    Learning includes it; the world's own ``("episode", "return")``, the fitness of a population's members, does not.

    Args:
        drives: key of the drive of each trait in the last step, [..., T].
        character: key of the traits, [..., T].
        reward: key of the reward, [..., 1].
        scale: weight of the inner reward.
    """

    keeps_ends = True
    """True as the transform does not change the ends of episodes (see ``envs/base/transformed.py``)."""

    def __init__(self, drives: NestedKey, character: NestedKey, reward: NestedKey, scale: float = 1.0) -> None:
        super().__init__(in_keys=[reward], out_keys=[reward])
        self.drives, self.character, self.scale = drives, character, scale

    def _step(self, tensordict: TensorDictBase, next_tensordict: TensorDictBase) -> TensorDictBase:
        felt = next_tensordict.get(self.drives) * next_tensordict.get(self.character)
        reward = next_tensordict.get(self.in_keys[0])
        return next_tensordict.set(self.out_keys[0], reward + self.scale * felt.sum(-1, keepdim=True))
