"""Figures of actions and beliefs in the Town, from evaluation episodes; this file reads the game's own state."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase
from torch import Tensor
from torchrl.envs.utils import ExplorationType, set_exploration_type

from torchrl_agent import keys
from torchrl_agent.core.ranks import masked_mean
from torchrl_agent.experiment import Experiment
from torchrl_agent.models.agent import Agent
from torchrl_agent.models.planned_policy import acting_policy
from torchrl_agent.training.collector import play as play_steps

WORLDS = 128
RIDGE = 1e-2
"""Regularization of the linear probe, as a fraction of the features' variance."""


def town_figures(agent: Agent, experiment: Experiment) -> dict[str, float]:
    """Return every figure below that is meaningful for the agent and its town."""
    played = play(agent, experiment)
    rules = played["rules"]
    result: dict[str, float] = {}
    if agent.perception is not None and rules.population == 1:  # the behavior of residents would reveal where it is
        result |= belief_probe(played)
    if rules.num_agents > 1 and rules.contested and not rules.num_residents:  # who may occupy the place as well
        result |= alternatives(played)
    if rules.moves_every is not None:
        result |= recovery(played)
    if agent.manager is not None:
        result |= goal_use(played, len(agent.manager.names))
    return result


@torch.no_grad()
def play(agent: Agent, experiment: Experiment) -> dict[str, Any]:
    """Record the first episode of some worlds, step by step.

    Returns:
        ``rules``; and, each [T, N, ...], ``rows`` (the agents' observations, module outputs and actions, [T, N, A]),
        ``reward`` and ``alive`` (before the step) [T, N, A], cells ``x`` and ``y`` [T, N, A], places ``place_x`` and
        ``place_y`` [T, N, S].
    """
    env = agent.attach(experiment.make_world(evaluation=True, num_envs=WORLDS, seed=experiment.evaluation.seed))
    world: Any = getattr(env, "base_env", env)
    steps: list[TensorDict] = []
    root, going = env.reset(), torch.ones(WORLDS, dtype=torch.bool, device=env.device)
    before = _observe(world, going)
    wanted = [keys.BELIEF, keys.GOAL, keys.NORMALIZED, keys.ACTION]
    with set_exploration_type(ExplorationType.DETERMINISTIC):
        for acted in play_steps(env, acting_policy(agent), root, world.rules.max_steps):
            following = acted.get(keys.NEXT)
            rows = acted.get(agent.group).select(*wanted, strict=False)
            reward = following.get((agent.group, keys.REWARD)).squeeze(-1)
            steps.append(TensorDict({**before, "rows": rows, "reward": reward}, WORLDS).cpu())
            going &= ~following.get(keys.DONE).squeeze(-1)
            before = _observe(world, going)
    return {"rules": world.rules, **dict(torch.stack(steps).items())}


def _observe(world: Any, going: Tensor) -> dict[str, Tensor]:
    """Return a copy of the state of learners and places before a step."""
    state, count = world.state, world.rules.num_agents  # residents come after the learners
    seen = {
        "x": state.agents.x[:count].T,
        "y": state.agents.y[:count].T,
        "place_x": state.layout.x.T,
        "place_y": state.layout.y.T,
        "alive": state.agents.alive[:count].T & going.unsqueeze(-1),
    }
    return {name: value.clone() for name, value in seen.items()}


def belief_probe(played: dict[str, Any]) -> dict[str, float]:
    """Return the explained variance (R2, on held-out worlds) of linear probes of the bed's cell, from the belief and
    from the present observation, in steps when the bed was seen at its place before but is out of sight now.
    """
    rules = played["rules"]
    slot = rules.kinds.index("Bed") * rules.places_per_kind
    cell = torch.stack((played["place_x"][..., slot], played["place_y"][..., slot]), -1).float()  # [T, N, 2]
    here = torch.cat((played["x"], played["y"]), -1).float()
    if rules.view is None:
        return {}
    in_sight = ((cell - here).abs() <= rules.view).all(-1)
    times, moved = in_sight.cumsum(0), torch.zeros_like(in_sight)
    moved[1:] = (cell[1:] != cell[:-1]).any(-1)
    earlier = torch.where(moved, times - in_sight.int(), 0).cummax(0).values  # times that it was seen elsewhere
    counted = (times > earlier) & ~in_sight & played["alive"].squeeze(-1)
    rows = played["rows"].squeeze(-1)
    fit = (torch.arange(cell.shape[1]) % 2 == 0).expand_as(counted)
    found = {}
    for name, features in (
        ("belief_r2", torch.cat((rows.get((keys.BELIEF, "mean")), here), -1)),
        ("observation_r2", torch.cat((rows.get(keys.NORMALIZED), here), -1)),
    ):
        found[name] = ridge_r2(
            features[counted & fit], cell[counted & fit], features[counted & ~fit], cell[counted & ~fit]
        )
    return found


def ridge_r2(features: Tensor, target: Tensor, other_features: Tensor, other_target: Tensor) -> float:
    """Return R2 on the other rows of a ridge regression fitted to the first ones; features [n, F], targets [n, D]."""
    mean, deviation = features.mean(0), features.std(0).clamp_min(1e-6)
    center = target.mean(0)
    known, asked = (features - mean) / deviation, (other_features - mean) / deviation
    gram = known.T @ known + RIDGE * len(known) * torch.eye(known.shape[1])
    weights = torch.linalg.solve(gram, known.T @ (target - center))
    error = (asked @ weights + center - other_target).square().sum()
    return 1.0 - (error / (other_target - center).square().sum()).item()


def alternatives(played: dict[str, Any]) -> dict[str, float]:
    """Return the fraction of visits to another place of the kind than the one that was nearest when the agent set out:
    where another agent stood on the nearest one in between, and where none did.
    """
    rules, (steps, worlds, agents) = played["rules"], played["x"].shape
    kind = torch.arange(rules.num_slots) // rules.places_per_kind
    x, y, action = played["x"], played["y"], played["rows"].get(keys.ACTION)
    origin_x, origin_y = x[0].clone(), y[0].clone()
    taken = torch.zeros(worlds, agents, rules.num_slots, dtype=torch.bool)
    visiting = torch.full((worlds, agents), -1)
    counts = torch.zeros(2, 2)  # [another agent was there, another place was chosen]
    for step in range(steps):
        at = (x[step, :, :, None] == played["place_x"][step, :, None]) & (
            y[step, :, :, None] == played["place_y"][step, :, None]
        )  # [N, A, S]
        standing = at & played["alive"][step].unsqueeze(-1)
        taken |= (standing.sum(1, keepdim=True) - standing.int()) > 0
        slot = torch.where(standing.any(-1), standing.int().argmax(-1), -1)
        asks = (action[step] == rules.action_names.index("interact")) & (slot >= 0)
        begins = asks & (visiting != slot)
        distance = (origin_x[..., None] - played["place_x"][step, :, None]).abs() + (
            origin_y[..., None] - played["place_y"][step, :, None]
        ).abs()
        same = kind == kind[slot.clamp_min(0)].unsqueeze(-1)
        nearest = torch.where(same, distance, distance.max() + 1).argmin(-1)
        was_taken = taken.gather(-1, nearest.unsqueeze(-1)).squeeze(-1)
        for there in (0, 1):
            for other in (0, 1):
                counts[there, other] += (begins & (was_taken == there) & ((slot != nearest) == other)).sum()
        visiting = torch.where(asks, slot, visiting)
        origin_x, origin_y = torch.where(asks, x[step], origin_x), torch.where(asks, y[step], origin_y)
        taken &= ~asks.unsqueeze(-1)
    shares = counts[:, 1] / counts.sum(1).clamp_min(1)
    return {
        "alternative_when_taken": shares[1].item(),
        "alternative_when_free": shares[0].item(),
        "visits_when_taken": counts[1].sum().item(),
    }


def recovery(played: dict[str, Any]) -> dict[str, float]:
    """Return the mean reward of living agents in the half period after places moved, and its ratio to that before."""
    period = played["rules"].moves_every
    alive, reward = played["alive"], played["reward"]

    def mean(first: int, last: int) -> float:
        counted = alive[first:last]
        return (reward[first:last][counted].sum() / counted.sum().clamp_min(1)).item()

    before, after = mean(period - period // 2, period), mean(period, period + period // 2)
    return {"reward_after_move": after, "recovery": after / before if before else 0.0}


def goal_use(played: dict[str, Any], count: int) -> dict[str, float]:
    """Return the entropy of goals, as a fraction of the maximum; decisions per step; mean steps between decisions."""
    goal, alive = played["rows"].get(keys.GOAL), played["alive"]
    share = torch.bincount(goal["type"][alive].flatten(), minlength=count).float()
    share = share / share.sum()
    entropy = -(share * share.clamp_min(1e-9).log()).sum() / torch.log(torch.tensor(float(count)))
    decided = goal["decided"][alive].float().mean().item()
    return {"goal_entropy": entropy.item(), "goal_switch_rate": decided, "goal_length": 1 / max(decided, 1e-9)}


@torch.no_grad()
def record_observer(agent: Agent, experiment: Experiment, name: str) -> dict[str, Any]:
    """Record the first games of a scripted policy that acts on its own past observations, while the agent observes from
    the position of each of its agents.

    Returns:
        each [T, N, ...]: predicted action probabilities of visible others, ``expected`` [T, N, A, V, actions], and
        their numbers, ``number`` [T, N, A, V]; the ``action`` of each, and its action if it knew all places,
        ``knowing`` [T, N, A]; ``alive`` [T, N, A]; the last seen cells of places, ``believed_x`` and ``believed_y``
        [T, N, A, S]; and their true cells, ``place_x`` and ``place_y`` [T, N, S].

    Raises:
        ValueError: this town has no such policy with a memory of its observations.
    """
    env = agent.attach(experiment.make_world(evaluation=True, num_envs=WORLDS, seed=experiment.evaluation.seed))
    world: Any = getattr(env, "base_env", env)
    players = world.players()
    player, greedy = players.get(name), players["greedy"]
    if not hasattr(player, "knowledge"):
        raise ValueError(f"player {name!r} has no knowledge of its own: use remembering, in a town with fog (view).")
    steps: list[TensorDict] = []

    def act(root: TensorDictBase) -> TensorDictBase:
        rows = agent.policy(root).get(agent.group)
        seen = {"number": rows.get("others_number"), "expected": rows.get((keys.SOCIAL, "next_action")).softmax(-1)}
        knowing = greedy(root).get((agent.group, keys.ACTION)).clone()
        action, state = player(root).get((agent.group, keys.ACTION)), world.state
        believed = {
            f"believed_{axis}": cell.permute(2, 1, 0) for axis, cell in player.knowledge.places._asdict().items()
        }
        places = {f"place_{axis}": cell.T for axis, cell in state.layout._asdict().items()}
        known = {
            "action": action,
            "knowing": knowing,
            "alive": state.agents.alive[: world.rules.num_agents].T,
            **believed,
            **places,
        }
        steps.append(TensorDict({**seen, **known}, WORLDS).clone().cpu())  # the record changes in place
        return root

    for _ in play_steps(env, act, env.reset(), world.rules.max_steps):
        pass
    return dict(torch.stack(steps).items())


def false_belief(watched: dict[str, Any]) -> dict[str, float]:
    """Test of false belief, after Sally and Anne (Baron-Cohen et al. 1985, for machines Rabinowitz et al. 2018): are
    the actions of an agent predicted that does not know that a place has moved?

    A case is a visible other agent whose action differs from the one if it knew, while it believes a place to be where
    it no longer is, and the observer has seen where that place is now.

    Args:
        watched: see :func:`record_observer`.

    Returns:
        the number of ``cases``; in them the fraction in which the most likely action was taken (``accuracy``), the
        predicted probability of the taken action (``expected``) and of the action if the other knew
        (``expected_if_it_knew``); and the accuracy for all other agents in sight.
    """
    number, alive, action = watched["number"], watched["alive"], watched["action"]  # [T, N, A, V], [T, N, A]
    agents = alive.shape[-1]
    moments = torch.meshgrid(*(torch.arange(size) for size in number.shape[:2]), indexing="ij")
    who = (*(part[..., None, None] for part in moments), number.clamp_max(agents - 1))
    there = (watched["believed_x"] == watched["place_x"].unsqueeze(2)) & (
        watched["believed_y"] == watched["place_y"].unsqueeze(2)
    )  # [T, N, A, S]
    exists = (watched["place_x"] >= 0).unsqueeze(2)
    mistaken, knows = (watched["believed_x"] >= 0) & ~there, there & exists
    about = (mistaken[who] & knows.unsqueeze(3)).any(-1)  # [T, N, A, V]
    seen = (number < agents) & alive.unsqueeze(-1) & alive[who]
    case = seen & about & (action != watched["knowing"])[who]

    expected, likeliest = watched["expected"], watched["expected"].argmax(-1)
    right = (likeliest == action[who]).float()
    given = {
        name: expected.gather(-1, what[who].unsqueeze(-1)).squeeze(-1)
        for name, what in (("expected", action), ("expected_if_it_knew", watched["knowing"]))
    }
    return {
        "cases": float(case.sum()),
        "accuracy": masked_mean(right, case).item(),
        **{name: masked_mean(value, case).item() for name, value in given.items()},
        "accuracy_of_others": masked_mean(right, seen & ~case).item(),
    }
