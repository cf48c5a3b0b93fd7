"""Thoughts of agents as plain values, and their choices without each of their modules."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDictBase
from torchrl.envs import EnvBase
from torchrl.envs.utils import ExplorationType, set_exploration_type

from torchrl_agent.core import keys
from torchrl_agent.evaluation.ablation import GatedPolicy, removable
from torchrl_agent.explain.diagnosis import NOTHING_UNUSUAL, diagnose
from torchrl_agent.explain.episode import Episode
from torchrl_agent.explain.evidence import read_from_belief
from torchrl_agent.explain.reference import Reference
from torchrl_agent.explain.thinking import probabilities_of, thought_of
from torchrl_agent.explain.thought import Belief, Futures, Goal, Others, Thought, plain
from torchrl_agent.models.agent import Agent
from torchrl_agent.models.planned_policy import acting_actor
from torchrl_agent.modules.specs import action_bounds, action_heads, mixed_choices

POSITION = ("position x", "position y")
"""Names of an agent's own place, each from 0 to 1 across the world."""
WIDE = 256
"""Largest number of components of an observation that is recorded."""


def minds(
    env: EnvBase,
    agent: Agent,
    episode: Episode,
    world: int,
    unit: float,
    whole: bool,
    reference: Reference | None = None,
) -> list[list[Any]]:
    """Return the thoughts of an episode by step and agent, None after an agent's end.

    Args:
        episode: all of its steps are kept.
        unit: the world's reward that is one of the agent's units.
        whole: record everything; else choice, value, reward and goal alone.
        reference: what is usual of the healthy agent, for the diagnosis.
    """
    result = []
    count = len(episode.frames)
    found = [reference.of_episode(agent, episode, index) if reference else {} for index in range(count)]
    for step in sorted(episode.moments):
        here: list[Any] = []
        for index, frames in enumerate(episode.frames):
            if step >= len(frames):
                here.append(None)
                continue
            thought = thought_of(env, agent, episode, world, index, step, unit, found[index].get(step))
            here.append(plain(_choice(thought) | (_inside(thought) if whole else {})))
        result.append(here)
    if whole:
        _add_ablations(env, agent, episode, result)
    if whole and reference is not None:
        _add_readings(agent, episode, result, reference)
    return result


def _choice(thought: Thought) -> dict[str, Any]:
    said = [sentence for sentence in diagnose(thought) if sentence != NOTHING_UNUSUAL]
    result: dict[str, Any] = {
        "action": thought.action,
        "probabilities": thought.probabilities,
        "value": thought.value,
        "reward": thought.reward,
        "surprises": said,
    }
    if thought.belief is not None:
        result["own"] = thought.belief.proprioception
    if thought.goal is not None:
        result["goal"] = _goal(thought.goal)
    if thought.action_values is not None:
        result["values"] = thought.action_values.values
        result["legal"] = thought.action_values.legal
    if thought.numbers is not None:
        result["numbers"] = {"taken": thought.numbers.taken, "mean": thought.numbers.mean}
    return result


def _inside(thought: Thought) -> dict[str, Any]:
    vectors = {name: value for name, value in thought.observation.items() if value.numel() <= WIDE and value.ndim == 1}
    result: dict[str, Any] = {"observation": plain(vectors, 2)}
    if thought.belief is not None:
        result["belief"] = _belief(thought.belief)
    if thought.futures is not None:
        result["dreams"] = _dreams(thought.futures, thought.belief)
    if thought.others is not None:
        result["others"] = _others(thought.others)
    return result


def _belief(belief: Belief) -> dict[str, Any]:
    usual = None if belief.usual is None else belief.uncertainty - belief.usual
    return {"mean": plain(belief.mean, 1), "doubt": usual}


def _dreams(futures: Futures, belief: Belief | None) -> dict[str, Any]:
    """Return the candidates, each with its path and its last state, and what was predicted of the actions that were
    taken beside what came.
    """
    known = [] if belief is None else belief.known_names
    position = [known.index(name) for name in POSITION if name in known]
    return {
        "actions": futures.actions[:, 0],
        "paths": plain(futures.states[..., position], 2) if len(position) == len(POSITION) else None,
        "states": plain(futures.states[:, -1], 2),
        "returns": futures.expected_return,
        "confidence": plain(futures.confidence, 2),
        "predicted": plain(futures.predicted_states[-1], 2),
        "true": plain(futures.true_states[-1], 2),
        "rewards": [futures.predicted_rewards.sum(), futures.true_rewards.sum()],
    }


def _others(others: Others) -> dict[str, Any]:
    return {
        "number": others.number,
        "action": plain(others.next_action, 2),
        "need": plain(others.goal, 2),
        "meters": plain(others.meters, 2),
        "true_action": others.true_next_action,
        "true_need": others.true_goal,
        "true_meters": plain(others.true_meters, 2),
    }


def _goal(goal: Goal) -> dict[str, Any]:
    return {"type": goal.type, "probabilities": goal.probabilities, "left": goal.steps_left, "decided": goal.decided}


def modules_of(agent: Agent) -> list[str]:
    """Return the modules that an agent can act without, each alone."""
    planned = {"world_model"} if agent.planner.enabled else set()
    return [name for name in removable(agent) if name not in planned]


@torch.no_grad()
def _add_ablations(env: EnvBase, agent: Agent, episode: Episode, result: list[list[Any]]) -> None:
    """Add to every thought the probabilities of the first head's choices without each module, for this step alone."""
    heads = action_heads(env) if action_bounds(env) is None else list(mixed_choices(env))
    names = modules_of(agent)
    if not heads or not names:
        return
    places, rows = _rows(episode, result)
    policy = GatedPolicy(agent, acting_actor(agent))
    gates = list(policy.gated)
    for name in names:
        factors = torch.ones(len(rows), len(gates))
        factors[:, gates.index(name)] = 0
        with set_exploration_type(ExplorationType.DETERMINISTIC):
            acted = policy(rows.clone().set(keys.MODULE_FACTORS, factors))
        for number, (step, index) in enumerate(places):
            one = probabilities_of(agent, acted[number : number + 1], heads)[0]
            action = int(acted[keys.ACTION][number].reshape(-1)[0])
            found = result[step][index].setdefault("without", {})
            found[name] = {"action": action, "probabilities": plain(one, 2)}


def _add_readings(agent: Agent, episode: Episode, result: list[list[Any]], reference: Reference) -> None:
    """Add to every belief what probes read from it of the observations that are recorded, by component."""
    places, rows = _rows(episode, result)
    for name, (components, values) in read_from_belief(agent, rows, reference.probes).items():
        for (step, index), read in zip(places, plain(values, 2), strict=True):
            thought = result[step][index]
            if name in thought["observation"]:
                found = thought["belief"].setdefault("read", {})
                found[name] = [list(pair) for pair in zip(components, read, strict=True)]


def _rows(episode: Episode, result: list[list[Any]]) -> tuple[list[tuple[int, int]], TensorDictBase]:
    """Return step and agent of every thought, and the tensordicts that they came from, [thoughts]."""
    places = [(step, index) for step in range(len(result)) for index, thought in enumerate(result[step]) if thought]
    steps = sorted(episode.moments)
    return places, torch.cat([episode.moments[steps[step]].rows[index] for step, index in places])
