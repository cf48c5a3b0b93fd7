"""Names and shapes of the networks in Stable-Baselines3's policies, by its algorithms."""

from __future__ import annotations

import re
from collections.abc import Iterable

SUPPORTED = (
    "PPO, A2C, DQN, SAC, TD3 and RecurrentPPO models that see a vector, a picture or several of both, and whose "
    "actions are discrete, or continuous ones without use_sde, can be converted"
)
OFF_POLICY = ("DQN", "SAC", "TD3")
DEFAULT_ACTIVATIONS = dict.fromkeys(("PPO", "A2C", "RecurrentPPO"), "tanh") | dict.fromkeys(OFF_POLICY, "relu")
"""Stable-Baselines3's defaults where ``policy_kwargs`` name no activation function."""
SQUASHED = ("SAC", "TD3")
"""Algorithms of continuous actions in -1 to 1 that have two networks of action values."""


_ACTOR_CRITIC: dict[str, tuple[str, ...]] = {
    "policy": ("mlp_extractor.policy_net.", "action_net."),
    "value": ("mlp_extractor.value_net.", "value_net."),
}
_TWINS: dict[str, tuple[str, ...]] = {
    "value": ("critic.qf0.",),
    "second value": ("critic.qf1.",),
    "target value": ("critic_target.qf0.",),
    "second target value": ("critic_target.qf1.",),
}
NETWORKS: dict[str, dict[str, tuple[str, ...]]] = {
    "PPO": _ACTOR_CRITIC,
    "A2C": _ACTOR_CRITIC,
    "RecurrentPPO": _ACTOR_CRITIC,
    "DQN": {"policy": ("q_net.q_net.",), "target policy": ("q_net_target.q_net.",)},
    "SAC": {"policy": ("actor.latent_pi.", "actor.mu."), **_TWINS},
    "TD3": {"policy": ("actor.mu.",), "target policy": ("actor_target.mu.",), **_TWINS},
}
"""Prefixes of the layers of each algorithm's networks. A DQN's only network gives action values."""
EXTRACTORS = ("pi_features_extractor.", "vf_features_extractor.")
"""Names under which an actor-critic's features extractor occurs again."""
_LAYER = r"\.(weight|bias)"
_PICTURES = rf"features_extractor\.(extractors\.[^.]+\.)?(cnn\.[024]|linear\.0){_LAYER}"
_NAMES = {
    "PPO": rf"log_std|(mlp_extractor\.(policy_net|value_net)\.\d+|action_net|value_net){_LAYER}|(pi_|vf_)?{_PICTURES}",
    "DQN": rf"q_net(_target)?\.(q_net\.\d+{_LAYER}|{_PICTURES})",
    "SAC": rf"(actor\.(latent_pi\.\d+|mu|log_std)|critic(_target)?\.qf[01]\.\d+){_LAYER}",
    "TD3": rf"(actor(_target)?\.mu|critic(_target)?\.qf[01])\.\d+{_LAYER}",
}
_NAMES |= {"A2C": _NAMES["PPO"], "RecurrentPPO": rf"{_NAMES['PPO']}|lstm_(actor|critic)\.(weight|bias)_(ih|hh)_l0"}
_FOREIGN = {
    "actor.features_extractor": "a SAC or TD3 with an encoder of pictures for each network, where ours share one",
    "critic.features_extractor": "a SAC or TD3 with an encoder of pictures for each network, where ours share one",
    "features_extractor": "a policy with a features extractor of its own kind",
    "quantile_net": "a QR-DQN model",
    "qf2": "more than two networks of action values (n_critics)",
    "actor.log_std": "a policy that explores by state (use_sde=True)",
    "lstm_actor": "a recurrent policy of several LSTM layers, or of a projection",
    "critic.": "a recurrent policy whose critic has no LSTM (enable_critic_lstm=False)",
    "mlp_extractor.shared_net": "a policy with shared layers, which Stable-Baselines3 dropped in version 1.8",
}
"""Kinds of policies that cannot be converted, by a part of their weights' names."""


def algorithm_of(names: list[str], clips: bool) -> str:
    """Return the algorithm whose policy has weights of these names; ``clips`` tells PPO from A2C."""
    marks = {"q_net.": "DQN", "lstm_actor.": "RecurrentPPO", "actor.log_std": "SAC", "actor.mu.": "TD3"}
    found = (kind for mark, kind in marks.items() if any(name.startswith(mark) for name in names))
    return next(found, "PPO" if clips else "A2C")


def foreign_part(algorithm: str, names: list[str]) -> str | None:
    """Describe the first part of a policy that cannot be converted; None if there is none."""
    for name in names:
        if not re.fullmatch(_NAMES[algorithm], name):
            return next((what for part, what in _FOREIGN.items() if part in name), f"a part called {name}")
    return None


def layer_names(algorithm: str, network: str, names: Iterable[str]) -> list[str]:
    """Return the names of a network's layers, from input to output, among those of a policy's tensors in its order."""
    begins = NETWORKS[algorithm][network]
    return [name.removesuffix(".weight") for name in names if name.startswith(begins) and name.endswith(".weight")]


def hyperparameters(**names: str) -> dict[str, str]:
    """Return the keys of this project's algorithms by Stable-Baselines3's names."""
    return {theirs: f"algorithm.{ours}" for theirs, ours in names.items()}
