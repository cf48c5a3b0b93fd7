"""Planning in imagination: the cross-entropy method over sequences of discrete actions.

Shapes: [...] is rows (worlds times agents); N sequences sampled of H actions each, K elites among them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchrl_agent.core.bounds import MOST_STEPS, choice, count, number, weight
from torchrl_agent.core.spans import spanned
from torchrl_agent.modules.dynamics import WorldModel

STARTS = ("proposal", "uniform")


@dataclass
class PlannerConfig:
    """The planner: the cross-entropy method in the world model's imagination."""

    enabled: bool = False
    """Act by plans in evaluation, films and explanations. Training does not."""
    horizon: int = count(5, MOST_STEPS)
    """Planning horizon H: steps of a plan. More than ``open_loop`` is further than the model has learned to predict."""
    samples: int = count(64)
    """N, sequences sampled in each iteration."""
    elites: int = count(8)
    """K, best sequences, from which new ones are drawn."""
    iterations: int = count(4, MOST_STEPS)
    """Iterations of the cross-entropy method."""
    start: str = choice("proposal", STARTS)
    """First distribution over plans. proposal: the agent's most likely actions; uniform: all actions alike."""
    smoothing: float = number(0.1, least=0, below=1)
    """Fraction of old probabilities kept in each iteration. So no action is given up too early."""
    prior: float = weight(0.1)
    """Weight of the controller's logits, in expected return. A plan must promise so much more than what the controller
    would do. 0 trusts the model alone, which finds its mistakes."""


class CrossEntropyPlanner(nn.Module):
    """Finds a sequence of first-head actions with a large expected return in the world model's imagination.

    The cross-entropy method (Rubinstein 1999; for planning in a learned model Hafner et al. 2019, "PlaNet", algorithm
    2), with a categorical distribution for each step: draw N sequences, keep the K best, draw the next ones by
    the frequencies of actions among these. The best sequence of all iterations is the plan; each iteration also tries
    the most likely sequence of its distribution. Sequences are ranked by their expected return plus the controller's
    weighted logit of their first action.

    All draws use the same random numbers, made once from a fixed seed: a plan depends on nothing but belief and mask,
    whatever the batch, eager or compiled.
    """

    noise: Tensor

    def __init__(self, model: WorldModel, config: PlannerConfig) -> None:
        super().__init__()
        self.model, self.config = model, config
        shape = (config.iterations, config.samples, config.horizon, model.heads[0])
        uniform = torch.rand(shape, generator=torch.Generator().manual_seed(0)).clamp_min(1e-10)
        gumbel = -torch.log(-torch.log(uniform))
        gumbel[:, 0] = 0.0  # a draw without noise is the most likely sequence
        self.register_buffer("noise", gumbel.to(model.usual_spread.device), persistent=False)

    @spanned("planner")
    @torch.no_grad()
    def forward(
        self, belief: Tensor, known: Tensor, mask: Tensor | None = None, controller: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Plan for every row.

        Args:
            belief: [..., D].
            known: the agent's own state, [..., K].
            mask: legal actions now, bool [..., actions of all heads], None for all; later steps may take any, as the
                model does not predict what will be legal.
            controller: the controller's logits of the first action, [..., first-head actions], None to trust the model
                alone.

        Returns:
            int64 actions [..., H], and their expected return under the model, [...].
        """
        logits = self._start(belief, known)
        if mask is not None:
            illegal = ~mask[..., : self.model.heads[0]]
            first = logits[..., 0, :].masked_fill(illegal, torch.finfo(logits.dtype).min)
            logits = torch.cat((first.unsqueeze(-2), logits[..., 1:, :]), -2)
        probabilities = logits.softmax(-1)
        plan, promised = logits.argmax(-1), torch.full_like(belief[..., 0], -torch.inf)
        highest = promised
        for noise in self.noise:
            actions = (logits.unsqueeze(-3) + noise).argmax(-1)  # [..., N, H], by the Gumbel-max trick
            worth = self.model.expected_return(self.model.imagine(belief, known, actions))
            score = worth
            if controller is not None:
                score = worth + self.config.prior * controller.gather(-1, actions[..., 0])
            scores, elites = score.topk(self.config.elites, -1)  # best first
            chosen = actions.gather(-2, elites.unsqueeze(-1).expand(*elites.shape, actions.shape[-1]))
            better = scores[..., 0] > highest
            plan = torch.where(better.unsqueeze(-1), chosen[..., 0, :], plan)
            promised = torch.where(better, worth.gather(-1, elites[..., :1]).squeeze(-1), promised)
            highest = torch.maximum(scores[..., 0], highest)
            share = F.one_hot(chosen, self.model.heads[0]).float().mean(-3)
            probabilities = torch.lerp(share, probabilities, self.config.smoothing)
            logits = probabilities.log()  # an illegal action has probability 0, so no noise can raise it
        return plan, promised

    def _start(self, belief: Tensor, known: Tensor) -> Tensor:
        """Logits [..., H, actions] of the first iteration's draws."""
        if self.config.start == "uniform":
            return belief.new_zeros(*belief.shape[:-1], self.config.horizon, self.model.heads[0])
        steps = []
        for _ in range(self.config.horizon):
            steps.append(self.model.propose(belief, known))
            outcome = self.model(belief, known, self.model.first_head(steps[-1].argmax(-1)))
            belief, known = outcome["belief"], outcome["proprioception"]
        return torch.stack(steps, -2)


def check_planner(config: PlannerConfig, world_model: bool) -> None:
    """Raise ValueError naming the first setting of the planner that cannot work."""
    if config.enabled and not world_model:
        raise ValueError(
            "model.planner.enabled=true plans with a world model, which this agent lacks: train one with "
            "model.world_model.enabled=true, or act without a planner."
        )
    if config.elites > config.samples:
        raise ValueError(
            f"model.planner.elites is {config.elites} but only {config.samples} samples are drawn: give fewer elites."
        )
