"""Evidence of a lab's fault: how much that of each module rises, and the first step at which the fault shows."""

from __future__ import annotations

from contextlib import closing

import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torchrl.envs.utils import ExplorationType, set_exploration_type

from torchrl_agent import keys
from torchrl_agent.core.run_names import find_run
from torchrl_agent.explain.evidence import module_of
from torchrl_agent.explain.reference import WORLDS, find_reference, steps_of
from torchrl_agent.labs.lab import Lab
from torchrl_agent.models.planned_policy import acting_policy

STEPS = 96
"""Number of steps of the games that are looked at."""


@torch.no_grad()
def rises(lab: Lab, *changes: str) -> dict[str, float]:
    """Return by module how far its evidence rises in games with changes: its mean over the limit of the healthy agent,
    the largest of the module's.
    """
    experiment, agent = lab.agent(*changes)
    reference = find_reference(find_run(lab.run))
    assert reference is not None, "the agent of a lab has a reference"
    steps = steps_of(experiment, agent, experiment.evaluation.seed, most=STEPS)
    result: dict[str, float] = {}
    for name, values in reference.evidence(agent, steps).items():
        if name in reference.limits:
            module, rise = module_of(name), values.nanmean().item() / reference.limits[name]
            result[module] = max(rise, result.get(module, 0.0))
    return result


@torch.no_grad()
def first_steps(lab: Lab) -> list[int | None]:
    """Return for the first games of the evaluation the first step at which the agent with the fault acts as the healthy
    one would not in its place, with the same past; None for a game without one.
    """
    experiment, faulty = lab.agent(lab.fault)
    _, healthy = lab.agent()
    world = experiment.make_world(evaluation=True, num_envs=WORLDS, seed=experiment.evaluation.seed)
    found: list[int | None] = [None] * WORLDS
    with closing(faulty.attach(world)) as env, set_exploration_type(ExplorationType.DETERMINISTIC):
        policy, beside, root = acting_policy(faulty), Beside(acting_policy(healthy)), env.reset()
        over = torch.zeros(WORLDS, dtype=torch.bool)
        for step in range(STEPS):
            root = policy(root)
            other = (root[env.action_key] != beside(root)[env.action_key]).flatten(1).any(1) & ~over
            found = [step if first is None and bool(here) else first for first, here in zip(found, other, strict=True)]
            played, root = env.step_and_maybe_reset(root)
            over |= played[keys.NEXT, keys.DONE].reshape(-1)
    return found


class Beside:
    """Policy that observes what another one does, and remembers by itself."""

    def __init__(self, policy: TensorDictModuleBase) -> None:
        self.policy = policy
        self.memory: TensorDictBase | None = None

    def __call__(self, root: TensorDictBase) -> TensorDictBase:
        """Return what it would do, given the observations of ``root``, and keep its memory for the next step."""
        given = root.exclude(keys.NEXT).clone()
        if self.memory is not None:
            given.update(self.memory)
        acted: TensorDictBase = self.policy(given)
        self.memory = acted.get(keys.NEXT, None)
        return acted
