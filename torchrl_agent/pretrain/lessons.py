"""Pre-training of each module: its losses, and the figures of its evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase
from torch import Tensor, nn
from torchrl.modules import set_recurrent_mode

from torchrl_agent import keys
from torchrl_agent.models.agent import Agent
from torchrl_agent.models.pretrained import agent_modules, reads
from torchrl_agent.modules.distributions import MaskedCategorical, MaskedMultiCategorical
from torchrl_agent.modules.networks import first_head, masked_mean
from torchrl_agent.modules.records import most_frequent

ROWS_AT_ONCE = 64
"""Number of sequences that are evaluated at a time, which bounds memory."""
ILLEGAL = -1e30
"""Log-probabilities below this are those of actions that the mask forbids."""


class Lesson:
    """Pre-training of one module, without its loop.

    Args:
        agent: agent that has the module; its losses are those of training with PPO.
        module: perception, world_model, social_model or policy.
        heads: number of choices of each discrete action.

    Raises:
        ValueError: all parameters of the module are frozen.
    """

    def __init__(self, agent: Agent, module: str, heads: Sequence[int]) -> None:
        self.agent, self.module = agent, module
        self.loss: Any = CloningLoss(heads)
        if module in agent.agent_modules:
            (self.loss,) = agent.agent_modules[module].losses
        there: dict[str, Any] = agent_modules(agent)
        self.modules = there
        self.learning = nn.ModuleList([*(there[name] for name in reads(agent, module)), self.loss])
        self.parameters = [parameter for parameter in self.learning.parameters() if parameter.requires_grad]
        if not any(parameter.requires_grad for parameter in there[module].parameters()):
            raise ValueError(f"frozen names {module}, which is to be pre-trained: leave it out.")

    @property
    def decoders(self) -> nn.Module | None:
        """Perception's losses, which have weights of their own."""
        return self.loss if self.module == "perception" else None

    def losses(self, sequences: TensorDictBase) -> TensorDict:
        """Return ``loss_*`` of sequences [R, T], and some diagnostics; to be called in TorchRL's recurrent mode."""
        return self.loss(self._encode(sequences, judged=False))

    @torch.no_grad()
    def validate(self, sequences: TensorDictBase) -> dict[str, float]:
        """Return the mean losses of sequences [R, T]."""
        parts = sequences.split(ROWS_AT_ONCE)
        with set_recurrent_mode(True):
            found = torch.stack([self.losses(part) * (part.shape[0] / sequences.shape[0]) for part in parts]).sum(0)
        return {name: value.item() for name, value in sorted(found.items())}

    @torch.no_grad()
    def figures(self, train: TensorDictBase, test: TensorDictBase) -> dict[str, Any]:
        """Return figures of the module, beside those of trivial baselines (see the ``figures`` of its loss)."""
        some = train[torch.randperm(train.shape[0], device=train.device)[: max(ROWS_AT_ONCE, test.shape[0])]]
        with set_recurrent_mode(True):
            data, known = (
                torch.cat([self._encode(part) for part in rows.split(ROWS_AT_ONCE)]) for rows in (test, some)
            )
        return self.loss.figures(data, known)

    def _encode(self, sequences: TensorDictBase, judged: bool = True) -> TensorDictBase:
        """Return the sequences [R, T] with the module's outputs; the social model's loss runs the module itself, so
        here it runs only if it is ``judged``.
        """
        agent, data = self.agent, sequences.copy()
        if self.module == "policy":
            return agent.actor_head[0](agent.encoder(data))
        data = self.modules["perception"](agent.normalizer(data))
        return self.modules["social_model"](data) if judged and self.module == "social_model" else data


class Best:
    """The weights with the lowest loss on the validation worlds so far, including the initial ones.

    Attributes:
        update: number of the update after which they were kept, 0 for none.
        losses: their losses on the validation worlds.
    """

    def __init__(self, lesson: Lesson, losses: dict[str, float]) -> None:
        self.lesson = lesson
        self._keep(0, losses)

    def look(self, update: int, losses: dict[str, float]) -> None:
        """Keep the current weights if they are better."""
        if total_loss(losses) < total_loss(self.losses):
            self._keep(update, losses)

    def restore(self) -> None:
        """Restore the best weights."""
        self.lesson.learning.load_state_dict(self.weights)

    def _keep(self, update: int, losses: dict[str, float]) -> None:
        self.update, self.losses = update, losses
        self.weights = {name: value.clone() for name, value in self.lesson.learning.state_dict().items()}


def total_loss(losses: dict[str, float]) -> float:
    """Return the sum of the ``loss_*``."""
    return sum(value for name, value in losses.items() if name.startswith("loss_"))


class CloningLoss(nn.Module):
    """Cross-entropy of a scripted policy's actions under the policy's ``logits``, for sequences [R, T]; frames of dead
    agents and actions that the mask forbids (which the world ignores) do not count. Writes ``loss_cloning`` and
    ``accuracy``.
    """

    def __init__(self, heads: Sequence[int]) -> None:
        super().__init__()
        self.heads = list(heads)

    def forward(self, tensordict: TensorDictBase) -> TensorDict:
        """Return means over the frames that count."""
        logits, action = tensordict.get(keys.LOGITS), tensordict.get(keys.ACTION)
        mask, valid = tensordict.get(keys.ACTION_MASK, None), tensordict.get(keys.VALID)
        choice: Any = MaskedCategorical(logits, mask)
        if len(self.heads) > 1:
            choice = MaskedMultiCategorical(logits, mask, sizes=self.heads)
        log_prob: Tensor = choice.log_prob(action)
        counted = valid & (log_prob > ILLEGAL)
        right = choice.deterministic_sample == action
        right = right if len(self.heads) == 1 else right.all(-1)
        return TensorDict(
            {
                "loss_cloning": masked_mean(-log_prob, counted),
                "accuracy": masked_mean(right.float(), counted).detach(),
            }
        )

    def figures(self, data: TensorDictBase, train: TensorDictBase) -> dict[str, float]:
        """Return the fraction of frames in which the most likely action is the imitated one, for the first action head.

        Args:
            data: test sequences [R, T] with the policy's ``logits``.
            train: training sequences, for the most frequent action.
        """
        (action, legal, counted), (usual, _, usually) = (self._first_heads(part) for part in (data, train))
        logits = data.get(keys.LOGITS)[..., : self.heads[0]].masked_fill(~legal, -torch.inf)
        frequent = most_frequent(usual, usually, self.heads[0])
        return {
            "accuracy": masked_mean((logits.argmax(-1) == action).float(), counted).item(),
            "accuracy_of_the_most_frequent": masked_mean((action == frequent).float(), counted).item(),
        }

    def _first_heads(self, data: TensorDictBase) -> tuple[Tensor, Tensor, Tensor]:
        """Return of the first head actions [R, T], masks of legal choices [R, T, choices] and counted frames [R, T]."""
        action, mask = first_head(data.get(keys.ACTION), self.heads), data.get(keys.ACTION_MASK, None)
        everything = torch.ones(*action.shape, self.heads[0], dtype=torch.bool, device=action.device)
        legal = everything if mask is None else mask[..., : self.heads[0]]
        return action, legal, data.get(keys.VALID) & legal.gather(-1, action.unsqueeze(-1)).squeeze(-1)
