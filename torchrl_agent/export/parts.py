"""The parts of an agent that run alone, with their inputs, outputs and meanings."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import TensorDictModuleBase, TensorDictSequential
from tensordict.utils import NestedKey
from torch import Tensor, nn
from torchrl.envs.utils import ExplorationType, set_exploration_type

from torchrl_agent.core import keys
from torchrl_agent.evaluation.ablation import GatedPolicy
from torchrl_agent.models.agent import Agent
from torchrl_agent.models.q_agent import QAgent
from torchrl_agent.modules.dynamics import WorldModel
from torchrl_agent.modules.perception import Perception

MEAN, LOG_STD = (keys.BELIEF, "mean"), (keys.BELIEF, "log_std")
ACTIONS = "plan"
THOUGHTS = ("goal", "next_action", "meters", "confidence", "reason")
PREDICTED = ("states", "rewards", "dones", "values", "confidence", "reason")
DOUBT = "why it is not higher: 0 nothing, 1 a state that was not seen before, 2 several outcomes are likely"
MEANINGS: dict[NestedKey, str] = {
    keys.ACTION_MASK: "true where an action is legal, at least once in a row",
    keys.IS_INIT: "true in the first step of an episode: the states handed in are then read as their initial zeros",
    keys.ACTION: "the most likely legal action, or the mean of continuous ones within their bounds",
    keys.LOGITS: "unnormalized log-probabilities of the actions, before the mask; of several actions side by side",
    keys.LOC: "means of the continuous actions, before they are brought within their bounds",
    keys.SCALE: "standard deviations of the continuous actions, likewise",
    MEAN: "mean of the belief, a diagonal Gaussian over the hidden state of the world",
    LOG_STD: "logarithm of its standard deviation",
    keys.FORECAST: "what the social model predicts of all others in sight together",
    ACTIONS: "numbers of the actions to imagine, one after the other",
    (keys.FUTURES, "states"): "own state after each imagined step: the observations that went in, in their order",
    (keys.FUTURES, "rewards"): "imagined rewards, in the units that the agent learned with",
    (keys.FUTURES, "dones"): "probability that the episode terminates with each step",
    (keys.FUTURES, "values"): "value after each step, in the units of the rewards",
    (keys.FUTURES, "confidence"): "trust in this future, in 0..1",
    (keys.FUTURES, "reason"): DOUBT,
    (keys.SOCIAL, "goal"): "unnormalized log-probabilities of what each visible other needs; zeros in empty slots",
    (keys.SOCIAL, "next_action"): "unnormalized log-probabilities of what it will do next",
    (keys.SOCIAL, "meters"): "what its meters are thought to be",
    (keys.SOCIAL, "confidence"): "probability of the most likely need",
    (keys.SOCIAL, "reason"): DOUBT,
    keys.GOAL_EMBEDDING: "what the controller reads of the goal",
    (keys.GOAL, "type"): "number of the goal",
    (keys.GOAL, "priority"): "its probability among the goals",
    (keys.GOAL, "target"): "what it wants of the meters",
    (keys.SOCIAL, "attention"): "how much each visible other matters to the policy; they sum to 1",
}

ACTION_VALUES: dict[NestedKey, str] = {
    keys.ACTION: "the legal action of the highest value",
    keys.LOGITS: "values of the actions, in the units of scaled rewards; no probabilities, and before the mask",
}
"""Meanings of the outputs of an agent with action values (DQN)."""


@dataclass
class Part:
    """A part of an agent that can be exported: its module, its output keys, and two rows of zeros for inputs that no
    world provides.
    """

    module: TensorDictModuleBase
    out_keys: list[NestedKey]
    examples: dict[NestedKey, Tensor] = field(default_factory=dict)
    meanings: dict[NestedKey, str] = field(default_factory=dict)
    """Meanings that differ from the usual ones (see :func:`meaning`)."""


class Plain(nn.Module):
    """Plain module around a TensorDict module, from tensors by name [B, ...] to tensors by name [B, ...]."""

    def __init__(self, part: Part) -> None:
        super().__init__()
        self.module, self.in_keys, self.out_keys = part.module, part.module.in_keys, part.out_keys

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        """Run the module without sampling: the action is the most likely one."""
        tensordict = TensorDict({}, next(iter(inputs.values())).shape[:1])
        for key in self.in_keys:
            if flat_name(key) in inputs:
                tensordict.set(key, inputs[flat_name(key)])
        with set_exploration_type(ExplorationType.DETERMINISTIC):
            tensordict = self.module(tensordict)
        return {flat_name(key): tensordict.get(key) for key in self.out_keys}


class Foresight(TensorDictModuleBase):
    """A world model alone: from a belief [B, D], the agent's own state (as observed) and a ``plan`` of actions [B, H]
    to the imagined future (see ``WorldModel.imagine``).
    """

    def __init__(self, model: WorldModel, known: list[str]) -> None:
        super().__init__()
        self.model, self.known = model, known
        self.believed: list[NestedKey] = [MEAN, *([keys.FORECAST] if model.forecast_size else [])]
        self.in_keys = [*self.believed, *known, ACTIONS]
        self.out_keys = [(keys.FUTURES, name) for name in PREDICTED]

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write ``futures`` of one plan for each row."""
        belief, known = (torch.cat([tensordict.get(key) for key in part], -1) for part in (self.believed, self.known))
        futures = self.model.imagine(belief, known, tensordict.get(ACTIONS).unsqueeze(-2))
        return tensordict.set(keys.FUTURES, futures.squeeze(-1))


class Sight(TensorDictModuleBase):
    """Perception's cues of the other agents in sight, without a belief."""

    def __init__(self, perception: Perception) -> None:
        super().__init__()
        self.cues = perception.cues
        self.in_keys = [str(perception.others), perception.number]
        self.out_keys = [(keys.BELIEF, name) for name in ("social_cues", "visible", "number")]

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write a belief of cues only."""
        return tensordict.set(keys.BELIEF, TensorDict(self.cues(tensordict), tensordict.batch_size))


def parts(agent: Agent) -> dict[str, Part]:
    """Return the parts of an agent that can be exported, by name."""
    found, perception, model, social = {}, agent.perception, agent.world_model, agent.social_model
    if perception is not None:
        module = TensorDictSequential(agent.normalizer, perception)
        found["perception"] = Part(module, [MEAN, LOG_STD, *_carried(perception.memory)])
    if perception is not None and model is not None:
        foresight = Foresight(model, perception.known)
        numbers: dict[NestedKey, int] = {MEAN: model.belief_size, keys.FORECAST: model.forecast_size}
        examples = {key: torch.zeros(2, size) for key, size in numbers.items() if key in foresight.in_keys}
        plan = torch.zeros(2, model.config.horizon).long()
        found["world_model"] = Part(foresight, foresight.out_keys, {**examples, ACTIONS: plan})
    if perception is not None and social is not None:
        names = THOUGHTS if social.attention is None else (*THOUGHTS, "attention")
        thoughts: list[NestedKey] = [(keys.SOCIAL, name) for name in names]
        eyes = (agent.normalizer, perception) if social.believes else (Sight(perception),)
        carried = {**(perception.memory if social.believes else {}), **social.memory}
        found["social_model"] = Part(TensorDictSequential(*eyes, social), [*thoughts, *_carried(carried)])
    body = list(agent.encoder)
    for name, module in agent.agent_modules.items():
        if name in found or not module.acts:
            continue
        before, written = body[: body.index(module)], [module.out_keys[0], *module.exported_keys]
        memory = {key: spec for part in (*before, module) for key, spec in getattr(part, "memory", {}).items()}
        found[name] = Part(TensorDictSequential(*before, module), [*written, *_carried(memory)])
    meanings = ACTION_VALUES if isinstance(agent, QAgent) else {}
    outputs = [keys.ACTION, *agent.actor_head[0].out_keys, *_carried(agent.memory)]
    found["policy"] = Part(agent.actor, outputs, meanings=meanings)
    return found


def gated_policy(agent: Agent) -> Part:
    """Return the policy with a further input, a factor for each module.

    Raises:
        ValueError: the agent has no module to be ablated.
    """
    part, module = parts(agent)["policy"], GatedPolicy(agent, agent.actor)
    order = ", ".join(module.gated)
    text = f"factors of what modules write for others, 1 or, to ablate the module, 0, in this order: {order}"
    factors: dict[NestedKey, Tensor] = {keys.MODULE_FACTORS: torch.ones(2, len(module.gated))}
    return replace(part, module=module, examples=factors, meanings={**part.meanings, keys.MODULE_FACTORS: text})


def flat_name(key: NestedKey) -> str:
    """Return a tensordict's key as the name of an input or output: ``("next", "hidden")`` is ``next_hidden``."""
    return key if isinstance(key, str) else "_".join(key)


def meaning(key: NestedKey) -> str:
    """Return the meaning of an input or output, in words."""
    if isinstance(key, tuple) and key[0] == keys.NEXT:
        return f"state to hand to the next step as {key[1]}"
    if key in keys.MEMORY and key != keys.IS_INIT:
        return f"state of the memory: what the last step gave as {flat_name((keys.NEXT, str(key)))}"
    return MEANINGS.get(key, f"observation of the world, as the world gives it: {key}")


def _carried(memory: dict) -> list[NestedKey]:
    return [(keys.NEXT, name) for name in memory]
