"""Models saved by Stable-Baselines3, read without executing their content.

A model is a zip archive of tensors (``policy.pth``) and JSON (``data``). Values that JSON cannot hold are pickled
there, beside a readable text; only the text is read here.
"""

from __future__ import annotations

import io
import json
import pickle
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torchrl_agent.modules.networks import ACTIVATIONS

SUPPORTED = (
    "PPO, A2C, DQN and RecurrentPPO models with MlpPolicy, one observation vector, and discrete actions, or continuous "
    "ones without use_sde, can be converted"
)
DEFAULT_ACTIVATIONS = {"PPO": "tanh", "A2C": "tanh", "DQN": "relu", "RecurrentPPO": "tanh"}
"""Stable-Baselines3's defaults where ``policy_kwargs`` name no activation function."""
_ACTOR_CRITIC = r"log_std|(mlp_extractor\.(policy_net|value_net)\.\d+|action_net|value_net)\.(weight|bias)"
_PARTS_OF = {
    "PPO": re.compile(_ACTOR_CRITIC),
    "A2C": re.compile(_ACTOR_CRITIC),
    "DQN": re.compile(r"q_net(_target)?\.q_net\.\d+\.(weight|bias)"),
    "RecurrentPPO": re.compile(rf"{_ACTOR_CRITIC}|lstm_(actor|critic)\.(weight|bias)_(ih|hh)_l0"),
}
"""Names of the weights in policies that can be converted."""
_FOREIGN = {
    "features_extractor": "a policy with a features extractor (CnnPolicy, MultiInputPolicy or a custom one)",
    "quantile_net": "a QR-DQN model",
    "actor.mu": "an off-policy model of continuous actions",
    "actor.latent": "an off-policy model of continuous actions",
    "lstm_actor": "a recurrent policy of several LSTM layers",
    "critic.": "a recurrent policy whose critic has no LSTM (enable_critic_lstm=False)",
    "mlp_extractor.shared_net": "a policy with shared layers, which Stable-Baselines3 dropped in version 1.8",
}
"""Kinds of policies that cannot be converted, by a part of their weights' names."""
_MEMBERS = ("data", "policy.pth", "_stable_baselines3_version")


@dataclass(frozen=True)
class Archive:
    """A model saved by Stable-Baselines3."""

    path: Path
    policy: dict[str, Tensor]
    """Weights by name."""
    data: dict[str, Any]
    """Settings by name; values that JSON cannot hold are objects with readable texts."""
    version: str
    """Version of Stable-Baselines3 that wrote it."""

    @property
    def algorithm(self) -> str:
        """``PPO``, ``A2C``, ``DQN`` or ``RecurrentPPO``."""
        if any(name.startswith("q_net.") for name in self.policy):
            return "DQN"
        if any(name.startswith("lstm_actor.") for name in self.policy):
            return "RecurrentPPO"
        return "PPO" if "clip_range" in self.data else "A2C"

    @property
    def normalized(self) -> bool:
        """True if the model is known to have been trained behind ``VecNormalize``.

        Only then does it store an original observation; a DQN always does, so for it this is never known.
        """
        return self.algorithm != "DQN" and self.data.get("_last_original_obs") is not None

    def layers(self, network: str) -> list[tuple[Tensor, Tensor]]:
        """Return weights and biases of the ``policy`` or ``value`` network, from input to output; of a DQN both are its
        action values, and there is the ``target`` network.
        """
        if self.algorithm == "DQN":
            name = "q_net_target" if network == "target" else "q_net"
            return [self._layer(layer) for layer in self._numbered(f"{name}.q_net.")]
        last = "action_net" if network == "policy" else "value_net"
        return [self._layer(name) for name in (*self._numbered(f"mlp_extractor.{network}_net."), last)]

    def _numbered(self, prefix: str) -> list[str]:
        numbers = {int(name[len(prefix) :].split(".")[0]) for name in self.policy if name.startswith(prefix)}
        return [f"{prefix}{number}" for number in sorted(numbers)]

    def _layer(self, name: str) -> tuple[Tensor, Tensor]:
        return self.policy[f"{name}.weight"], self.policy[f"{name}.bias"]

    def hidden_sizes(self, network: str) -> list[int]:
        """Return the widths of the hidden layers of the ``policy`` or ``value`` network."""
        return [weight.shape[0] for weight, _ in self.layers(network)[:-1]]

    def memory(self, network: str) -> dict[str, Tensor]:
        """Return the LSTM before the ``policy`` or ``value`` network, by PyTorch's names; empty if there is none."""
        prefix = "lstm_actor." if network == "policy" else "lstm_critic."
        return {name[len(prefix) :]: value for name, value in self.policy.items() if name.startswith(prefix)}

    @property
    def observation_size(self) -> int:
        """Size of the observation vector."""
        memory = self.memory("policy")
        return (memory["weight_ih_l0"] if memory else self.layers("policy")[0][0]).shape[1]

    @property
    def log_std(self) -> Tensor | None:
        """Logarithms of the standard deviations of continuous actions, [D]; None if actions are discrete."""
        return self.policy.get("log_std")

    @property
    def heads(self) -> list[int]:
        """Number of choices of each simultaneous discrete action; empty if actions are continuous."""
        if self.log_std is not None:
            return []
        nvec = self.data["action_space"].get("nvec")
        actions = self.layers("policy")[-1][0].shape[0]
        return [actions] if nvec is None else [int(size) for size in re.findall(r"\d+", str(nvec))]

    def number(self, name: str) -> float | bool | None:
        """Return a setting that is a number or None, also if it is stored as a constant schedule.

        Raises:
            LookupError: there is no such setting, or it cannot be read without executing it.
        """
        value = self.data[name]
        if isinstance(value, dict):
            constant = re.fullmatch(r"ConstantSchedule\(val=([\d.e+-]+)\)", str(value.get("value_schedule")))
            if constant is None:
                raise LookupError(name)
            return float(constant[1])
        if value is not None and not isinstance(value, (bool, int, float)):
            raise LookupError(name)
        return value


@contextmanager
def understanding(path: Path) -> Iterator[None]:
    """Context in which a model is interpreted: any error of unexpected content becomes one sentence that names the
    file.
    """
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, RecursionError, RuntimeError, TypeError, ValueError) as error:
        if isinstance(error, ValueError) and str(path) in str(error):
            raise  # a sentence already
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:120]
        raise ValueError(f"{path} is damaged, it cannot be understood ({reason}): save the model again.") from None


def read_archive(path: Path) -> Archive:
    """Read a model saved by Stable-Baselines3's ``model.save``.

    Raises:
        ValueError: the file is missing, damaged or not such an archive, or its policy is of an unsupported kind.
    """
    if not path.is_file():
        raise ValueError(
            f"there is no file {path}: give the path of a model saved by Stable-Baselines3, with its .zip."
        )
    try:
        with zipfile.ZipFile(path) as file:
            parts = {name: file.read(name) for name in _MEMBERS if name in file.namelist()}
        data = json.loads(parts.get("data", b"{}"))
        policy = torch.load(io.BytesIO(parts["policy.pth"]), "cpu", weights_only=True) if "policy.pth" in parts else {}
    except Exception as error:  # zipfile, json and torch.load raise many kinds for damaged or foreign files
        wanted = re.search(r"GLOBAL ([\w.]+)", str(error)) if isinstance(error, pickle.UnpicklingError) else None
        if wanted is not None:
            raise ValueError(
                f"{path} wants to execute {wanted[1]} when its policy.pth is read, which was not done: weights need "
                "nothing executed, do not use this file."
            ) from None
        reason = " ".join(str(error).split(". ")[0].split())
        raise ValueError(f"{path} is damaged or no zip archive ({reason}): save the model again.") from None
    if not (isinstance(data, dict) and data and isinstance(policy, dict) and policy):
        raise ValueError(f"{path} is no model of Stable-Baselines3: it needs the parts data and policy.pth.")
    version = parts.get(_MEMBERS[2], b"unknown").decode(errors="replace")
    archive = Archive(path, policy, data, version.strip())
    with understanding(path):
        _check_policy(archive)
        _check_shapes(archive)
        _check_spaces(archive)
    return archive


def _check_shapes(archive: Archive) -> None:
    """Raise ValueError unless all numbers are finite and each layer's input size is the previous one's output size."""
    for name, value in archive.policy.items():
        if not value.is_floating_point() or not bool(value.isfinite().all()):
            raise ValueError(f"{archive.path} holds no finite numbers in {name}: save the model again.")
    for network in ("policy", "value", *(["target"] if archive.algorithm == "DQN" else [])):
        memory, width = archive.memory(network), None
        if memory:
            width = memory["weight_hh_l0"].shape[1]
        for weight, bias in archive.layers(network):
            if weight.ndim != 2 or bias.shape != weight.shape[:1] or width not in (None, weight.shape[1]):
                raise ValueError(f"{archive.path} has layers of its {network} that do not fit: save the model again.")
            width = weight.shape[0]


def _check_policy(archive: Archive) -> None:
    """Raise ValueError naming the part of the policy that cannot be converted."""
    for name in archive.policy:
        if not _PARTS_OF[archive.algorithm].fullmatch(name):
            found = next((what for part, what in _FOREIGN.items() if part in name), f"a part called {name}")
            raise ValueError(f"{archive.path} holds {found}: {SUPPORTED}.")
    if archive.algorithm == "A2C" and "batch_size" in archive.data:  # an A2C has none
        raise ValueError(f"{archive.path} was trained by an algorithm that looks like A2C but is not: {SUPPORTED}.")
    extractor = policy_text(archive, "features_extractor_class")
    if extractor is not None and "FlattenExtractor" not in extractor:
        raise ValueError(f"{archive.path} has the features extractor {extractor}: {SUPPORTED}.")
    try:
        other = "target" if archive.algorithm == "DQN" else "value"
        policy, value = (archive.hidden_sizes(network) for network in ("policy", other))
    except (KeyError, ValueError) as error:
        raise ValueError(
            f"{archive.path} holds a policy with a part missing ({error}): save the model again."
        ) from None
    if policy != value:
        raise ValueError(
            f"{archive.path} has hidden layers {policy} for the policy but {value} for the {other}: ours have the same "
            "for both, train with such a net_arch."
        )
    if not policy:
        raise ValueError(f"{archive.path} has no hidden layer (net_arch=[]): ours have at least one.")


def _check_spaces(archive: Archive) -> None:
    """Raise ValueError naming the space that cannot be converted."""
    observed, chosen = (_space(archive, name) for name in ("observation_space", "action_space"))
    shape = archive.data["observation_space"].get("_shape")
    if observed != "Box" or len(re.findall(r"\d+", str(shape))) != 1:
        raise ValueError(f"{archive.path} sees a {observed} of shape {shape}: {SUPPORTED}.")
    actions, log_std = archive.layers("policy")[-1][1].shape, archive.log_std
    if log_std is not None and (log_std.shape != actions or bool(archive.data.get("use_sde"))):
        raise ValueError(f"{archive.path} explores by state (use_sde=True): {SUPPORTED}.")
    fits = chosen == "Box" if log_std is not None else chosen in ("Discrete", "MultiDiscrete")
    if not fits or (log_std is None and sum(archive.heads) != actions[0]):
        raise ValueError(f"{archive.path} acts in a space of kind {chosen}: {SUPPORTED}.")


def _space(archive: Archive, name: str) -> str:
    """Return the kind of a space, such as ``Box``."""
    entry = archive.data.get(name)
    text = str(entry.get(":type:", "")) if isinstance(entry, dict) else ""
    match = re.search(r"(\w+)'>$", text)
    if match is None:
        raise ValueError(f"{archive.path} does not say what its {name} is: save the model again with its environment.")
    return match[1]


def policy_text(archive: Archive, name: str) -> str | None:
    """Return the readable text of one of ``policy_kwargs``; None if it was not given."""
    arguments = archive.data.get("policy_kwargs") or {}
    return str(arguments[name]) if isinstance(arguments, dict) and name in arguments else None


def find_activation(archive: Archive, asked: str | None) -> tuple[str, str]:
    """Return the name of the activation function, and the source of that knowledge.

    Raises:
        ValueError: this project lacks the function, or it contradicts the requested one.
    """
    text = policy_text(archive, "activation_fn")
    known = {kind.__name__: name for name, kind in ACTIVATIONS.items()}
    found = None if text is None else re.search(r"torch\.nn\.modules\.activation\.(\w+)'>$", text)
    if text is None:
        default = "Stable-Baselines3's default, as policy_kwargs name no other: assumed"
        return (asked, "as asked for") if asked else (DEFAULT_ACTIVATIONS[archive.algorithm], default)
    name = known.get(found[1]) if found else None
    if name is None and (found or not asked):
        raise ValueError(
            f"{archive.path} has the activation function {text}: ours are {', '.join(ACTIVATIONS)}"
            f"{'' if found else '; name one of them with --activation if it is the same'}."
        )
    if name is None:
        return str(asked), f"as asked for, policy_kwargs only say {text}"
    if asked not in (None, name):
        raise ValueError(f"{archive.path} was trained with activation {name}, not {asked}: leave --activation out.")
    return name, "named in policy_kwargs"
