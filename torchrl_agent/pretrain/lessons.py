"""Pre-training of each module: its losses, and the figures of its evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import ProbabilisticTensorDictModule
from torch import Tensor, nn
from torchrl.modules import set_recurrent_mode
from typing_extensions import override

from torchrl_agent.core import keys
from torchrl_agent.core.ranks import masked_mean
from torchrl_agent.models.agent import Agent
from torchrl_agent.models.pretrained import agent_modules, reads
from torchrl_agent.modules.networks import first_head
from torchrl_agent.modules.records import most_frequent

ROWS_AT_ONCE = 64
"""Number of sequences that are evaluated at a time, which bounds memory."""
ILLEGAL = -1e30
"""Log-probabilities below this are those of actions that the mask forbids."""


class Lesson:
    """Pre-training of one module, without its loop.

    Args:
        agent: agent that has the module; its losses are those of training with PPO.
        module: one of ``MODULES`` of ``models/pretrained.py``, or one of ``model.custom_modules``.
        heads: number of choices of each discrete action.
        temperature: of the policy's advantage-weighted regression, for which the critic learns too; None clones.

    Raises:
        ValueError: all parameters of the module are frozen, or it has not one loss.
    """

    def __init__(self, agent: Agent, module: str, heads: Sequence[int], temperature: float | None = None) -> None:
        self.agent, self.module, self.judges = agent, module, temperature is not None
        choice = agent.actor_head[-1]
        self.loss: Any = CloningLoss(heads, choice)
        if temperature is not None:
            self.loss = RegressionLoss(heads, choice, temperature)
        if module in agent.agent_modules:
            losses = agent.agent_modules[module].losses
            if len(losses) != 1:
                raise ValueError(f"{module} has {len(losses)} losses: pre-training needs a module with one 'loss'.")
            self.loss = losses[0]
        there: dict[str, Any] = agent_modules(agent)
        self.modules = there
        critic = [agent.critic_head] if self.judges else []
        self.learning = nn.ModuleList([*(there[name] for name in reads(agent, module)), *critic, self.loss])
        self.parameters = [parameter for parameter in self.learning.parameters() if parameter.requires_grad]
        if not any(parameter.requires_grad for parameter in there[module].parameters()):
            raise ValueError(f"frozen names {module}, which is to be pre-trained: leave it out.")

    @property
    def auxiliary(self) -> nn.Module | None:
        """Networks that learn along without being the module's: decoders of perception's losses, a policy's critic."""
        if self.judges:
            return self.agent.critic_head
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
        if not hasattr(self.loss, "figures"):
            return {name: value.item() for name, value in self.loss(data).items()}
        return self.loss.figures(data, known)

    def _encode(self, sequences: TensorDictBase, judged: bool = True) -> TensorDictBase:
        """Return the sequences [R, T] with the module's outputs; the social model's loss runs the module itself, so
        here it runs only if it is ``judged``.
        """
        agent, data = self.agent, sequences.copy()
        if self.module == "policy":
            data = agent.actor_head[0](agent.encoder(data))
            return agent.critic_head(data) if self.judges else data
        if self.module in agent.custom_modules:
            body = list(agent.encoder)
            for part in body[: body.index(agent.custom_modules[self.module]) + 1]:
                data = part(data)
            return data
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

    def consider(self, update: int, losses: dict[str, float]) -> None:
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
    """Cross-entropy of recorded actions under the policy's ``logits``, for sequences [R, T]; frames of dead agents and
    actions that the mask forbids (which the world ignores) do not count. Writes ``loss_cloning`` and ``accuracy``.

    Args:
        heads: number of choices of each discrete action.
        choice: module that makes the distribution of the actions from the logits.
    """

    def __init__(self, heads: Sequence[int], choice: ProbabilisticTensorDictModule) -> None:
        super().__init__()
        self.heads = list(heads)
        self.__dict__["choice"] = choice  # not as a submodule: it belongs to the agent

    def forward(self, tensordict: TensorDictBase) -> TensorDict:
        """Return means over the frames that count."""
        log_prob, counted, right = self.judged(tensordict)
        return TensorDict(
            {"loss_cloning": masked_mean(-log_prob, counted), "accuracy": masked_mean(right.float(), counted).detach()}
        )

    def judged(self, tensordict: TensorDictBase) -> tuple[Tensor, Tensor, Tensor]:
        """Log-probabilities of the actions, the frames that count, and those in which the action is the most likely
        one, [R, T] each.
        """
        action, choice = tensordict.get(keys.ACTION), self.choice.get_dist(tensordict)
        log_prob: Tensor = choice.log_prob(action)
        right = choice.deterministic_sample == action
        right = right if len(self.heads) == 1 else right.all(-1)
        return log_prob, tensordict.get(keys.VALID) & (log_prob > ILLEGAL), right

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


class RegressionLoss(CloningLoss):
    """Advantage-weighted regression (Peng et al. 2019) of recorded actions: each counts ``exp(A / temperature)``, A
    being the discounted rewards that followed beyond the critic's value, in standard deviations. Weights are at most
    :data:`LARGEST_WEIGHT` times the mean one.

    Writes ``loss_cloning``, ``accuracy``, and ``loss_critic``: the squared error of the values as a fraction of the
    variance of the rewards that followed.

    Args:
        heads: number of choices of each discrete action.
        choice: module that makes the distribution of the actions.
        temperature: the lower it is, the more the best actions count.
    """

    LARGEST_WEIGHT = 20.0

    def __init__(self, heads: Sequence[int], choice: ProbabilisticTensorDictModule, temperature: float) -> None:
        super().__init__(heads, choice)
        self.temperature = temperature

    @override
    def forward(self, tensordict: TensorDictBase) -> TensorDict:
        """Return means over the frames that count."""
        log_prob, counted, right = self.judged(tensordict)
        target, value = (tensordict.get(key).squeeze(-1).float() for key in (keys.VALUE_TARGET, keys.VALUE))
        error = target - value
        variance = masked_mean((target - masked_mean(target, counted)).square(), counted).clamp_min(1e-8)
        weight = self.weights(error.detach(), counted)
        return TensorDict(
            {
                "loss_cloning": masked_mean(-log_prob * weight, counted),
                "loss_critic": masked_mean(error.square(), counted) / variance,
                "accuracy": masked_mean(right.float(), counted).detach(),
            }
        )

    def weights(self, advantage: Tensor, counted: Tensor) -> Tensor:
        """Weights [R, T] with mean 1, but for large ones that are cut."""
        advantage = advantage - masked_mean(advantage, counted)
        deviation = masked_mean(advantage.square(), counted).sqrt().clamp_min(1e-8)
        logarithm = torch.where(counted, advantage / deviation / self.temperature, -torch.inf)
        weight = (logarithm - logarithm.amax()).exp()  # at most 1, so that nothing overflows
        return (weight / masked_mean(weight, counted).clamp_min(1e-30)).clamp_max(self.LARGEST_WEIGHT)
