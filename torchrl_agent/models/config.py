"""Configuration of the agent's networks, and checks that it can work."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torchrl_agent.core.bounds import check_ranges, choice, number
from torchrl_agent.modules.manager import ManagerConfig
from torchrl_agent.modules.memory import KINDS
from torchrl_agent.modules.networks import ACTIVATIONS
from torchrl_agent.modules.perception import PerceptionConfig
from torchrl_agent.modules.planner import PlannerConfig, check_planner
from torchrl_agent.modules.social_model import SocialModelConfig
from torchrl_agent.modules.world_model import WorldModelConfig


@dataclass
class ModelConfig:
    """Networks of the agent. By default two plain networks; ``memory`` or a module's ``enabled`` add what they name."""

    hidden_sizes: list[int] = field(default_factory=lambda: [256, 128, 64], metadata={"least": 1})
    """Widths of actor's and critic's hidden layers. Without any, both are linear."""
    critic_hidden_sizes: list[int] | None = field(default=None, metadata={"least": 1})
    """Widths of the critic's hidden layers. None: ``hidden_sizes``."""
    activation: str = choice("silu", ACTIVATIONS)
    """Activation function of all networks."""
    layer_norm: bool = False
    """Layer normalization before hidden activations. Of linear layers, and in perception of the embedding and of what
    the memory recalls, whose states stay as they are. Modules and encoders of your own are left alone."""
    shared_trunk: bool = False
    """One network with two heads instead of two."""
    head_layers: int = number(0, least=0)
    """Last hidden layers of each head's own, behind a shared trunk."""
    normalize_observations: bool = True
    """Normalize observations by running statistics. They are kept inside the policy."""
    clip_observations: float = number(10.0, above=0, infinite=True)
    """Observation clipping: largest absolute normalized observation."""
    initial_std: float = number(1.0, above=0)
    """Initial standard deviation of continuous actions. In units of half their range; it is learned."""
    least_probability: float = number(0.0, least=0, most=0.5)
    """Probability floor of each legal value of a discrete action. At most half of what it is where all are equal."""
    memory: str = choice("none", KINDS)
    """Recurrent memory."""
    perception: PerceptionConfig = field(default_factory=PerceptionConfig)
    world_model: WorldModelConfig = field(default_factory=WorldModelConfig)
    social_model: SocialModelConfig = field(default_factory=SocialModelConfig)
    manager: ManagerConfig = field(default_factory=ManagerConfig)
    planner: PlannerConfig = field(default_factory=PlannerConfig)
    auxiliary_fraction: float = number(1.0, above=0, most=1)
    """Fraction of minibatches for the modules' own losses. Perception, world model and social model learn from it."""
    recompute: list[str] = field(default_factory=list)
    """Recomputation (gradient checkpointing) of these parts. Nothing inside their networks is kept for the backward
    pass, which computes it again: actor, critic, or names of modules. Less memory, more time."""
    custom_modules: dict[str, Any] = field(default_factory=dict)
    """Modules of your own, by name. They stand between belief and controller: ``{_target_: ...}`` (see
    ``modules/module.py``)."""
    centralized_critic: bool = False
    """Let the critic see the world's ``state``. The actor never does (CTDE)."""


def critic_sizes(config: ModelConfig, hidden: list[int]) -> list[int]:
    """Widths of the critic's hidden layers, where those of the policy are ``hidden``."""
    return hidden if config.critic_hidden_sizes is None else config.critic_hidden_sizes


def check_model(config: ModelConfig) -> None:
    """Raise ValueError naming the first setting that cannot work."""
    check_ranges(config, "model.")
    _check_networks(config)
    _check_modules(config)
    check_planner(config.planner, config.world_model.enabled)
    _check_dreams(config)


def _check_networks(config: ModelConfig) -> None:
    sizes, own = list(config.hidden_sizes), config.head_layers
    if config.shared_trunk and own >= len(sizes):
        raise ValueError(
            f"model.hidden_sizes is {sizes} and model.head_layers {own}: a shared trunk needs one hidden layer more "
            "than each head has for itself."
        )
    if config.shared_trunk and config.critic_hidden_sizes is not None:
        raise ValueError("model.critic_hidden_sizes is for networks apart: leave it out, or model.shared_trunk=false.")


def _check_modules(config: ModelConfig) -> None:
    modules = [name for name in ("world_model", "social_model", "manager") if getattr(config, name).enabled]
    modules += [f"custom_modules.{name}" for name in config.custom_modules]
    if modules and config.memory == "none" and not config.perception.enabled:
        raise ValueError(
            f"model.{modules[0]} works on beliefs: use model.memory=gru, or model.perception.enabled=true."
        )


def _check_dreams(config: ModelConfig) -> None:
    """Raise ValueError if the policy cannot read the configured futures of the world model."""
    model = config.world_model
    if model.improvement and not model.candidates:
        raise ValueError(
            "model.world_model.improvement compares imagined futures, but model.world_model.candidates is 0: let it "
            "imagine some, at best as many as there are actions."
        )
    if model.predict_others and not (model.enabled and config.social_model.enabled):
        raise ValueError(
            "model.world_model.predict_others dreams of what the social model predicts: use "
            "model.world_model.enabled=true and model.social_model.enabled=true, or leave it out."
        )
