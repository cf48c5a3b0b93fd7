"""Evidence for errors of modules: numbers of every step, which a reference of the healthy agent makes comparable.

A step's number is a quotient of two sums over the last steps of the episode, ``amount`` over ``weight``: what is wrong,
over how much there is that can be wrong. Shapes: R agents, T steps; V slots for others, K numbers of the own state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from tensordict import TensorDictBase
from torch import Tensor

from torchrl_agent.core import keys
from torchrl_agent.models.agent import Agent
from torchrl_agent.modules.dynamics import dreaming_state
from torchrl_agent.modules.social_model import follow

SPAN = 32
"""Number of steps over which evidence is summed, the present one included."""
LEAST = 4
"""Least number of these steps that must offer evidence."""
AHEAD = 5
"""Largest number of predicted steps that are compared with what followed."""
WORST = 5.0
"""Largest error that counts of one prediction: a surprise [nats], or a multiple of the usual error."""
GOALS = "goals"
SURE = 1e-3
"""Least impurity of the goals' probabilities that counts."""
OWN = "own "
"""Beginning of names of evidence for errors of the world model, which end with an observation's name or ``state``."""
IN_SIGHT = 0.5
"""Least squared deviation from the mean, in variances, with which an observation is evidence."""
SIGHT = "sight of "
"""Beginning of the names of evidence for errors of perception, which end with the observation's name."""
WIDEST = 512
"""Largest number of components of an observation that is read from the belief."""
MODULES = {
    "rewards": "world model",
    "needs": "social model",
    "actions": "social model",
    "meters": "social model",
    GOALS: "policy",
    "certainty": "policy",
}
"""Evidence by name, and the module that it is about."""


class Steps(NamedTuple):
    """Steps of agents: their tensordicts before the action and after it, [R, T], and masks bool [R, T]."""

    rows: TensorDictBase
    afters: TensorDictBase
    begins: Tensor
    """First step of an episode."""
    over: Tensor
    """Last step of an episode."""


class Quotient(NamedTuple):
    """Evidence of each step, [R, T]; both are 0 where a step has none."""

    amount: Tensor
    weight: Tensor


class Probe(NamedTuple):
    """Linear reading of some numbers from others: ``inputs`` [..., D] to the G of ``targets`` [..., F] that it reads
    well, ``readable`` [F], by ``weight`` [D + 1, G]; ``mean`` and ``deviation`` [G] of these targets.
    """

    weight: Tensor
    mean: Tensor
    deviation: Tensor
    readable: Tensor

    def errors(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return squared errors and squared deviations from the mean, means over the readable targets."""
        read, truth = with_one(inputs) @ self.weight, targets[..., self.readable]
        error = ((read - truth) / self.deviation).square().mean(-1)
        return error, ((truth - self.mean) / self.deviation).square().mean(-1)

    def sight(self, inputs: Tensor, targets: Tensor) -> Quotient:
        """Return errors over deviations, in steps in which something is in sight."""
        error, there = self.errors(inputs, targets)
        return Quotient(*(torch.where(there > IN_SIGHT, part, 0.0) for part in (error, there + 0.1)))

    def goals(self, inputs: Tensor, targets: Tensor) -> Quotient:
        """Return errors, however little the usual ones differ."""
        error, _ = self.errors(inputs, targets)
        return Quotient(error, torch.ones_like(error))


def with_one(inputs: Tensor) -> Tensor:
    """Append the input of the constant."""
    return torch.cat((inputs, torch.ones_like(inputs[..., :1])), -1)


def module_of(name: str) -> str:
    """Return the module that evidence is about."""
    if name.startswith(OWN):
        return "world model"
    return "perception" if name.startswith(SIGHT) else MODULES[name]


def probed(agent: Agent, steps: Steps) -> dict[str, tuple[Tensor, Tensor]]:
    """Return inputs and targets of each probe by name, [R, T, ...]: those of perception read an observation from the
    belief, such as the map or the window, ``goals`` reads the probabilities of the manager's goals from the own meters.
    """
    result = {}
    perception, manager, rows = agent.perception, agent.manager, steps.rows
    if perception is not None and keys.NORMALIZED in rows.keys():
        passed_on = {*perception.known, perception.others}  # besides the belief
        seen = rows[keys.NORMALIZED].split(perception.sizes, -1)
        for name, values in zip(agent.normalizer.in_keys, seen, strict=True):
            if name not in passed_on and values.shape[-1] <= WIDEST:
                result[f"{SIGHT}{name}"] = (rows[keys.BELIEF, "mean"], values)
    if manager is not None:
        result[GOALS] = (rows[manager.config.meters], manager.distribution(rows).probs)
    return result


@torch.no_grad()
def read_from_belief(
    agent: Agent, rows: TensorDictBase, probes: Mapping[str, Probe]
) -> dict[str, tuple[list[int], Tensor]]:
    """Return what the probes read of observations from beliefs, by the observation's name: the readable components, G
    of them, and their values [..., G] in the world's units.
    """
    perception, normalizer, result = agent.perception, agent.normalizer, {}
    if perception is None or not normalizer.enabled:
        return {}
    running = normalizer.running
    means = running.mean.float().split(perception.sizes)
    deviations = (running.var.float() + normalizer.epsilon).sqrt().split(perception.sizes)
    for name, mean, deviation in zip(normalizer.in_keys, means, deviations, strict=True):
        if (probe := probes.get(f"{SIGHT}{name}")) is not None:
            read = with_one(rows[keys.BELIEF, "mean"]) @ probe.weight
            values = read * deviation[probe.readable] + mean[probe.readable]
            result[name] = probe.readable.nonzero().squeeze(-1).tolist(), values
    return result


@torch.no_grad()
def quotients(agent: Agent, steps: Steps, probes: Mapping[str, Probe], scale: Tensor, unit: float) -> dict:
    """Return the evidence of every step by name (:data:`MODULES`), a :class:`Quotient` each.

    Args:
        scale: usual errors of the predicted own state, [K].
        unit: the world's reward that is one of the agent's units.
    """
    found = {
        name: (probes[name].goals if name == GOALS else probes[name].sight)(*given)
        for name, given in probed(agent, steps).items()
        if name in probes
    }
    if agent.manager is not None:
        impurity = 1 - agent.manager.distribution(steps.rows).probs.square().sum(-1)
        found["certainty"] = Quotient(-(impurity + SURE).log(), torch.ones_like(impurity))
    if agent.world_model is not None:
        own, rewards = prediction_errors(agent, steps, unit)
        own = (own / scale).clamp(max=WORST)
        known = agent.perception.known if agent.perception is not None else []
        parts = own.split([steps.rows[name].shape[-1] for name in known], -1)
        found |= {f"{OWN}{name}": _mean(part) for name, part in zip(("state", *known), (own, *parts), strict=True)}
        found["rewards"] = _mean(rewards.unsqueeze(-1))
    if keys.SOCIAL in steps.rows.keys() and keys.PRIVILEGED in steps.rows.keys():
        found |= _social(agent, steps)
    alive = steps.rows.get(keys.ALIVE, torch.ones_like(steps.begins)).reshape(steps.begins.shape)
    return {name: Quotient(*(torch.where(alive, part, 0.0) for part in each)) for name, each in found.items()}


def prediction_errors(agent: Agent, steps: Steps, unit: float) -> tuple[Tensor, Tensor]:
    """Return errors of the own state after one step, [R, T, K], and of the sum of the next rewards, [R, T]."""
    model, perception = agent.world_model, agent.perception
    assert model is not None and perception is not None, "a world model dreams in beliefs"
    belief, known = dreaming_state(steps.rows)
    ahead, count = min(AHEAD, model.config.horizon), steps.begins.shape[1]
    action = steps.rows[keys.ACTION].reshape(*steps.begins.shape, -1)[..., 0]
    plans = torch.stack([action.roll(-step, 1) for step in range(ahead)], -1)
    futures = model.imagine(belief, known, plans.unsqueeze(-2))
    became = torch.cat([steps.afters[name] for name in perception.known], -1)
    reward = steps.afters[keys.REWARD].reshape(steps.begins.shape) / unit
    goes_on, missed = torch.ones_like(steps.over), torch.zeros_like(reward)
    for step in range(ahead):
        goes_on = goes_on & (torch.arange(count, device=goes_on.device) < count - step)
        missed = missed + torch.where(goes_on, futures["rewards"][..., 0, step] - reward.roll(-step, 1), 0.0)
        goes_on = goes_on & ~steps.over.roll(-step, 1)
    return (futures["states"][..., 0, 0, :] - became).abs(), missed.abs()


def _mean(values: Tensor) -> Quotient:
    """Return the mean of numbers [R, T, N] as evidence; NaN are left out."""
    there = ~values.isnan()
    return Quotient(torch.where(there, values, 0.0).sum(-1), there.float().sum(-1))


def _social(agent: Agent, steps: Steps) -> dict[str, Quotient]:
    """Return surprises at others' needs and next actions [nats], and errors of their meters."""
    assert agent.social_model is not None
    rows, labels = steps.rows, steps.rows[keys.PRIVILEGED]
    number, visible = rows[keys.BELIEF, "number"], rows[keys.BELIEF, "visible"]
    acted, seen_again = follow(number, labels["others_action"], visible, agent.social_model.agents)
    last = torch.arange(visible.shape[1], device=visible.device) == visible.shape[1] - 1
    seen_again = seen_again & visible & ~(steps.over | last).unsqueeze(-1)

    def surprise(logits: Tensor, truth: Tensor, mask: Tensor) -> Quotient:
        found = -logits.log_softmax(-1).gather(-1, truth.unsqueeze(-1)).squeeze(-1).clamp(max=WORST)
        return _mean(torch.where(mask, found, torch.nan))

    meters = (rows[keys.SOCIAL, "meters"] - labels["others_meters"]).abs().mean(-1)
    return {
        "needs": surprise(rows[keys.SOCIAL, "goal"], labels["others_need"], visible),
        "actions": surprise(rows[keys.SOCIAL, "next_action"], acted, seen_again),
        "meters": _mean(torch.where(visible, meters, torch.nan)),
    }


def summed(evidence: Quotient, begins: Tensor) -> Tensor:
    """Return the quotient of the sums over the last :data:`SPAN` steps of an episode, [R, T]; NaN where fewer than
    :data:`LEAST` of them have evidence.
    """
    steps = torch.arange(begins.shape[1], device=begins.device).expand(begins.shape)
    first = torch.where(begins, steps, 0).cummax(1).values.maximum(steps - SPAN + 1)

    def sums(values: Tensor) -> Tensor:
        total = torch.nn.functional.pad(values.double().cumsum(1), (1, 0))
        return total[:, 1:] - total.gather(1, first)

    amount, weight, count = (sums(part) for part in (*evidence, evidence.weight > 0))
    return torch.where(count >= LEAST, amount / weight, torch.nan).float()
