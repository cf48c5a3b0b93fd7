"""The social model: predicts the goals, next actions and meters of the visible other agents.

It has a memory of each other agent, fed by public cues alone, and treats all of them alike: exchanging two of them
exchanges its predictions about them. Their true goals and meters are labels in training, never an input (CTDE).

Shapes: [...] is rows (worlds times agents) in a step, or sequences [B, T] of them; V slots for visible others, C cues
of each, A agents of the world, who keep their number while they change slots, H numbers remembered of each, G goals,
M meters, S numbers that the policy reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from tensordict import TensorDict, TensorDictBase
from torch import Tensor, nn
from torchrl.data import Unbounded
from torchrl.envs import EnvBase
from torchrl.modules import recurrent_mode
from typing_extensions import override

from torchrl_agent.core import keys
from torchrl_agent.core.bounds import choice, count, number, weight
from torchrl_agent.core.ranks import masked_mean
from torchrl_agent.core.spans import spanned
from torchrl_agent.modules.dynamics import HIGH_VARIANCE, NOTHING, NOVEL_STATE
from torchrl_agent.modules.memory import AssociativeMemory, recurrence
from torchrl_agent.modules.module import AgentModule, Built, ModuleContext
from torchrl_agent.modules.networks import Attention, have_later, mlp
from torchrl_agent.modules.records import feature_means, most_frequent
from torchrl_agent.modules.specs import group_spec

POOLINGS = ("sum", "attention")
DOUBT = 0.5
"""Confidence is low where the most likely goal has a probability below this."""
LABELS = tuple((keys.PRIVILEGED, name) for name in ("others_need", "others_meters", "others_action"))
THOUGHTS = tuple((keys.SOCIAL, name) for name in ("goal", "next_action", "meters"))
"""Predictions that a rollout keeps of ``social``: those that the policy reads."""


@dataclass
class SocialModelConfig:
    """The social model: reading others."""

    enabled: bool = False
    """Use it."""
    memory_size: int = count(32)
    """Hidden size of the GRU for each other."""
    associations: int = number(0, least=0)
    """K, keys of an associative memory; 0 for none. Beside the GRU, it finds again what each other did in moments like
    this one, whoever it is (linear attention, Katharopoulos et al. 2020)."""
    pooled_size: int = count(32)
    """S, size of the pooled features of others."""
    pooling: str = choice("sum", POOLINGS)
    """Pooling of the policy's features of others. sum adds all of them up; attention weighs each by how much it matters
    to the present belief (Vaswani et al. 2017, section 3.2.1), and reports that in ``social.attention``."""
    context: bool = False
    """Read others in the light of the belief. The policy also reads who each of them is."""
    shapes_perception: bool = False
    """Let its losses change the belief it reads."""
    coeff: float = weight(0.2)
    """Weight of its losses beside PPO's. 0 leaves them out, for worlds without privileged labels."""


class SocialModel(AgentModule):
    """Reads the belief's ``social_cues`` [..., V, C], ``visible`` and ``number`` [..., V], the memory of every other
    agent ``others_hidden`` [..., A, H]; with ``context`` also the surroundings in which they act, the belief's ``mean``
    and ``proprioception``, since an agent's next action depends on where there is something to do and on the time;
    writes ``social``, for each visible other (zeros in empty slots)

    ``goal`` logits [..., V, G], ``next_action`` logits [..., V, actions], ``meters`` [..., V, M], ``confidence`` in
    0..1 and ``reason`` (none, novel state: not seen before; high variance: several goals are likely) [..., V], with
    associations their ``query`` and what was ``written`` [..., V, K],

    and ``social_embedding`` [..., S], what the policy reads: a sum over the visible others, or with ``pooling:
    attention`` their weighted mean, whose weights are in ``attention`` [..., V]. For a world model that predicts
    others it also writes ``forecast`` [..., G + actions + M + 1], sums over the visible others of the probabilities of
    their goals and next actions, of their meters, and of 1.

    Raises:
        ValueError: the world shows no others.
    """

    learns_alone = for_discrete_actions = True

    def __init__(
        self,
        env: EnvBase,
        config: SocialModelConfig,
        slots: tuple[int, int, int],
        sizes: tuple[int, int, int],
        surroundings: int,
        activation: str,
        forecasts: bool = False,
    ) -> None:
        super().__init__()
        self.config = config
        _, cue_size, self.agents = slots
        self.goals, self.actions, self.meters = sizes
        self.embed = mlp(cue_size + 1, config.memory_size, [], activation)
        self.surroundings = mlp(surroundings, config.memory_size, [], activation) if config.context else None
        self.activation = nn.SiLU()
        self.recurrence, states = recurrence("gru", config.memory_size, config.memory_size, "in", "out", env.device)
        (self.state,) = states
        self.associations = AssociativeMemory(config.memory_size, config.associations) if config.associations else None
        remembered = config.memory_size + (self.associations.size if self.associations is not None else 0)
        self.memory = {keys.OTHERS_HIDDEN: Unbounded((self.agents, remembered))}
        width = (1 + config.context) * config.memory_size + cue_size
        self.heads = mlp(width, self.goals + self.actions + self.meters, [config.memory_size], activation, gain=0.1)
        seen = cue_size + self.goals + self.actions + self.meters + config.context * self.agents
        self.each = mlp(seen, config.pooled_size, [config.pooled_size], activation)
        self.attention = Attention(surroundings, config.pooled_size) if config.pooling == "attention" else None
        self.size, self.forecast_size, self.forecasts = config.pooled_size, sum(sizes) + 1, forecasts
        self.believes = config.context or self.attention is not None
        beliefs = ("social_cues", "visible", "number", *(("mean", "proprioception") if self.believes else ()))
        self.in_keys = [*((keys.BELIEF, name) for name in beliefs), keys.IS_INIT, keys.OTHERS_HIDDEN]
        self.recorded_keys = self.replayed_keys = THOUGHTS
        self.out_keys = [keys.SOCIAL_EMBEDDING, keys.SOCIAL, (keys.NEXT, keys.OTHERS_HIDDEN)]
        self.side_outputs = [keys.FORECAST] if forecasts else []
        self.out_keys += self.side_outputs

    @classmethod
    def build(cls, context: ModuleContext) -> Built:
        """Build it if it is switched on, with its losses if they have a weight."""
        config = context.config.social_model
        if config.enabled:
            slots = context.built["perception"].social
            sizes = social_sizes(context.env, context.heads[0], learns=config.coeff > 0)
            surroundings = context.built["perception"].size + context.built["perception"].known_size
            rest = (context.config.activation, context.config.world_model.predict_others)
            module = cls(context.env, config, slots, sizes, surroundings, *rest)
            if config.coeff:
                module.losses.append(SocialModelLoss(module, context.config.manager.meter_names))
                module.recorded_keys = (*THOUGHTS, *LABELS)
            yield "social_model", module

    @override
    @staticmethod
    def switch_on(model: Any) -> None:
        """Switch the social model and its losses on in a ``ModelConfig``."""
        model.social_model.enabled, model.social_model.coeff = True, model.social_model.coeff or 1.0

    @spanned("social_model")
    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Run one step [...], or sequences [B, T] in TorchRL's recurrent mode. There, and in :meth:`recall`, the parts
        of ``social`` that a rollout recorded are not computed again.
        """
        if not ((recurrent_mode() or self.recalls) and keys.SOCIAL in tensordict.keys()):
            tensordict.set(keys.SOCIAL, self.think(tensordict))
        cues, visible, number = (tensordict.get((keys.BELIEF, name)) for name in ("social_cues", "visible", "number"))
        goal, action, meters = (tensordict.get(key) for key in THOUGHTS)
        goal, action = goal.softmax(-1).detach(), action.softmax(-1).detach()
        if self.forecasts:
            predicted = torch.cat((goal, action, meters.detach(), torch.ones_like(meters[..., :1])), -1)
            tensordict.set(keys.FORECAST, torch.where(visible.unsqueeze(-1), predicted, 0.0).sum(-2))
        # the policy learns to use these predictions, which learn from labels alone; the other's identity may matter
        who = [] if self.surroundings is None else [self._where(number)]
        facts = torch.cat((cues, goal, action, meters.detach(), *who), -1)
        each = torch.where(visible.unsqueeze(-1), self.activation(self.each(facts)), 0.0)
        if self.attention is None:
            return tensordict.set(keys.SOCIAL_EMBEDDING, each.sum(-2))
        weights = self.attention(_believed(tensordict), each, visible)
        tensordict.set((keys.SOCIAL, "attention"), weights.detach())
        return tensordict.set(keys.SOCIAL_EMBEDDING, (weights.unsqueeze(-1) * each).sum(-2))

    def think(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Predict each visible other, ``social``; also write the next memory of all others."""
        cues, visible, number = (tensordict.get((keys.BELIEF, name)) for name in ("social_cues", "visible", "number"))
        begins, hidden = tensordict.get(keys.IS_INIT), tensordict.get(keys.OTHERS_HIDDEN)
        # from slots, in which others come and go, to agents, whose memory must stay theirs
        where = self._where(number)
        shown = torch.cat((cues, visible.unsqueeze(-1).float()), -1)
        per_agent = where.transpose(-1, -2) @ shown  # [..., A, C + 1]; zeros for who is out of sight
        in_sight = per_agent[..., -1:] > 0  # [..., A, 1]
        known = met_before(in_sight, begins.unsqueeze(-2), hidden)
        features, around = self.embed(per_agent), []  # empty without context
        if self.surroundings is not None:
            # others are read in the context of the belief, which need not be trained by reading them
            believed = _believed(tensordict)
            believed = believed if self.config.shapes_perception else believed.detach()
            light = self.surroundings(believed).unsqueeze(-2)
            features, around = features + light, [light.expand(*cues.shape[:-1], light.shape[-1])]
        rows = self._remember(self.activation(features), in_sight, ~known, hidden)
        tensordict.set((keys.NEXT, keys.OTHERS_HIDDEN), torch.where(known | in_sight, rows.get("hidden"), 0.0))

        # and back: the memory of the agent in each slot
        mind = where @ rows.get("out")  # [..., V, H]
        known_before = (where @ known.float()).squeeze(-1) > 0
        goal, action, meters = (
            self.heads(torch.cat((mind, cues, *around), -1)).float().split([self.goals, self.actions, self.meters], -1)
        )

        # empty slots are zero
        there = visible.unsqueeze(-1)
        confidence = goal.softmax(-1).amax(-1)
        doubt = torch.where(confidence < DOUBT, HIGH_VARIANCE, NOTHING)
        thoughts = {
            "goal": torch.where(there, goal, 0.0),
            "next_action": torch.where(there, action, 0.0),
            "meters": torch.where(there, meters.sigmoid(), 0.0),
            "confidence": torch.where(visible, confidence, 0.0),
            "reason": torch.where(visible, torch.where(known_before, doubt, NOVEL_STATE), NOTHING),
        }
        if self.associations is not None:
            thoughts.update({name: where @ rows.get(name) for name in ("query", "written")})
        return TensorDict(thoughts, tensordict.batch_size, device=tensordict.device)

    def _where(self, number: Tensor) -> Tensor:
        """One-hot number of the agent in each slot, [..., V, A]; zeros in an empty one."""
        return F.one_hot(number, self.agents + 1)[..., : self.agents].float()

    def _remember(self, features: Tensor, seen: Tensor, begins: Tensor, hidden: Tensor) -> TensorDictBase:
        """Memory's output for each agent, ``out``, and its next state, ``hidden`` [..., A, H]; each agent is a row of
        its own, whose memory ``begins`` [..., A, 1] when it is first seen. With associations also their ``query`` and
        what was ``written``.
        """
        size = self.config.memory_size
        state = hidden[..., :size].unsqueeze(-2)
        rows = TensorDict({"in": features, keys.IS_INIT: begins, self.state: state}, features.shape[:-1])
        if self.associations is not None:
            rows.update({"seen": seen, "associated": hidden[..., size:]})
        if recurrent_mode():  # [B, T, A] -> [B * A, T]
            batch, steps, agents = rows.shape
            rows = self._remember_rows(rows.transpose(1, 2).reshape(batch * agents, steps))
            return rows.reshape(batch, agents, steps).transpose(1, 2)
        return self._remember_rows(rows)

    def _remember_rows(self, rows: TensorDictBase) -> TensorDictBase:
        """Run the memory on rows [...], or sequences [R, T] of them."""
        rows = self.recurrence(rows)
        out, hidden = rows.get("out"), rows.get((keys.NEXT, self.state)).squeeze(-2)
        if self.associations is None:
            return TensorDict({"out": out, "hidden": hidden}, rows.shape)
        given = [rows.get(name) for name in ("in", "seen", keys.IS_INIT, "associated")]
        if recurrent_mode():
            found, state, query, written = self.associations(*given)
        else:  # a sequence of one step, before which nothing was where it begins
            given[-1] = torch.where(rows.get(keys.IS_INIT), 0.0, given[-1])
            result = self.associations(*(one.unsqueeze(-2) for one in given))
            found, state, query, written = (value.squeeze(-2) for value in result)
        remembered = {"out": out + found, "hidden": torch.cat((hidden, state), -1), "query": query, "written": written}
        return TensorDict(remembered, rows.shape)


class SocialModelLoss(nn.Module):
    """Losses against the true goals, actions and meters of the visible others, for sequences [B, T] whose perception
    has run; predictions are computed anew, with gradients.

    Reads what the model reads, and labels, ``privileged``: ``others_need``, ``others_meters`` and ``others_action``
    [..., V], the action that each took last; what another does next is what it is seen to have done a frame later.
    Writes ``loss_social_goal``, ``loss_social_action``, ``loss_social_meters`` and the accuracies
    ``social_goal_accuracy`` and ``social_action_accuracy``.

    Args:
        model: model whose predictions are compared.
        meter_names: names of the others' meters, in order, for :meth:`figures`.
    """

    subsampled = True

    def __init__(self, model: SocialModel, meter_names: Sequence[str] = ()) -> None:
        super().__init__()
        self.coeff, self.meter_names = model.config.coeff, list(meter_names)
        object.__setattr__(self, "model", model)  # not as a part of it, whose weights would be saved twice

    @spanned("social_model")
    def forward(self, tensordict: TensorDictBase) -> TensorDict:
        """Compute the losses, means over the others that are seen."""
        social, meters = self.model.think(tensordict.copy()), tensordict.get(LABELS[1])
        need, seen, following, acted = self._labels(tensordict)
        # -log p of each other's true need and next action, and the squared error of its meters
        goal_loss = F.cross_entropy(social["goal"].movedim(-1, 1), need, reduction="none")
        action_loss = F.cross_entropy(social["next_action"].movedim(-1, 1), following, reduction="none")
        meter_loss = (social["meters"] - meters).square().mean(-1)
        with torch.no_grad():
            goal_right = masked_mean((social["goal"].argmax(-1) == need).float(), seen)
            action_right = masked_mean((social["next_action"].argmax(-1) == following).float(), acted)
        return TensorDict(
            {
                "loss_social_goal": self.coeff * masked_mean(goal_loss, seen),
                "loss_social_action": self.coeff * masked_mean(action_loss, acted),
                "loss_social_meters": self.coeff * masked_mean(meter_loss, seen),
                "social_goal_accuracy": goal_right,
                "social_action_accuracy": action_right,
            }
        )

    def figures(self, data: TensorDictBase, train: TensorDictBase) -> dict[str, float]:
        """Accuracies and errors of predictions about others, among those who are seen.

        Args:
            data: test sequences [R, T] on which the model has run.
            train: training sequences on which it has run, for the most frequent labels and mean meters.
        """
        social, meters = data.get(keys.SOCIAL), data.get(LABELS[1])
        need, seen, following, acted = self._labels(data)
        usual_need, was_seen, usual_action, had_acted = self._labels(train)
        frequent_need = most_frequent(usual_need, was_seen, social["goal"].shape[-1])
        frequent_action = most_frequent(usual_action, had_acted, social["next_action"].shape[-1])
        figures = {
            "goal_accuracy": masked_mean((social["goal"].argmax(-1) == need).float(), seen).item(),
            "goal_accuracy_of_the_most_frequent": masked_mean((need == frequent_need).float(), seen).item(),
            "action_accuracy": masked_mean((social["next_action"].argmax(-1) == following).float(), acted).item(),
            "action_accuracy_of_the_most_frequent": masked_mean((following == frequent_action).float(), acted).item(),
            "meters_error": masked_mean((social["meters"] - meters).abs().mean(-1), seen).item(),
        }
        known = feature_means(train.get(LABELS[1]), was_seen)
        if len(self.meter_names) == meters.shape[-1]:
            for place, name in enumerate(self.meter_names):
                truth = meters[..., place]
                figures[f"{name}_error"] = masked_mean((social["meters"][..., place] - truth).abs(), seen).item()
                figures[f"{name}_error_of_the_mean"] = masked_mean((known[place] - truth).abs(), seen).item()
        return figures

    def _labels(self, tensordict: TensorDictBase) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """True goals, mask of the seen, next actions, and mask of those whose next action is known; each [B, T, V]."""
        need, last_action = tensordict.get(LABELS[0]), tensordict.get(LABELS[2])
        visible, number = (tensordict.get((keys.BELIEF, name)) for name in ("visible", "number"))
        done = tensordict.get(keys.DONE)
        seen = visible & tensordict.get(keys.VALID, torch.ones_like(done.squeeze(-1))).unsqueeze(-1)

        # what another does next is seen a frame later, if it is still in sight and the episode goes on
        following, seen_again = follow(number, last_action, visible, self.model.agents)
        goes_on = ~done & have_later(done, 1).unsqueeze(-1)
        return need, seen, following, seen & seen_again & goes_on


def _believed(tensordict: TensorDictBase) -> Tensor:
    """The belief's mean and the own state side by side, [..., D + K]."""
    return torch.cat([tensordict.get((keys.BELIEF, name)) for name in ("mean", "proprioception")], -1)


def met_before(seen: Tensor, begins: Tensor, hidden: Tensor) -> Tensor:
    """True where another agent was seen before in the episode, bool [..., A, 1]; else its memory is empty.

    Args:
        seen: True where it is in sight now, [..., A, 1].
        begins: True where the episode begins, [..., 1, 1].
        hidden: the memories before each frame, [..., A, H]; of sequences [B, T, A, H] only the first is read.
    """
    if not recurrent_mode():
        return (hidden.abs().sum(-1, keepdim=True) > 0) & ~begins
    carried = hidden[:, :1].abs().sum(-1, keepdim=True) > 0
    # within a sequence: the latest sighting before each frame, which counts if the episode had begun by then
    frame = torch.arange(seen.shape[1], device=seen.device).reshape(-1, 1, 1)
    began = torch.where(begins, frame, -1).cummax(1).values
    last = torch.where(seen, frame, -1).cummax(1).values.roll(1, 1)  # before this frame
    last = torch.where(frame == 0, -1, last)
    return ((last >= began) & (last >= 0)) | (carried & (began < 0))


def follow(number: Tensor, values: Tensor, visible: Tensor, agents: int) -> tuple[Tensor, Tensor]:
    """Follow the agents in slots to the next frame: their int64 ``values`` there, [B, T, V], and a mask of those who
    are seen then; slots are matched by the agents' numbers.
    """
    now = F.one_hot(number, agents + 1)[..., :agents]  # [B, T, V, A]
    later = now.roll(-1, 1)
    per_agent = (later * values.roll(-1, 1).unsqueeze(-1)).sum(-2)  # [B, T, A]
    there = (later * visible.roll(-1, 1).unsqueeze(-1)).sum(-2)
    return (now * per_agent.unsqueeze(-2)).sum(-1), (now * there.unsqueeze(-2)).sum(-1) > 0


def social_sizes(env: EnvBase, actions: int, learns: bool) -> tuple[int, int, int]:
    """Numbers of goals, actions and meters of others that a world has labels for; one goal and one meter where there
    are none and none are needed, because the model does not learn.

    Raises:
        ValueError: the labels are not there although the model is to learn from them.
    """
    spec = group_spec(env)
    if keys.PRIVILEGED not in spec.keys():
        if not learns:
            return 1, actions, 1
        raise ValueError(
            "model.social_model.enabled needs a world that shows others with privileged labels to learn from: use "
            "world.privileged=true with at least 2 agents, set model.social_model.coeff=0, or switch it off."
        )
    labels = spec[keys.PRIVILEGED]
    return int(labels["others_need"].space.n), actions, labels["others_meters"].shape[-1]
