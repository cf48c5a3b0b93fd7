"""Perception: maps observations to a belief, with a memory of earlier observations.

Shapes: [...] is rows (worlds times agents) in a step, or sequences [B, T] of them; F numbers of all observations
together, E of their embedding, D of the belief, K that are exactly known, V slots for visible others, C cues of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase
from torch import Tensor, nn
from torchrl.data import Composite
from torchrl.envs import EnvBase
from typing_extensions import override

from torchrl_agent.core import keys, ranks
from torchrl_agent.core.bounds import count, weight
from torchrl_agent.core.ranks import masked_mean
from torchrl_agent.core.spans import spanned
from torchrl_agent.core.text import check_known
from torchrl_agent.modules.memory import check_states, recurrence
from torchrl_agent.modules.module import AgentModule, Built, CustomEncoder, ModuleContext
from torchrl_agent.modules.networks import (
    ACTIVATIONS,
    ConvEncoder,
    ImpalaEncoder,
    NatureEncoder,
    PictureEncoder,
    have_later,
    mlp,
    one_hot_actions,
)
from torchrl_agent.modules.records import feature_means, share_of, squared_error
from torchrl_agent.modules.specs import group_spec

SMALLEST_LOG_STD, LARGEST_LOG_STD = -5.0, 2.0


@dataclass
class PerceptionConfig:
    """Perception: from observations to a belief."""

    enabled: bool = False
    """Use it without memory too. A memory always uses it."""
    embedding_size: int = count(128)
    """E, size of the observation embedding. It is the input of the GRU or LSTM."""
    memory_size: int = count(128)
    """H, hidden size of the GRU or LSTM."""
    skip_connection: bool = True
    """Lead present observations around the memory too. They need not be remembered to be used; without, it is the plain
    recurrent network of recurrent PPO."""
    belief_size: int = count(64)
    """D, size of the latent state, the belief."""
    plain: bool = False
    """No layers but the encoders of pictures and the memory. Vectors go as they are; what comes out is the belief."""
    channels: int = count(16)
    """Channels of the convolutions over pictures."""
    channels_last: bool = False
    """Lay out pictures with the channels last on CUDA. No card has measured it yet."""
    encoders: dict[str, Any] = field(default_factory=dict)
    """Encoders of single observations, by name. ``mlp``, ``cnn``, ``nature`` or ``impala`` of its own, or ``{_target_:
    ...}`` (see ``modules/module.py``). All vectors that are not named share one mlp, every picture has a cnn of its
    own."""
    known: list[str] = field(default_factory=lambda: ["meters", "position"])
    """Observations that are exact self-knowledge. Those that the world lacks are left out, and all vectors are taken if
    it lacks all."""
    others: str = "others"
    """Observation of the visible others, [V * C]."""
    others_number: str = "others_number"
    """Observation of the visible others' numbers, [V]."""
    reconstruction_coeff: float = weight(0.0)
    """Weight of the reconstruction loss. It predicts the present observation from the belief."""
    prediction_coeff: float = weight(0.0)
    """Weight of the prediction loss. It predicts the next observation from belief and action."""
    kl_coeff: float = weight(0.001)
    """Weight of the belief's KL from standard normal. It counts if one of the two losses above is in use."""


def _check_config(config: PerceptionConfig, shown: list[str]) -> None:
    """Raise ValueError for observations that a configuration names and the world does not show, and for losses of a
    plain belief.
    """
    if config.plain and (config.reconstruction_coeff or config.prediction_coeff):
        raise ValueError(
            "model.perception.plain gives what is seen and remembered as the belief, which no loss of its own trains: "
            "set model.perception.reconstruction_coeff and prediction_coeff to 0."
        )
    usual = PerceptionConfig()
    check_known(config.known, shown, "model.perception.known", tolerated=usual.known)
    for key in ("others", "others_number"):
        check_known([getattr(config, key)], shown, f"model.perception.{key}", tolerated=[getattr(usual, key)])


class Perception(AgentModule):
    """Reads the joined, normalized observation [..., F] (and the memory's states), writes the ``belief``. It is made
    from the present observation beside the memory, so that nothing has to be remembered to be used at once.

    ``mean`` and ``log_std`` [..., D] of a diagonal Gaussian over the hidden state of the world; ``proprioception``
    [..., K], the agent's exact knowledge of itself; and in worlds that show others ``social_cues`` [..., V, C] with
    ``visible`` [..., V] and ``number`` [..., V].

    Args:
        shapes: shapes of the observations that are joined, in their order.
        memory: none, gru or lstm.
        layer_norm: normalize embedding and output of the memory.

    Attributes:
        memory: specs of the recurrent states by key; empty without memory.
        known_size: K.
    """

    own_grad_clip = False  # it is trained by the controller's gradient too
    learns_alone = reads_normalized = allows_float8 = True

    def __init__(
        self,
        env: EnvBase,
        shapes: dict[str, torch.Size],
        config: PerceptionConfig,
        memory: str,
        activation: str,
        layer_norm: bool = False,
    ) -> None:
        super().__init__()
        _check_config(config, [*shapes, *map(str, group_spec(env).keys())])
        self._add_encoders(shapes, config, activation)
        norm = nn.LayerNorm if layer_norm else nn.Identity
        self.embedding_norm = norm(self.embedded_size)
        self.recurrence, width = None, self.embedded_size
        self.skips = config.skip_connection
        if memory != "none":
            self.recurrence, self.memory = recurrence(
                memory, width, config.memory_size, _EMBEDDED, _REMEMBERED, env.device
            )
            self.memory_norm = norm(config.memory_size)
            width = config.memory_size + (width if self.skips else 0)
        self.size = width if config.plain else config.belief_size
        self.mean = nn.Identity() if config.plain else mlp(width, self.size, [], activation, gain=1.0)
        self.log_std = None if config.plain else mlp(width, self.size, [], activation, gain=0.01)
        self.known = [name for name in config.known if name in shapes and len(shapes[name]) == 1]
        self.known = self.known or [name for name, shape in shapes.items() if len(shape) == 1]
        self.known_size = sum(shapes[name].numel() for name in self.known)
        self._find_others(group_spec(env), shapes, config)
        social = [] if self.others is None else [self.others, self.number]
        self.in_keys = [keys.NORMALIZED, *dict.fromkeys([*self.known, *social])]
        self.in_keys += [keys.IS_INIT, *self.memory] if self.memory else []
        fields = ["mean", "log_std", "proprioception", *(["social_cues", "visible", "number"] if social else [])]
        self.out_keys = [*((keys.BELIEF, name) for name in fields), *((keys.NEXT, name) for name in self.memory)]

    def _add_encoders(self, shapes: dict[str, torch.Size], config: PerceptionConfig, activation: str) -> None:
        """Add the networks that embed joined observations, [..., E]: an encoder of each, and one that fuses them. A
        plain perception has encoders of pictures only, and E is their sizes and those of the vectors together.
        """
        self.sizes = [shape.numel() for shape in shapes.values()]
        kinds = _encoder_kinds(shapes, config.encoders)
        self.vectors = [index for index, name in enumerate(shapes) if kinds[name] is None]
        self.encoders = nn.ModuleDict(
            {
                str(index): _encoder(name, kinds[name], shape, config, activation)
                for index, (name, shape) in enumerate(shapes.items())
                if kinds[name] is not None
            }
        )
        for encoder in self.encoders.values():
            if isinstance(encoder, PictureEncoder):
                encoder.channels_last = config.channels_last
        width = sum(self.sizes[index] for index in self.vectors)
        self.plain, self.vector_encoder = config.plain, None
        self.activation: nn.Module = ACTIVATIONS[activation]() if config.plain else nn.SiLU()
        if config.plain:
            self.embedded_size = len(self.encoders) * config.embedding_size + width
            return
        if self.vectors:
            self.vector_encoder = mlp(width, config.embedding_size, [], activation)
        parts = len(self.encoders) + bool(self.vectors)
        self.embedded_size = config.embedding_size
        self.fuse = mlp(parts * config.embedding_size, self.embedded_size, [], activation)

    def _find_others(self, group: Composite, shapes: dict[str, torch.Size], config: PerceptionConfig) -> None:
        """Find where others are shown: the keys of their cues and numbers, V slots, C cues of each, and the number of
        an empty slot; no key in a world that shows none.
        """
        self.others: str | None = None
        if config.others in shapes and config.others_number in group.keys():
            self.others, self.number = config.others, config.others_number
            self.slots = group[config.others_number].shape[-1]
            self.cue_size = shapes[config.others].numel() // self.slots
            self.empty_slot = int(group[config.others_number].space.n) - 1

    @classmethod
    def build(cls, context: ModuleContext) -> Built:
        """Build it if it is switched on or the agent has a memory, with its losses if they have a weight."""
        config, model = context.config.perception, context.config
        if config.enabled or model.memory != "none":
            module = cls(context.env, context.shapes, config, model.memory, model.activation, model.layer_norm)
            if config.reconstruction_coeff or config.prediction_coeff:
                module.losses.append(PerceptionLoss(config, sum(module.sizes), context.heads, model.activation))
            yield "perception", module

    @override
    @staticmethod
    def switch_on(model: Any) -> None:
        """Switch perception and its losses on in a ``ModelConfig``."""
        model.perception.reconstruction_coeff = model.perception.reconstruction_coeff or 1.0
        model.perception.prediction_coeff = model.perception.prediction_coeff or 1.0

    @property
    def social(self) -> tuple[int, int, int]:
        """Number of slots for visible others, of cues that each shows, and of agents in the world.

        Raises:
            ValueError: the world shows no others.
        """
        if self.others is None:
            raise ValueError(
                "model.social_model.enabled needs a world that shows others (observations 'others' and "
                "'others_number'): use world.observation=groups with several agents, or switch the social model off."
            )
        return self.slots, self.cue_size, self.empty_slot

    @spanned("perception")
    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Run one step [...], or sequences [B, T] in TorchRL's recurrent mode."""
        # embedding of the present observation, [..., E]
        features = self.embed(tensordict.get(keys.NORMALIZED))
        # and the memory of earlier ones, usually beside it
        if self.recurrence is not None:
            if not torch.compiler.is_compiling():
                check_states(tensordict, self.memory, features.shape[:-1])
            states = tensordict.select(keys.IS_INIT, *self.memory).set(_EMBEDDED, features)
            states = self.recurrence(states)
            remembered = self.memory_norm(states.get(_REMEMBERED))
            features = torch.cat((features, remembered), -1) if self.skips else remembered
            for name in self.memory:
                tensordict.set((keys.NEXT, name), states.get((keys.NEXT, name)))
        # a latent state, and exact knowledge, which was shown and need not be inferred
        belief = {
            "mean": self.mean(features).float(),
            "log_std": self._log_std(features),
            "proprioception": torch.cat([features[..., :0], *(tensordict.get(name) for name in self.known)], -1),
        }
        if self.others is not None:
            belief.update(self.cues(tensordict))
        return tensordict.set(keys.BELIEF, TensorDict(belief, tensordict.batch_size, device=tensordict.device))

    def _log_std(self, features: Tensor) -> Tensor:
        """Logarithm of the belief's deviation, [..., D]; the smallest one if the perception is plain."""
        if self.log_std is None:
            return torch.full_like(features, SMALLEST_LOG_STD, dtype=torch.float32)
        return self.log_std(features).float().clamp(SMALLEST_LOG_STD, LARGEST_LOG_STD)

    def cues(self, tensordict: TensorDictBase) -> dict[str, Tensor]:
        """Cues of the others in sight, ``social_cues`` [..., V, C], their numbers, ``number`` [..., V], and the mask of
        occupied slots, ``visible`` [..., V].
        """
        number = tensordict.get(self.number)
        shown = tensordict.get(self.others).unflatten(-1, (self.slots, self.cue_size))
        return {"social_cues": shown, "number": number, "visible": number != self.empty_slot}

    def embed(self, observation: Tensor) -> Tensor:
        """Features [..., E] of joined observations [..., F], each by its encoder, then fused."""
        parts = observation.split(self.sizes, -1)
        encoded = [encoder(parts[int(index)]) for index, encoder in self.encoders.items()]
        if self.plain:
            vectors = [parts[index] for index in self.vectors]
            return self.embedding_norm(torch.cat([*map(self.activation, encoded), *vectors], -1))
        if self.vector_encoder is not None:
            encoded.append(self.vector_encoder(torch.cat([parts[index] for index in self.vectors], -1)))
        return self.activation(self.embedding_norm(self.fuse(self.activation(torch.cat(encoded, -1)))))


def _encoder_kinds(shapes: dict[str, torch.Size], chosen: dict[str, Any]) -> dict[str, Any]:
    """Kind of encoder of each observation; None for the vectors that share an encoder."""
    unknown = [name for name in chosen if name not in shapes]
    if unknown:
        raise ValueError(
            f"model.perception.encoders names {unknown[0]!r}, which the world does not show: use some of "
            f"{', '.join(shapes)}."
        )
    usual = {1: None, 3: "cnn"}
    strange = [name for name, shape in shapes.items() if len(shape) not in usual and name not in chosen]
    if strange:
        raise ValueError(
            f"observation {strange[0]!r} has shape {tuple(shapes[strange[0]])}: perception reads vectors [size] and "
            f"pictures [channels, height, width]; give it an encoder with model.perception.encoders.{strange[0]}."
        )
    return {name: chosen[name] if name in chosen else usual[len(shape)] for name, shape in shapes.items()}


def _encoder(name: str, kind: Any, shape: torch.Size, config: PerceptionConfig, activation: str) -> nn.Module:
    """Make the encoder of one flattened observation to features [..., E]."""
    if kind == "mlp":
        return mlp(shape.numel(), config.embedding_size, [], activation)
    if kind == "cnn" and len(shape) == 3:
        return ConvEncoder(shape, config.embedding_size, config.channels, activation)
    if kind == "nature" and len(shape) == 3:
        return NatureEncoder(shape, config.embedding_size, activation)
    if kind == "impala" and len(shape) == 3:
        return ImpalaEncoder(shape, config.embedding_size, activation)
    if isinstance(kind, str):
        raise ValueError(
            f"model.perception.encoders.{name} is {kind!r} for an observation of shape {tuple(shape)}: use mlp, or "
            "cnn, nature or impala (for pictures), or a _target_."
        )
    return CustomEncoder(name, kind, shape, config.embedding_size)


class PerceptionLoss(nn.Module):
    """Losses of a belief: reconstruction of the observation and prediction of the next one from belief and action, for
    sequences [B, T] whose encoder has run; beliefs are sampled (Kingma and Welling 2014) and kept near a standard
    normal. Writes ``loss_perception_reconstruction``, ``loss_perception_prediction``, ``loss_perception_kl``.
    """

    subsampled = True

    def __init__(self, config: PerceptionConfig, width: int, heads: Sequence[int], activation: str) -> None:
        super().__init__()
        self.config, self.heads = config, list(heads)
        hidden = [config.embedding_size]
        self.decoder = self.predictor = None
        if config.reconstruction_coeff:
            self.decoder = mlp(config.belief_size, width, hidden, activation, gain=1.0)
        if config.prediction_coeff:
            self.predictor = mlp(config.belief_size + sum(heads), width, hidden, activation, gain=1.0)

    @spanned("perception")
    def forward(self, tensordict: TensorDictBase) -> TensorDict:
        """Compute the losses, means over the frames that count."""
        observation, action = tensordict.get(keys.NORMALIZED), tensordict.get(keys.ACTION)
        mean, log_std = (tensordict.get((keys.BELIEF, name)) for name in ("mean", "log_std"))
        done = tensordict.get(keys.DONE).squeeze(-1)
        valid = tensordict.get(keys.VALID, torch.ones_like(done))
        sample = mean + log_std.exp() * ranks.normal_like(mean)
        # KL(N(mean, std) || N(0, 1)), summed over the belief
        kl = 0.5 * (mean.square() + (2 * log_std).exp() - 1 - 2 * log_std).sum(-1)
        losses = {"loss_perception_kl": self.config.kl_coeff * masked_mean(kl, valid)}
        if self.decoder is not None:
            # (decoder(z) - o)^2
            error = (self.decoder(sample) - observation).square().mean(-1)
            losses["loss_perception_reconstruction"] = self.config.reconstruction_coeff * masked_mean(error, valid)
        if self.predictor is not None:
            # (predictor(z, a) - o')^2, where an o' follows
            predicted = self.predictor(torch.cat((sample, one_hot_actions(action, self.heads)), -1))
            error = (predicted - observation.roll(-1, 1)).square().mean(-1)
            goes_on = valid & ~done & have_later(done, 1)
            losses["loss_perception_prediction"] = self.config.prediction_coeff * masked_mean(error, goes_on)
        return TensorDict(losses)

    def figures(self, data: TensorDictBase, train: TensorDictBase) -> dict[str, float | None]:
        """Errors of reconstruction and prediction, as fractions of the error of always predicting the mean (1).

        Args:
            data: encoded test sequences [R, T].
            train: encoded training sequences, for the mean.
        """
        assert self.decoder is not None and self.predictor is not None, "pre-training switches both on"
        seen, valid = data.get(keys.NORMALIZED), data.get(keys.VALID)
        following = valid[:, :-1] & ~data.get(keys.DONE)[:, :-1, 0]
        mean = feature_means(train.get(keys.NORMALIZED), train.get(keys.VALID))
        belief, actions = data.get((keys.BELIEF, "mean")), one_hot_actions(data.get(keys.ACTION), self.heads)
        later = seen[:, 1:]
        predicted = self.predictor(torch.cat((belief, actions), -1))[:, :-1]
        by_mean = squared_error(mean, later, following)
        return {
            "reconstruction_error": share_of(
                squared_error(self.decoder(belief), seen, valid), squared_error(mean, seen, valid)
            ),
            "prediction_error": share_of(squared_error(predicted, later, following), by_mean),
            "prediction_error_of_copying_the_last": share_of(squared_error(seen[:, :-1], later, following), by_mean),
            "error_of_the_mean": 1.0,
        }


_EMBEDDED, _REMEMBERED = "embedded", "remembered"
