"""The manager: it chooses a goal for the agent every few steps; the controller chooses the actions.

Shapes: [...] is rows (worlds times agents) in a step, or sequences [B, T] of them; M meters. Rollouts are [T, N].
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import InteractionType
from tensordict.nn.probabilistic import interaction_type
from tensordict.utils import NestedKey
from torch import Tensor, nn
from torchrl.data import Unbounded
from torchrl.envs import EnvBase
from torchrl.modules import recurrent_mode
from typing_extensions import override

from torchrl_agent.core import keys, ranks
from torchrl_agent.core.bounds import count, number, weight
from torchrl_agent.core.ranks import masked_mean
from torchrl_agent.core.spans import spanned
from torchrl_agent.core.text import check_known
from torchrl_agent.modules.distributions import Chooser, MaskedCategorical
from torchrl_agent.modules.module import AgentModule, Built, ModuleContext
from torchrl_agent.modules.networks import mlp
from torchrl_agent.modules.specs import observation_shapes

CHOSEN, DECIDED, GOAL_LOG_PROB, GOAL_VALUE = ((keys.GOAL, name) for name in ("type", "decided", "log_prob", "value"))
RECORDED = (CHOSEN, DECIDED, GOAL_LOG_PROB, GOAL_VALUE)
"""Keys of a goal that a rollout keeps."""
OLD_LOG_PROB, GOAL_ADVANTAGE, GOAL_TARGET = "goal_old_log_prob", "goal_advantage", "goal_value_target"


@dataclass
class ManagerConfig:
    """The manager: choosing goals."""

    enabled: bool = False
    """Use it."""
    hidden_size: int = count(64)
    """Width of its hidden layers."""
    steps: int = count(50)
    """k, longest life of a goal in steps."""
    goals: dict[str, Any] = field(default_factory=dict)  # of a closer type none that is there could be written anew
    """Goals: meters and the levels that fulfill them. A goal without meters ({}) ends by time alone, and null takes
    away one that a configuration had. At least two; configs/town.yaml has the Town's."""
    meters: str = "meters"
    """Observation of the agent's own meters."""
    meter_names: list[str] = field(default_factory=list)
    """Names of the meters, in order."""
    traits: str = "traits"
    """Observation of the agent's own character, if shown. The manager alone reads it (its DNA)."""
    intrinsic_coeff: float = weight(0.0)
    """Weight of the controller's intrinsic reward. It is how much less its meters lack of the goal's targets after a
    step."""
    options: bool = False
    """Goals are options (Sutton, Precup and Singh 1999). One whose targets are met cannot be chosen, and the controller
    learns from its intrinsic reward alone, until the goal ends. The world's reward is the manager's, and hidden from
    the controller (Dayan and Hinton 1993, section 2)."""
    give_up: float = number(0.0, least=0, below=1)
    """Probability below which a goal is given up. The one with which the manager would choose it now."""
    clip_epsilon: float = number(0.2, above=0)
    """Clipping range of its own probability ratio."""
    entropy_coeff: float = weight(0.01)
    """Weight of its entropy bonus."""
    coeff: float = weight(1.0)
    """Weight of its losses beside PPO's."""


class Manager(Chooser, AgentModule):
    """Reads the agent's features, its meters and character, and the goal it has; writes ``goal``:

    ``type`` [...], ``priority`` [..., 1] (the probability that it has now), ``target`` [..., M] (0 where a
    meter does not matter), ``steps_left`` [..., 1], ``decided`` [...] (a new one was chosen in this step), its
    ``log_prob`` and the manager's ``value`` [..., 1]; and in ``goal_embedding`` the controller's input.

    A goal ends when its targets are met, its time is up or it is given up: tensor expressions over meters and choice.
    If goals are options, one whose targets are met is not chosen, unless all are.

    Args:
        features: keys of its inputs, with their sizes.

    Raises:
        ValueError: the world has no such meters.
    """

    recorded_keys = replayed_keys = RECORDED
    value_key = GOAL_VALUE
    exported_keys = ((keys.GOAL, "type"), (keys.GOAL, "priority"), (keys.GOAL, "target"))

    def __init__(
        self, env: EnvBase, config: ManagerConfig, features: dict[NestedKey, int], activation: str, gamma: float
    ) -> None:
        super().__init__()
        self.gamma = gamma
        shapes = observation_shapes(env)
        goals = check_goals(config, shapes)
        self.config, self.names = config, list(goals)
        self.features = list(features)
        check_known([config.traits], shapes, "model.manager.traits", tolerated=[ManagerConfig().traits])
        self.traits = [config.traits] if config.traits in shapes else []
        meters = len(config.meter_names)
        width = sum(features.values()) + meters + sum(shapes[name].numel() for name in self.traits)
        self.choose = mlp(width, len(self.names), [config.hidden_size], activation, gain=0.01)
        self.value = mlp(width, 1, [config.hidden_size], activation, gain=1.0)
        wanted = [[goal.get(name, 0.0) for name in config.meter_names] for goal in goals.values()]
        self.register_buffer("targets", torch.tensor(wanted))
        self.memory = {keys.HELD_GOAL: Unbounded((1,)), keys.GOAL_STEPS: Unbounded((1,))}
        self.size = len(self.names) + meters + 2
        self.in_keys = [*self.features, config.meters, *self.traits, keys.IS_INIT, *self.memory]
        self.out_keys = [keys.GOAL_EMBEDDING, keys.GOAL, *((keys.NEXT, name) for name in self.memory)]

    @classmethod
    def build(cls, context: ModuleContext) -> Built:
        """Build the manager if it is switched on; it reads the inputs of the controller."""
        config, model = context.config.manager, context.config
        if config.enabled:
            if config.intrinsic_coeff > 0 and model.world_model.enabled:
                raise ValueError(
                    "with model.manager.intrinsic_coeff above 0 the critic values what the manager pays, too, and the "
                    "world model dreams of the world's reward alone: set it to 0, or model.world_model.enabled=false."
                )
            module = cls(context.env, config, context.read, model.activation, context.gamma)
            module.losses.append(ManagerLoss(module))
            yield "manager", module

    @spanned("manager")
    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Run one step; in TorchRL's recurrent mode, and in :meth:`recall`, goals are those of the recorded rollout."""
        meters, begins = tensordict.get(self.config.meters), tensordict.get(keys.IS_INIT)
        parts = [tensordict.get(key).detach() for key in (*self.features, self.config.meters, *self.traits)]
        context = torch.cat(parts, -1)
        met = self.met(meters)
        choice = self.choice(context, met)

        # a goal is held until it is met, its time is up or it is given up; what was decided then is not decided again
        held, left = tensordict.get(keys.HELD_GOAL).squeeze(-1).long(), tensordict.get(keys.GOAL_STEPS)
        if recurrent_mode() or self.recalls:
            kind, decided = tensordict.get(CHOSEN), tensordict.get(DECIDED)
        else:
            reached = met.gather(-1, held.unsqueeze(-1)).squeeze(-1)
            unwanted = choice.probs.gather(-1, held.unsqueeze(-1)).squeeze(-1) < self.config.give_up
            decided = begins.squeeze(-1) | (left.squeeze(-1) <= 0) | reached | unwanted
            greedy = interaction_type() in (InteractionType.DETERMINISTIC, InteractionType.MODE)
            fresh = choice.deterministic_sample if greedy else self.chosen(choice, choice.sample())
            kind = torch.where(decided, fresh, held)
        left = torch.where(decided.unsqueeze(-1), float(self.config.steps), left)

        # no gradient: the controller takes the goal as it is, and the manager learns from its own loss
        target = self.targets[kind]
        priority = choice.probs.gather(-1, kind.unsqueeze(-1)).detach()
        goal = {
            "type": kind,
            "priority": priority,
            "target": target,
            "steps_left": left,
            "decided": decided,
            "log_prob": choice.log_prob(kind),
            "entropy": choice.entropy(),
            "value": self.value(context).float(),
        }
        tensordict.set(keys.GOAL, TensorDict(goal, tensordict.batch_size, device=tensordict.device))
        tensordict.set((keys.NEXT, keys.HELD_GOAL), kind.unsqueeze(-1).float())
        tensordict.set((keys.NEXT, keys.GOAL_STEPS), left - 1.0)
        one_hot = F.one_hot(kind, len(self.names)).float()
        return tensordict.set(keys.GOAL_EMBEDDING, torch.cat((one_hot, priority, target, left / self.config.steps), -1))

    def met(self, meters: Tensor) -> Tensor:
        """Mask of goals whose targets are met, bool [..., goals]; False for a goal without targets."""
        matters = self.targets > 0
        return ((meters.unsqueeze(-2) >= self.targets) | ~matters).all(-1) & matters.any(-1)

    def distribution(self, tensordict: TensorDictBase) -> MaskedCategorical:
        """Distribution over goals, given what :meth:`forward` reads."""
        read = [tensordict.get(key) for key in (*self.features, self.config.meters, *self.traits)]
        return self.choice(torch.cat(read, -1), self.met(tensordict.get(self.config.meters)))

    def choice(self, context: Tensor, met: Tensor) -> MaskedCategorical:
        """Distribution over goals, given its inputs [..., features] and the mask of goals that are :meth:`met`."""
        return MaskedCategorical(self.choose(context), ~met if self.config.options else None)

    @override
    def compute_targets(
        self, rollout: TensorDictBase, reward: Tensor, next_value: Tensor, lmbda: float
    ) -> dict[NestedKey, Tensor]:
        """Compute targets for :class:`ManagerLoss` from a rollout [T, rows]: advantages of decisions over the lifetimes
        of their goals.

        Args:
            rollout: with ``goal`` as it was recorded, and ``next`` with ``done`` and ``terminated``.
            reward: scaled rewards, [T, rows, 1].
            next_value: the manager's values after each step, [T, rows, 1].
        """
        following = rollout.get(keys.NEXT)
        advantage, target = semi_markov_advantage(
            reward.squeeze(-1),
            following.get(keys.DONE).squeeze(-1),
            rollout.get(DECIDED),
            rollout.get(GOAL_VALUE).squeeze(-1),
            next_value.squeeze(-1),
            following.get(keys.TERMINATED).squeeze(-1),
            self.gamma,
            lmbda,
        )
        return {OLD_LOG_PROB: rollout.get(GOAL_LOG_PROB), GOAL_ADVANTAGE: advantage, GOAL_TARGET: target}

    @override
    def rewrite_rewards(
        self, rollout: TensorDictBase, reward: Tensor, done: Tensor, terminated: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the world's rewards with the intrinsic reward added or, where goals are options, the intrinsic reward
        alone until the goal ends.
        """
        if not self.config.intrinsic_coeff:
            return reward, done, terminated
        intrinsic = self.intrinsic_reward(rollout)
        if not self.config.options:
            return reward + intrinsic, done, terminated
        option_done = self.option_done(rollout)
        return intrinsic, done | option_done, terminated | option_done

    def intrinsic_reward(self, rollout: TensorDictBase) -> Tensor:
        """Reward for serving the goal, [T, rows, 1]: the decrease, in this step, of the gap between meters and targets
        (Vezhnevets et al. 2017, section 3.3, reward steps toward a goal that the manager sets).
        """
        target = self.targets[rollout.get(CHOSEN)]
        before, after = rollout.get(self.config.meters), rollout.get((keys.NEXT, self.config.meters))
        # gap to the targets before and after the step
        lack = [(target - meters).clamp_min(0.0).sum(-1, keepdim=True) for meters in (before, after)]
        return self.config.intrinsic_coeff * (lack[0] - lack[1])

    def option_done(self, rollout: TensorDictBase) -> Tensor:
        """Ends of goals, bool [T, rows, 1]. The observation after the step shows that targets are met or the time is
        up, also where the rollout ends or the episode is truncated.
        """
        decided, following = rollout.get(DECIDED).unsqueeze(-1), rollout.get(keys.NEXT)
        met = self.met(following.get(self.config.meters)).gather(-1, rollout.get(CHOSEN).unsqueeze(-1))
        # only the next decision shows that a goal was given up
        given_up = torch.cat((decided[1:], torch.zeros_like(decided[:1]))) & ~following.get(keys.DONE)
        return met | (following.get(keys.GOAL_STEPS) <= 0) | given_up


def semi_markov_advantage(
    reward: Tensor,
    done: Tensor,
    decided: Tensor,
    value: Tensor,
    next_value: Tensor,
    terminated: Tensor,
    gamma: float,
    lmbda: float,
) -> tuple[Tensor, Tensor]:
    """Generalized advantage of the manager's decisions, over the lifetime of each goal, all [T, N].

    For a goal chosen at t that lasts k steps, ``delta = r_t + ... + gamma^(k-1) r_(t+k-1) + gamma^k V(s_(t+k)) -
    V(s_t)`` (Sutton, Precup and Singh 1999, section 3), and ``A = delta + gamma^k lmbda A'`` with the next decision's
    A'.

    Args:
        done: True where the episode ended with the step.
        decided: True where a goal was chosen before the step.
        value: the manager's value before each step.
        next_value: a value after each step, used where the episode was truncated or the rollout ends.
        terminated: True where the episode terminated, so that nothing follows.

    Returns:
        advantages (0 where nothing was decided) and targets of the manager's value.
    """
    # return of a goal that is still active, from the next step on, in that step's discounting
    rest = torch.where(terminated[-1], 0.0, next_value[-1])
    advantages = []
    for step in reversed(range(reward.shape[0])):
        after = torch.where(terminated[step], 0.0, next_value[step])
        # r_t + gamma (what follows in the goal's life, or in the world's)
        total = reward[step] + gamma * torch.where(done[step], after, rest)
        advantage = torch.where(decided[step], total - value[step], 0.0)
        advantages.append(advantage)
        # for the step before: a decision here ends the goal that was held until then
        rest = torch.where(decided[step], value[step] + lmbda * advantage, total)
    result = torch.stack(advantages[::-1])
    return result, result + value


class ManagerLoss(nn.Module):
    """PPO for the manager: clipped objective over the frames in which it decided; reads ``goal`` as the encoder
    computed it, and of the rollout ``goal_log_prob``, ``goal_advantage`` and ``goal_value_target``.
    """

    def __init__(self, manager: Manager) -> None:
        super().__init__()
        self.config = manager.config

    @spanned("manager")
    def forward(self, tensordict: TensorDictBase) -> TensorDict:
        """Compute losses as means over decisions, in sequences [B, T]."""
        goal, config = tensordict.get(keys.GOAL), self.config
        decided = goal["decided"]
        valid = tensordict.get(keys.VALID, torch.ones_like(decided))
        decided = decided & valid

        # few frames are decisions: they alone make up mean and deviation
        advantage, target = tensordict.get(GOAL_ADVANTAGE), tensordict.get(GOAL_TARGET)
        mean = ranks.mean(masked_mean(advantage, decided))
        deviation = ranks.mean(masked_mean((advantage - mean).square(), decided)).sqrt().clamp_min(1e-6)
        advantage = (advantage - mean) / deviation

        # pi(goal|s) / pi_old(goal|s), and the smaller of ratio A and clip(ratio) A
        ratio = (goal["log_prob"] - tensordict.get(OLD_LOG_PROB)).clamp(-20, 20).exp()
        clipped = ratio.clamp(1 - config.clip_epsilon, 1 + config.clip_epsilon)
        gain = torch.minimum(ratio * advantage, clipped * advantage)
        value_error = (goal["value"].squeeze(-1) - target).square()
        entropy = masked_mean(goal["entropy"], decided)
        return TensorDict(
            {
                "loss_manager_objective": -config.coeff * masked_mean(gain, decided),
                "loss_manager_critic": 0.5 * config.coeff * masked_mean(value_error, decided),
                "loss_manager_entropy": -config.coeff * config.entropy_coeff * entropy,
                "manager_entropy": entropy.detach(),
                "manager_decisions": masked_mean(decided.float(), valid),
            }
        )


def check_goals(config: ManagerConfig, shapes: dict[str, torch.Size]) -> dict[str, dict[str, float]]:
    """Return the goals that are not null; raises ValueError if they do not fit the world."""
    if config.meters not in shapes:
        raise ValueError(
            f"model.manager reads the observation {config.meters!r}, which this world does not show: use "
            "world.observation=groups, or switch the manager off."
        )
    if shapes[config.meters].numel() != len(config.meter_names):
        raise ValueError(
            f"this world shows {shapes[config.meters].numel()} meters but model.manager.meter_names has "
            f"{len(config.meter_names)}: name them all, in order."
        )
    goals = {name: targets for name, targets in config.goals.items() if targets is not None}
    for goal, targets in goals.items():
        if not isinstance(targets, dict) or not all(isinstance(level, float | int) for level in targets.values()):
            raise ValueError(
                f"goal {goal!r} is {targets!r}: give meters and the level of each, such as "
                f"model.manager.goals.{goal}={{{config.meter_names[0]}: 0.8}}."
            )
        unknown = set(targets) - set(config.meter_names)
        if unknown:
            raise ValueError(
                f"goal {goal!r} is about {', '.join(sorted(unknown))}, which this world has no meter for: change "
                f"model.manager.goals, or take it away with model.manager.goals.{goal}=null."
            )
    if len(goals) < 2:
        raise ValueError(f"model.manager has {len(goals)} goals: give model.manager.goals at least 2.")
    aimless = [goal for goal, targets in goals.items() if not any(level > 0 for level in targets.values())]
    if config.options and (config.intrinsic_coeff <= 0 or aimless):
        reason = f"goal {aimless[0]!r} has none above 0" if aimless else f"intrinsic_coeff is {config.intrinsic_coeff}"
        raise ValueError(
            f"model.manager.options pays the controller for nearing a goal's targets, and {reason}: give "
            "model.manager.intrinsic_coeff above 0 and every goal targets."
        )
    return goals
