"""Outputs of an agent's modules in a step of an episode, as a record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import torch
from tensordict import TensorDictBase
from torch import Tensor
from torchrl.envs import EnvBase

from torchrl_agent.core import keys
from torchrl_agent.core.abilities import abilities
from torchrl_agent.explain.episode import Episode, Frame, Moment, number_of_agents, play_episode
from torchrl_agent.explain.evidence import AHEAD, SPAN
from torchrl_agent.explain.reference import Reference
from torchrl_agent.explain.thought import (
    EMPTY,
    UNSEEN,
    ActionValues,
    Belief,
    Evidence,
    Futures,
    Goal,
    Names,
    Numbers,
    Others,
    Thought,
)
from torchrl_agent.models.agent import Agent
from torchrl_agent.models.q_agent import EpsilonGreedy, QAgent
from torchrl_agent.models.sac_agent import SACAgent
from torchrl_agent.modules import records
from torchrl_agent.modules.distributions import MaskedCategorical
from torchrl_agent.modules.dynamics import dreaming_state
from torchrl_agent.modules.memory import AssociativeMemory
from torchrl_agent.modules.specs import action_bounds, action_heads, mixed_choices, observation_shapes
from torchrl_agent.modules.world_model import PolicyImprovement

METERS = "meters"
"""Observation to which the world's names of meters belong."""


def think(
    env: EnvBase,
    agent: Agent,
    world: int,
    index: int,
    step: int,
    reward_unit: float = 1.0,
    reference: Reference | None = None,
) -> Thought:
    """Run one episode with the most likely actions and record the agent's outputs at a step.

    Args:
        env: a world with the agent's transforms (``agent.attach``).
        world: row of ``env``.
        index: number of the agent, 0 in a world of one agent.
        step: counted from 0.
        reward_unit: deviation that rewards were divided by in training.
        reference: what is usual of the healthy agent, for the diagnosis.

    Raises:
        ValueError: the step is beyond the episode's end.
    """
    was_training = agent.training
    agent.eval()
    around = {step} if reference is None else set(range(step - SPAN + 1, step + AHEAD))
    episode = play_episode(env, agent, world, around, index, pictures={step})
    if step not in episode.moments:
        who = "the agent" if agent.group is None else f"agent {index}"
        raise ValueError(
            f"step {step} is beyond the end: {who} plays {len(episode.frames[index])} steps in world "
            f"{world}, choose a --step of 0 to {len(episode.frames[index]) - 1}."
        )
    evidence = None if reference is None else reference.of_episode(agent, episode, index)[step]
    thought = thought_of(env, agent, episode, world, index, step, reward_unit, evidence)
    agent.train(was_training)
    return thought


@torch.no_grad()
def thought_of(
    env: EnvBase,
    agent: Agent,
    episode: Episode,
    world: int,
    index: int,
    step: int,
    reward_unit: float = 1.0,
    evidence: dict[str, Evidence] | None = None,
) -> Thought:
    """Return the record of a step of an episode, which kept that step; see :func:`think`."""
    moment, frames = episode.moments[step], episode.frames[index]
    row, names = moment.rows[index], world_names(env)
    heads = action_heads(env) if action_bounds(env) is None else list(mixed_choices(env))
    shapes = observation_shapes(env)
    return Thought(
        world=world,
        agent=None if agent.group is None else index,
        step=step,
        length=len(frames),
        names=names,
        picture=moment.picture,
        observation={name: row[name][0].cpu() for name in shapes},
        privileged={name: label[0].cpu() for name, label in _privileged(row).items()},
        visible=_visible(row),
        action=row[keys.ACTION].reshape(-1).cpu(),
        probabilities=probabilities_of(agent, row, heads),
        value=agent.critic_head(row.clone())[keys.VALUE].item(),
        reward=frames[step].reward.item() / reward_unit,
        reward_unit=reward_unit,
        belief=_belief(agent, row, frames, names, shapes),
        futures=_futures(agent, row, frames[step:], reward_unit),
        others=_others(agent, moment, index, frames[: step + 1]),
        goal=_goal(agent, row),
        action_values=_action_values(agent, row),
        numbers=_numbers(agent, row, len(heads)),
        evidence=evidence,
    )


def world_names(env: EnvBase) -> Names:
    """Return the names that the world offers (``names()`` of this project's worlds)."""
    known = {each.name for each in fields(Names)}
    return Names(**{kind: words for kind, words in abilities(env).names().items() if kind in known})


_LABELS, _ACTION_LABEL = ("others_need", "others_meters"), "others_action"


def _visible(row: TensorDictBase) -> Tensor | None:
    belief = row.get(keys.BELIEF, None)
    if belief is None or "number" not in belief.keys():
        return None
    return torch.where(belief["visible"], belief["number"], EMPTY)[0].cpu()


def _privileged(row: TensorDictBase) -> dict[str, Tensor]:
    return row[keys.PRIVILEGED].to_dict() if keys.PRIVILEGED in row.keys() else {}


def probabilities_of(agent: Agent, row: TensorDictBase, heads: list[int]) -> list[Tensor]:
    """Return the probabilities of each head's choices, given the taken choice of a head that leads; none for continuous
    actions.
    """
    mask = row.get(keys.ACTION_MASK, None)
    if isinstance(agent, QAgent):
        return [EpsilonGreedy(row[keys.LOGITS], row[keys.EPSILON], mask).probs[0].cpu()]
    if not heads:
        return []
    if keys.HEAD_MASK in row.keys():
        policy = agent.actor_head[-1].get_dist(row)
        led = policy.given(row[keys.ACTION][..., -1]).parts
        return [part.probs[0].cpu() for part in (*led, policy.leading)]
    parts = row[keys.LOGITS][0].split(heads, -1)
    masks: Sequence[Tensor | None] = [None] * len(heads) if mask is None else mask[0].split(heads, -1)
    return [MaskedCategorical(part, legal).probs.cpu() for part, legal in zip(parts, masks, strict=True)]


def _numbers(agent: Agent, row: TensorDictBase, heads: int) -> Numbers | None:
    if keys.LOC not in row.keys():
        return None
    taken = row[keys.ACTION].reshape(-1)[heads:]
    return Numbers(taken.cpu(), row[keys.LOC][0].cpu(), row[keys.SCALE][0].cpu(), isinstance(agent, SACAgent))


def _record(kind: Any, part: TensorDictBase) -> Any:
    """Return a module's output as a record on the CPU."""
    return kind.from_tensordict(part.cpu())


def _action_values(agent: Agent, row: TensorDictBase) -> ActionValues | None:
    if not isinstance(agent, QAgent):
        return None
    values = row[keys.LOGITS][0].cpu()
    legal = torch.ones_like(values, dtype=torch.bool) if (mask := row.get(keys.ACTION_MASK, None)) is None else mask[0]
    return ActionValues(values, legal.cpu(), row[keys.EPSILON].item())


def _belief(
    agent: Agent, row: TensorDictBase, frames: list[Frame], names: Names, shapes: dict[str, torch.Size]
) -> Belief | None:
    if agent.perception is None:
        return None
    belief = _record(records.Belief, row[keys.BELIEF][0])
    known = _known_names(agent, names, shapes)
    trained = bool(agent.agent_modules["perception"].losses)
    usual = torch.stack([frame.log_std for frame in frames]).mean().item() if trained else None
    return Belief(belief.mean, belief.log_std, belief.proprioception, known, usual)


def known_names(env: EnvBase, agent: Agent) -> list[str]:
    """Return the names of the numbers of the agent's own state; none without perception."""
    return [] if agent.perception is None else _known_names(agent, world_names(env), observation_shapes(env))


def _known_names(agent: Agent, names: Names, shapes: dict[str, torch.Size]) -> list[str]:
    assert agent.perception is not None, "the own state is what perception passes on"
    found: list[str] = []
    for name in agent.perception.known:
        size = shapes[name].numel()
        if name == METERS and len(names.meters) == size:
            found += names.meters
        else:
            found += [f"{name} {names.seen(name, index)}" for index in range(size)]
    return found


def _futures(agent: Agent, row: TensorDictBase, frames: list[Frame], reward_unit: float) -> Futures | None:
    """Return the candidates that the policy read, each once; an agent that imagines only in training gets one, of the
    actions that it took.
    """
    model = agent.world_model
    if model is None:
        return None
    belief, known = dreaming_state(row)
    followed = frames[: model.config.horizon]
    actions = torch.stack([frame.action[0] for frame in followed])
    taken = model.imagine(belief, known, actions.reshape(1, 1, -1))
    candidates = row.get(keys.FUTURES, taken)
    first = candidates["actions"][0, :, 0].tolist()  # the most likely one fills up where few are legal
    candidates = candidates[:, [index for index, action in enumerate(first) if action not in first[:index]]]
    predicted = _record(records.Futures, taken[0, 0])
    return Futures(
        **candidates[0].cpu(),
        expected_return=model.expected_return(candidates)[0].cpu(),
        predicted_states=predicted.states,
        predicted_rewards=predicted.rewards,
        predicted_dones=predicted.dones,
        true_states=torch.stack([frame.known for frame in followed]).cpu(),
        true_rewards=torch.stack([frame.reward for frame in followed]).cpu() / reward_unit,
        true_dones=torch.stack([frame.terminated for frame in followed]).float().cpu(),
        gains=_gains(agent, row, candidates["actions"][..., 0]),
    )


def _gains(agent: Agent, row: TensorDictBase, first: Tensor) -> Tensor | None:
    """Return the gains of first actions [1, P] in the policy's logits from imagination, [P]."""
    for part in agent.actor_head:
        if isinstance(part, PolicyImprovement):
            return part.gains(row.get(keys.IMAGINATION_FEATURES)).gather(-1, first)[0].cpu()
    return None


def _others(agent: Agent, moment: Moment, index: int, frames: list[Frame]) -> Others | None:
    """Return the social predictions of the last of these frames, beside the truth."""
    row = moment.rows[index]
    if keys.SOCIAL not in row.keys():
        return None
    social = _record(records.SocialPredictions, row[keys.SOCIAL][0])
    belief = _record(records.Belief, row[keys.BELIEF][0])
    seen = belief.visible
    number = belief.number[seen]
    labels = _privileged(row)
    need, meters = (labels[name][0].cpu()[seen] if name in labels else None for name in _LABELS)
    return Others(
        number,
        social.goal[seen].softmax(-1),
        social.next_action[seen].softmax(-1),
        social.meters[seen],
        social.confidence[seen],
        social.reason[seen],
        true_next_action=_acted(agent, moment, index)[number],
        true_goal=need,
        true_meters=meters,
        attention=None if social.attention is None else social.attention[seen],
        found=None if social.query is None else _found(social.query[seen], number, frames),
    )


def _found(query: Tensor, number: Tensor, frames: list[Frame]) -> Tensor:
    written = torch.stack([frame.written for frame in frames if frame.written is not None], 1)
    return AssociativeMemory.shares(query, written[number])


def _acted(agent: Agent, moment: Moment, index: int) -> Tensor:
    """Return the actions of all agents in the step, by number: learners' actions are known; those of others are in the
    labels of the next step if they are in sight then, else :data:`~torchrl_agent.explain.thought.UNSEEN`.
    """
    perception, labels = agent.perception, _privileged(moment.afters[index])
    assert perception is not None, "it is perception that shows others"
    acted = torch.full((perception.empty_slot + 1,), UNSEEN)
    if _ACTION_LABEL in labels:
        acted[moment.afters[index][perception.number][0].cpu()] = labels[_ACTION_LABEL][0].cpu()
    acted[: len(moment.actions)] = moment.actions[:, 0]
    return acted


def _goal(agent: Agent, row: TensorDictBase) -> Goal | None:
    manager = agent.manager
    if manager is None:
        return None
    goal, meters = _record(records.Goal, row[keys.GOAL][0]), manager.config.meters
    return Goal(
        type=int(goal.type),
        names=manager.names,
        probabilities=manager.distribution(row).probs[0].cpu(),
        priority=goal.priority.item(),
        target=goal.target,
        targets=manager.targets.cpu(),
        meters=row[meters][0].cpu(),
        meter_names=list(manager.config.meter_names),
        steps_left=int(goal.steps_left),
        decided=bool(goal.decided),
        steps=manager.config.steps,
        option=manager.config.options,
    )


def check_agent(env: EnvBase, agent: Agent, index: int) -> None:
    """Raise ValueError unless the world has an agent of this number."""
    count = number_of_agents(env, agent)
    if not 0 <= index < count:
        raise ValueError(f"there is no agent {index}: each world has {count}, choose an --agent of 0 to {count - 1}.")
