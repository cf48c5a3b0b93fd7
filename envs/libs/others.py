"""Observations of the other agents in worlds of other libraries, for the agent's social model."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from tensordict import TensorDict
from torch import Tensor
from torchrl.data import Categorical, Composite, Unbounded


class Others:
    """Observation of the other agents' last actions for every agent, under the keys that the Town has.

    ``others`` [N, A, (A - 1) C] are one-hot codes of the others' last actions side by side, zeros before the first one;
    ``others_number`` [N, A, A - 1] are the others' indices. ``privileged`` has the training targets of the social
    model: the last action of each other agent; one constant need and meter replace those that these worlds lack.

    Args:
        worlds: number of worlds N.
        agents: number of agents A.
        choices: number of discrete actions C of each agent.

    Raises:
        ValueError: actions are continuous (no choices), or there are no other agents.
    """

    def __init__(self, worlds: int, agents: int, choices: int | None, device: torch.device | None) -> None:
        if choices is None or agents < 2:
            raise ValueError(
                "show_others shows which action each other agent chose: it needs at least 2 agents with one discrete "
                "action (of VMAS continuous_actions=false)."
            )
        self.shape, self.choices, self.device = (worlds, agents, agents - 1), choices, device
        slot, agent = torch.arange(agents - 1, device=device), torch.arange(agents, device=device)
        self.number = (slot + (slot >= agent.unsqueeze(1))).expand(self.shape)  # all but oneself, in order
        self.last = torch.full((worlds, agents), -1, device=device)

    def add_specs(self, group: Composite) -> None:
        """Add the specs of these observations to those of the agents."""
        worlds, agents, others = self.shape
        group["others"] = Unbounded((worlds, agents, others * self.choices), device=self.device)
        group["others_number"] = Categorical(agents + 1, shape=self.shape, device=self.device)
        group["privileged"] = Composite(
            others_need=Categorical(1, shape=self.shape, device=self.device),
            others_meters=Unbounded((*self.shape, 1), device=self.device),
            others_action=Categorical(self.choices, shape=self.shape, device=self.device),
            shape=(worlds, agents),
            device=self.device,
        )

    def begin(self, rows: Tensor | None) -> None:
        """Clear the last actions where episodes begin: in some worlds, bool [N, 1], or in all."""
        self.last = torch.full_like(self.last, -1) if rows is None else self.last.masked_fill(rows, -1)

    def act(self, actions: Tensor) -> None:
        """Record the agents' actions, int64 [N, A]."""
        self.last = actions.to(self.last.device)

    def show(self, group: TensorDict) -> None:
        """Write these observations into the agents' tensordict [N, A]."""
        last = self.last.unsqueeze(1).expand(-1, self.shape[1], -1).gather(-1, self.number)  # [N, A, A - 1]
        codes = F.one_hot(last + 1, self.choices + 1)[..., 1:].float()
        group.set("others", codes.flatten(-2))
        group.set("others_number", self.number.clone())
        labels = {
            "others_need": torch.zeros_like(last),
            "others_meters": codes.new_zeros(*self.shape, 1),
            "others_action": last.clamp_min(0),
        }
        group.set("privileged", TensorDict(labels, self.shape[:2], device=self.device))
