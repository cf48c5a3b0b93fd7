"""Diagnosis of an agent's step: sentences that follow from numbers, in the order in which errors propagate:
perception, world model, social model, policy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from torchrl_agent.explain.evidence import OWN, SIGHT, module_of
from torchrl_agent.explain.thought import UNSEEN, Belief, Evidence, Futures, Goal, Names, Others, Thought

UNCERTAIN = 1.5
"""Threshold of a belief's standard deviation, as a multiple of the episode's mean."""
STATE_ERROR = 0.2
"""Threshold of the prediction error of a number of the own state."""
REWARD_ERROR = 0.5
"""Threshold of the error of the predicted sum of rewards over the horizon, in the agent's units."""
SURE = 0.5
"""A probability above this is a prediction that can be wrong."""
METER_ERROR = 0.3
"""Threshold of the error of a predicted meter of another agent."""
DIRE = 0.2
"""A meter below this should be a target of the goal."""
NOTHING_UNUSUAL = "nothing unusual"


def diagnose(thought: Thought) -> list[str]:
    """Return sentences, each prefixed with its module; :data:`NOTHING_UNUSUAL` if there is none.

    With a reference of the healthy agent a module is named if its evidence is beyond a limit, and only then do the
    sentences about this step's own errors follow.
    """
    result = []
    for module, sentences in _of_this_step(thought).items():
        if thought.evidence is not None:
            beyond = diagnose_evidence(module, thought.evidence)
            sentences = [*beyond, *sentences] if beyond else []
        result += [f"{module}: {sentence}" for sentence in sentences]
    return result or [NOTHING_UNUSUAL]


def _of_this_step(thought: Thought) -> dict[str, list[str]]:
    """Return sentences about the step by module, in the order in which errors propagate."""
    result = {}
    if thought.belief is not None:
        result["perception"] = diagnose_belief(thought.belief)
        if thought.futures is not None:
            result["world model"] = diagnose_futures(thought.futures, thought.belief.known_names)
    if thought.others is not None:
        result["social model"] = diagnose_others(thought.others, thought.names)
    if thought.goal is not None:
        result["policy"] = diagnose_goal(thought.goal, thought.names)
    return result


def diagnose_evidence(module: str, evidence: Mapping[str, Evidence]) -> list[str]:
    """Report evidence of a module that is beyond what is usual of the healthy agent."""
    result = []
    for name, (value, usual, limit) in evidence.items():
        if module_of(name) != module or value <= limit:
            continue
        if name.startswith(SIGHT):
            seen = name.removeprefix(SIGHT)
            result.append(f"its belief misses {min(value, 1):.0%} of its {seen}, usually {usual:.0%}")
        else:
            wrong = f"its predictions of the {name} were wrong" if name.startswith(OWN) else _WRONG[name]
            result.append(f"over the last steps {wrong}: {value / max(usual, 1e-3):.1f} times the usual error")
    return result


_WRONG = {
    "rewards": "its predictions of rewards were wrong",
    "needs": "it was wrong about what others need",
    "actions": "it was wrong about what others do next",
    "meters": "it was wrong about the meters of others",
    "certainty": "its manager weighed no other goal",
    "goals": "its goals were other ones than with such meters before",
}


def diagnose_belief(belief: Belief) -> list[str]:
    """Report a belief that is more uncertain than usual."""
    times = 1.0 if belief.usual is None else math.exp(belief.uncertainty - belief.usual)
    if times <= UNCERTAIN:
        return []
    return [f"its belief is {times:.1f} times as uncertain as usual: look at perception first"]


def diagnose_futures(futures: Futures, names: list[str]) -> list[str]:
    """Report errors of the predicted futures: the worst number of the own state, the rewards, the end."""
    result = []
    error = (futures.predicted_states - futures.true_states).abs()
    if error.numel() and error.max() > STATE_ERROR:
        step, index = divmod(int(error.argmax()), error.shape[1])
        predicted, became = futures.predicted_states[step, index], futures.true_states[step, index]
        result.append(
            f"the world model predicted {names[index]} {predicted:.2f} {_steps(step + 1)} later, it became {became:.2f}"
        )
    predicted, became = futures.predicted_rewards.sum(), futures.true_rewards.sum()
    if (predicted - became).abs() > REWARD_ERROR:
        steps = _steps(len(futures.true_rewards))
        result.append(f"the world model predicted rewards of {predicted:.2f} over {steps}, they were {became:.2f}")
    for step, (probability, ended) in enumerate(zip(futures.predicted_dones, futures.true_dones, strict=True), 1):
        if (probability > SURE) != (ended > SURE):
            what = "it did not come" if probability > SURE else "it came"
            result.append(f"the world model gave the end {_steps(step)} later {probability:.0%}, {what}")
            break
    return result


def diagnose_others(others: Others, names: Names) -> list[str]:
    """Report errors of the social predictions: need, next action and the worst meter of each other agent."""
    result = []
    for slot, number in enumerate(others.number.tolist()):
        thought = int(others.goal[slot].argmax())
        if others.true_goal is not None and thought != int(others.true_goal[slot]):
            true = names.meter(int(others.true_goal[slot]))
            result.append(f"it took agent {number}'s need for {names.meter(thought)}, it was {true}")
        expected, probability = int(others.next_action[slot].argmax()), float(others.next_action[slot].max())
        acted = int(others.true_next_action[slot])
        if probability > SURE and acted not in (expected, UNSEEN):
            result.append(
                f"it expected {names.action(expected)} of agent {number} ({probability:.0%}), it did "
                f"{names.action(acted)}"
            )
        if others.true_meters is not None:
            error = (others.meters[slot] - others.true_meters[slot]).abs()
            worst = int(error.argmax())
            if error[worst] > METER_ERROR:
                result.append(
                    f"it thought agent {number}'s {names.meter(worst)} {others.meters[slot, worst]:.2f}, it was "
                    f"{others.true_meters[slot, worst]:.2f}"
                )
    return result


def diagnose_goal(goal: Goal, names: Names) -> list[str]:
    """Report a goal without a target for the lowest relevant meter, although that is below :data:`DIRE`; meters that
    nothing in the world can raise are not relevant.
    """
    matters = (goal.targets > 0).any(0)
    if names.raised is not None:
        matters = matters & torch.tensor([name in names.raised for name in goal.meter_names])
    if not bool(matters.any()):
        return []
    lowest = int(goal.meters.where(matters, math.inf).argmin())
    level = goal.meters[lowest]
    if level >= DIRE or goal.target[lowest] > 0:
        return []
    return [f"goal {goal.names[goal.type]} while {goal.meter_names[lowest]} is {level:.2f}"]


def _steps(count: int) -> str:
    return "1 step" if count == 1 else f"{count} steps"
