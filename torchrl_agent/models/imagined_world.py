"""The world model as a TorchRL environment: policies can be rolled out, and trained, in imagination."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import ProbabilisticTensorDictSequential
from tensordict.utils import NestedKey
from torchrl.data import Categorical, Composite, MultiCategorical, TensorSpec, Unbounded
from torchrl.envs.model_based import ModelBasedEnvBase

from torchrl_agent.core import keys
from torchrl_agent.models.agent import Agent
from torchrl_agent.modules.dynamics import END, KNOWN, MEAN, WorldModel, dreaming_state
from torchrl_agent.modules.networks import one_hot_actions, symexp


class WorldModelEnv(ModelBasedEnvBase):
    """A world whose observation is a belief (``belief``: ``mean`` [..., D] and ``proprioception`` [..., K]; of a model
    that predicts others also the ``forecast`` [..., F] of their actions) and whose steps are the world model's.

    A step gives the next belief, the ``reward`` in the units of training, ``end_probability`` and, where that is above
    one half, ``terminated``. Gradients pass through a whole rollout, into the first beliefs and into the model.

    A reset begins at the beliefs that it is given, ``env.reset(tensordict)`` or ``env.rollout(steps, policy,
    tensordict=tensordict)``, else at zeros; rows that end begin again where they began. Everything else in that
    tensordict (legal actions, other agents, a goal) stays as it is, as nothing predicts it.

    TorchRL's class of the same name wraps TorchRL's ``WorldModel``, which has one latent tensor; ours has two, and the
    actions of several heads.

    Args:
        model: the world model, which is shared and stays where it is.

    Raises:
        ValueError: a reset is given a belief but not all that an imagined rollout begins with.
    """

    def __init__(self, model: WorldModel, batch_size: Sequence[int] = ()) -> None:
        device, shape = model.usual_spread.device, torch.Size(batch_size)
        super().__init__(model, device=device, batch_size=shape)
        sizes: dict[NestedKey, int] = {MEAN: model.belief_size, KNOWN: model.known_size}
        if model.forecast_size:
            sizes[keys.FORECAST] = model.forecast_size
        self._state_keys = list(sizes)
        self.state_spec = Composite(shape=shape, device=device)
        for key, size in sizes.items():
            self.state_spec[key] = Unbounded((*shape, size), device=device)
        self.observation_spec = self.state_spec.clone()
        self.observation_spec[keys.END_PROBABILITY] = Unbounded((*shape, 1), device=device)
        self.action_spec = self._actions(model.heads, shape, device)
        self.reward_spec = Unbounded((*shape, 1), device=device)
        flag = Categorical(2, shape=(*shape, 1), dtype=torch.bool, device=device)
        flags = {keys.DONE: flag, keys.TERMINATED: flag.clone()}
        self.full_done_spec = Composite(flags, shape=shape, device=device)
        self._begun: dict[NestedKey, torch.Tensor] | None = None

    @staticmethod
    def _actions(heads: list[int], shape: torch.Size, device: torch.device) -> TensorSpec:
        if len(heads) == 1:
            return Categorical(heads[0], shape=shape, dtype=torch.int64, device=device)
        return MultiCategorical(heads, shape=(*shape, len(heads)), dtype=torch.int64, device=device)

    def _reset(self, tensordict: TensorDictBase | None = None, **_: object) -> TensorDictBase:
        given = None if tensordict is None or keys.BELIEF not in tensordict.keys() else tensordict
        if given is not None and not set(self._state_keys) <= set(given.keys(True)):
            raise ValueError(
                f"a dream of this model begins with {keys.FORECAST!r} too, as it dreams of others: give the reset what "
                "the social model wrote there beside the belief."
            )
        reset = None if tensordict is None else tensordict.get("_reset", None)
        if self._begun is None or (reset is None and given is None):
            self._begun = {key: self.observation_spec[key].zero() for key in self._state_keys}
        if given is None:
            state = self._begun
        elif reset is None:
            state = self._begun = {key: given.get(key) for key in self._state_keys}
        else:
            state = {key: torch.where(reset, begun, given.get(key)) for key, begun in self._begun.items()}
        return self._observe(state, torch.zeros_like(state[MEAN][..., 0]))

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        belief, known = dreaming_state(tensordict)
        action = one_hot_actions(tensordict.get(self.action_key), self.world_model.heads)
        outcome = self.world_model(belief, known, action)
        mean, forecast = outcome["belief"].split([self.world_model.belief_size, self.world_model.forecast_size], -1)
        state = {MEAN: mean, KNOWN: outcome["proprioception"], keys.FORECAST: forecast}
        following = self._observe(state, outcome["end"].sigmoid())
        return following.set(keys.REWARD, symexp(outcome["reward"]).unsqueeze(-1))

    def _set_seed(self, seed: int | None) -> None:
        """Do nothing: nothing here is random."""

    def _observe(self, state: dict[NestedKey, torch.Tensor], end: torch.Tensor) -> TensorDict:
        ends = (end > END).unsqueeze(-1)
        flags = {keys.END_PROBABILITY: end.unsqueeze(-1), keys.DONE: ends, keys.TERMINATED: ends.clone()}
        observation = TensorDict(flags, end.shape, device=self.device)
        for key in self._state_keys:
            observation.set(key, state[key])
        return observation


def controller(agent: Agent) -> ProbabilisticTensorDictSequential:
    """Return the part of an agent's policy that acts on beliefs, for :class:`WorldModelEnv`.

    It reads the embeddings of others (``social_embedding``) and of the goal (``goal_embedding``), and the legal
    actions, as they were when the imagined rollout began: the world model predicts none of them.

    Raises:
        ValueError: the agent has no beliefs.
    """
    if agent.perception is None:
        raise ValueError(
            "this agent has no beliefs to act upon: give it a memory or use model.perception.enabled=true."
        )
    modules = list(agent.encoder)
    behind = modules[modules.index(agent.perception) + 1 :]
    left_out = [module for module in agent.agent_modules.values() if not module.runs_in_imagination]
    kept = [module for module in behind if module not in left_out]
    return ProbabilisticTensorDictSequential(*kept, *agent.actor_head)
