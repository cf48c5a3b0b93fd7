"""What Stable-Baselines3's files hold, read without executing them: models saved by PPO and A2C, and the statistics of
``VecNormalize``.

A model is a zip archive of tensors (``policy.pth``) and JSON (``data``). Whatever is no JSON stands there pickled,
beside a readable text; only the text is read here.
"""

from __future__ import annotations

import io
import json
import pickle
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torchrl_agent.models.networks import ACTIVATIONS
from torchrl_agent.transforms import STATISTICS, read_statistics

HYPERPARAMETERS = {
    "gamma": "ppo.gamma",
    "gae_lambda": "ppo.lmbda",
    "ent_coef": "ppo.entropy_coeff",
    "vf_coef": "ppo.critic_coeff",
    "max_grad_norm": "ppo.max_grad_norm",
    "normalize_advantage": "ppo.normalize_advantage",
    "n_steps": "ppo.rollout_steps",
    "n_envs": "world.num_envs",
    "learning_rate": "ppo.learning_rate.initial",
}
"""Stable-Baselines3's names and ours, for PPO and A2C."""
PPO_HYPERPARAMETERS = {
    "n_epochs": "ppo.num_epochs",
    "clip_range": "ppo.clip_epsilon",
    "clip_range_vf": "ppo.clip_value",
    "target_kl": "ppo.target_kl",
    "batch_size": "ppo.minibatch_size",
}
"""Those that only PPO has."""
SUPPORTED = "PPO and A2C models with MlpPolicy, one observation vector and discrete actions can be converted"
EPSILON = 1e-8
"""What both sides add to a variance."""
_OURS = re.compile(r"(mlp_extractor\.(policy_net|value_net)\.\d+|action_net|value_net)\.(weight|bias)")
_PARTS = ("data", "policy.pth", "_stable_baselines3_version")
_FOREIGN = {
    "features_extractor": "a policy with a features extractor (CnnPolicy, MultiInputPolicy or a custom one)",
    "q_net": "a DQN model",
    "actor.": "an off-policy model",
    "log_std": "a policy of continuous actions",
    "lstm": "a recurrent policy",
    "mlp_extractor.shared_net": "a policy with shared layers, which Stable-Baselines3 dropped in version 1.8",
}
"""What parts of the policy's names give away."""


@dataclass(frozen=True)
class Archive:
    """A saved model."""

    path: Path
    policy: dict[str, Tensor]
    """Weights by name."""
    data: dict[str, Any]
    """Settings by name; those that are no JSON are objects with readable texts."""
    version: str
    """Version of Stable-Baselines3 that wrote it."""

    @property
    def algorithm(self) -> str:
        """``PPO`` or ``A2C``."""
        return "PPO" if "clip_range" in self.data else "A2C"

    @property
    def normalized(self) -> bool:
        """It was trained behind ``VecNormalize``, for then alone it remembers an observation as it was before."""
        return self.data.get("_last_original_obs") is not None

    def layers(self, network: str) -> list[tuple[Tensor, Tensor]]:
        """Weights and biases of the ``policy`` or ``value`` network, from the observation to its output."""
        prefix = f"mlp_extractor.{network}_net."
        hidden = sorted({int(name[len(prefix) :].split(".")[0]) for name in self.policy if name.startswith(prefix)})
        last = "action_net" if network == "policy" else "value_net"
        names = [*(f"{prefix}{index}" for index in hidden), last]
        return [(self.policy[f"{name}.weight"], self.policy[f"{name}.bias"]) for name in names]

    def hidden_sizes(self, network: str) -> list[int]:
        """Widths of the hidden layers of the ``policy`` or ``value`` network."""
        return [weight.shape[0] for weight, _ in self.layers(network)[:-1]]

    @property
    def observation_size(self) -> int:
        """Numbers that the policy sees."""
        return self.layers("policy")[0][0].shape[1]

    @property
    def heads(self) -> list[int]:
        """Number of choices of each action taken at once."""
        nvec = self.data["action_space"].get("nvec")
        actions = self.policy["action_net.weight"].shape[0]
        return [actions] if nvec is None else [int(number) for number in re.findall(r"\d+", str(nvec))]

    def number(self, name: str) -> float | bool | None:
        """A setting that is a number or None, also if it stands there as a constant schedule.

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


def read_archive(path: Path) -> Archive:
    """A model saved by Stable-Baselines3's ``model.save``.

    Raises:
        ValueError: the file is missing, damaged or no such archive, or its policy is of an unsupported kind.
    """
    if not path.is_file():
        raise ValueError(
            f"there is no file {path}: give the path of a model saved by Stable-Baselines3, with its .zip."
        )
    try:
        with zipfile.ZipFile(path) as file:
            parts = {name: file.read(name) for name in _PARTS if name in file.namelist()}
        data = json.loads(parts.get("data", b"{}"))
        policy = torch.load(io.BytesIO(parts["policy.pth"]), "cpu", weights_only=True) if "policy.pth" in parts else {}
    except Exception as error:  # zipfile, json and torch.load raise many kinds for damaged or foreign files
        reason = str(error).strip().split("\n")[0][:120]
        raise ValueError(f"{path} is damaged or no zip archive ({reason}): save the model again.") from None
    if not (isinstance(data, dict) and data and isinstance(policy, dict) and policy):
        raise ValueError(f"{path} is no model of Stable-Baselines3: it needs the parts data and policy.pth.")
    version = parts.get(_PARTS[2], b"unknown").decode(errors="replace")
    archive = Archive(path, policy, data, version.strip())
    _check(archive)
    return archive


def _check(archive: Archive) -> None:
    """Raise ValueError naming what cannot be converted."""
    for name in archive.policy:
        if not _OURS.fullmatch(name):
            found = next((what for part, what in _FOREIGN.items() if part in name), f"a part called {name}")
            raise ValueError(f"{archive.path} holds {found}: {SUPPORTED}.")
    if not {"action_net.weight", "value_net.weight"} <= archive.policy.keys():
        raise ValueError(f"{archive.path} holds a policy without action_net and value_net: {SUPPORTED}.")
    if "clip_range" not in archive.data and "batch_size" in archive.data:  # A2C has neither
        raise ValueError(f"{archive.path} was trained by an algorithm that is neither PPO nor A2C: {SUPPORTED}.")
    observed, chosen = (_space(archive, name) for name in ("observation_space", "action_space"))
    if observed != "Box" or len(archive.data["observation_space"].get("_shape") or [0]) != 1:
        shape = archive.data["observation_space"].get("_shape")
        raise ValueError(f"{archive.path} sees a {observed} of shape {shape}: {SUPPORTED}.")
    if chosen not in ("Discrete", "MultiDiscrete") or sum(archive.heads) != archive.policy["action_net.bias"].shape[0]:
        raise ValueError(f"{archive.path} acts in a space of kind {chosen}: {SUPPORTED}.")
    extractor = _policy_text(archive, "features_extractor_class")
    if extractor is not None and "FlattenExtractor" not in extractor:
        raise ValueError(f"{archive.path} has the features extractor {extractor}: {SUPPORTED}.")
    if archive.hidden_sizes("policy") != archive.hidden_sizes("value"):
        raise ValueError(
            f"{archive.path} has hidden layers {archive.hidden_sizes('policy')} for the policy but "
            f"{archive.hidden_sizes('value')} for the value: ours have the same for both, train with such a net_arch."
        )
    if not archive.hidden_sizes("policy"):
        raise ValueError(f"{archive.path} has no hidden layer (net_arch=[]): ours have at least one.")


def _space(archive: Archive, name: str) -> str:
    """Kind of a space, such as ``Box``."""
    entry = archive.data.get(name)
    text = str(entry.get(":type:", "")) if isinstance(entry, dict) else ""
    found = re.search(r"(\w+)'>$", text)
    if found is None:
        raise ValueError(f"{archive.path} does not say what its {name} is: save the model again with its environment.")
    return found[1]


def _policy_text(archive: Archive, name: str) -> str | None:
    """The readable text of one of ``policy_kwargs``; None if it was not given."""
    arguments = archive.data.get("policy_kwargs") or {}
    return str(arguments[name]) if name in arguments else None


def find_activation(archive: Archive, asked: str | None) -> tuple[str, str]:
    """Name of the activation function, and how it is known.

    Raises:
        ValueError: it is none of ours, or contradicts what was asked for.
    """
    text = _policy_text(archive, "activation_fn")
    known = {kind.__name__: name for name, kind in ACTIVATIONS.items()}
    found = None if text is None else re.search(r"torch\.nn\.modules\.activation\.(\w+)'>$", text)
    if text is None:
        default = "Stable-Baselines3's default, as policy_kwargs name no other: assumed"
        return (asked, "as asked for") if asked else ("tanh", default)
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


# --- VecNormalize -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Normalization:
    """What ``VecNormalize`` does, with statistics by our names (``transforms.STATISTICS``) where it does it."""

    statistics: dict[str, Any]
    observations: bool = False
    rewards: bool = False
    clip_observations: float = 10.0
    clip_rewards: float = 10.0
    gamma: float | None = None


def read_normalization(path: Path, trust: bool) -> Normalization:
    """Statistics of a file: our JSON, or a pickle written by ``VecNormalize.save`` if it is trusted.

    Raises:
        ValueError: the file is missing, damaged or not trusted, or normalises in another way than we do.
    """
    if not path.is_file():
        raise ValueError(f"there is no statistics file {path}: give what VecNormalize.save wrote, or our JSON.")
    if path.suffix == ".json":
        found = read_statistics(path)
        if missing := [name for name in STATISTICS if name not in found]:
            raise ValueError(f"{path} lacks {', '.join(missing)}: give all of {', '.join(STATISTICS)}.")
        seen, rewarded = (found.get(name) != 0 for name in ("obs_count", "ret_count"))  # 0: never counted, so unused
        return Normalization(found, seen, rewarded)
    if not trust:
        raise ValueError(
            f"{path} is a pickle, and reading a pickle executes whatever its author put into it: add --trust if you "
            "know where it comes from, or give its numbers as JSON (docs/stable_baselines3.md)."
        )
    return _understand(path, _unpickle(path))


def _unpickle(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            return pickle.load(file)  # the user has consented
    except ImportError as error:
        raise ValueError(
            f'{path} needs {error.name or "a package"} to be read: pip install "torchrl_agent[bench]".'
        ) from None
    except Exception as error:  # a damaged pickle raises anything
        reason = " ".join(str(error).split())[:120]
        raise ValueError(f"{path} is no file of VecNormalize ({reason}): give what VecNormalize.save wrote.") from None


def _understand(path: Path, found: Any) -> Normalization:
    if type(found).__name__ != "VecNormalize":
        raise ValueError(f"{path} holds a {type(found).__name__}: give what VecNormalize.save wrote.")
    if (found.norm_obs or found.norm_reward) and found.epsilon != EPSILON:
        raise ValueError(f"{path} was made with epsilon={found.epsilon}: only {EPSILON}, the default, is supported.")
    if found.norm_obs and isinstance(found.obs_rms, dict):
        raise ValueError(f"{path} normalises several observations: {SUPPORTED}.")
    parts = {"obs": found.obs_rms if found.norm_obs else None, "ret": found.ret_rms if found.norm_reward else None}
    statistics = {
        f"{name}_{field}": torch.as_tensor(getattr(running, field)).tolist()
        for name, running in parts.items()
        if running is not None
        for field in ("mean", "var", "count")
    }
    return Normalization(
        statistics, found.norm_obs, found.norm_reward, found.clip_obs, found.clip_reward, float(found.gamma)
    )
