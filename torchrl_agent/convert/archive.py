"""Models saved by Stable-Baselines3, read without executing their content.

A model is a zip archive of tensors (``policy.pth``, and an optimizer's state) and JSON (``data``). Values that JSON
cannot hold are pickled there, beside a readable text; only the text is read here.
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

from torchrl_agent.convert import layout

Layer = tuple[Tensor, Tensor]
"""Weight [out, in] and bias [out]."""
_TENSORS = ("policy.pth", "pytorch_variables.pth")
_OPTIMIZERS = ("policy.optimizer.pth", "actor.optimizer.pth", "critic.optimizer.pth", "ent_coef_optimizer.pth")
_VERSION = "_stable_baselines3_version"
_MEMBERS = ("data", *_TENSORS, *_OPTIMIZERS, _VERSION)


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
    variables: dict[str, Any]
    """Tensors beside the policy, such as SAC's temperature."""
    optimizers: dict[str, dict[str, Any]]
    """States of optimizers by their names, such as ``policy.optimizer``."""

    @property
    def algorithm(self) -> str:
        """``PPO``, ``A2C``, ``DQN``, ``SAC``, ``TD3`` or ``RecurrentPPO``."""
        return layout.algorithm_of(list(self.policy), "clip_range" in self.data)

    @property
    def optimizer(self) -> dict[str, Any]:
        """Options of the first optimizer, such as ``lr``, ``eps`` and ``weight_decay``; empty if there is none."""
        found = next(iter(self.optimizers.values()), {}).get("param_groups") or [{}]
        return dict(found[0])

    @property
    def normalized(self) -> bool:
        """True if the model is known to have been trained behind ``VecNormalize``.

        Only then does it store an original observation; one that learns from a replay always does, so for it this is
        never known.
        """
        return self.algorithm not in layout.OFF_POLICY and self.data.get("_last_original_obs") is not None

    def layers(self, network: str) -> list[Layer]:
        """Return weights and biases of one of the :data:`~torchrl_agent.convert.layout.NETWORKS`, from input to
        output.
        """
        names = layout.layer_names(self.algorithm, network, self.policy)
        return [(self.policy[f"{name}.weight"], self.policy[f"{name}.bias"]) for name in names]

    def hidden_sizes(self, network: str) -> list[int]:
        """Return the widths of the hidden layers of a network."""
        return [weight.shape[0] for weight, _ in self.layers(network)[:-1]]

    @property
    def memories(self) -> list[str]:
        """Prefixes of the LSTMs' names: the policy's, and the critic's if it has its own."""
        return [f"lstm_{part}." for part in ("actor", "critic") if f"lstm_{part}.weight_hh_l0" in self.policy]

    def space(self, name: str) -> str:
        """Return the kind of a space, such as ``Box``; empty if it is unknown."""
        entry = self.data.get(name)
        match = re.search(r"(\w+)'>$", str(entry.get(":type:", "")) if isinstance(entry, dict) else "")
        return match[1] if match else ""

    @property
    def observations(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the observations by name, in the order in which the policy joins them; ``""`` is the name of an
        observation that is the only one.
        """
        space = self.data["observation_space"]
        if self.space("observation_space") != "Dict":
            return {"": _numbers(space.get("_shape"))}
        boxes = r"'([^']+)': Box\([^()]*?(\([\d, ]+\)), \w+\)"
        return {name: _numbers(shape) for name, shape in re.findall(boxes, str(space.get("spaces")))}

    @property
    def embedding_size(self) -> int | None:
        """Size of the features of each picture; None if no network has convolutions."""
        found = [value.shape[0] for name, value in self.policy.items() if name.endswith(".linear.0.weight")]
        return found[0] if found else None

    @property
    def action_size(self) -> int | None:
        """Number of a continuous action's numbers; None for discrete ones."""
        continuous = "log_std" in self.policy or self.algorithm in layout.SQUASHED
        return self.layers("policy")[-1][1].shape[0] if continuous else None

    @property
    def heads(self) -> list[int]:
        """Number of choices of each simultaneous discrete action; empty if actions are continuous."""
        if self.action_size is not None:
            return []
        nvec = self.data["action_space"].get("nvec")
        actions = self.layers("policy")[-1][0].shape[0]
        return [actions] if nvec is None else list(_numbers(nvec))

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


def _numbers(text: object) -> tuple[int, ...]:
    """Whole numbers in a text."""
    return tuple(int(each) for each in re.findall(r"\d+", str(text)))


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


def load_tensors(path: Path, content: bytes, member: str) -> Any:
    """Read what ``torch.save`` wrote, without executing anything.

    Raises:
        ValueError: it is damaged, or wants to execute something.
    """
    try:
        return torch.load(io.BytesIO(content), "cpu", weights_only=True)
    except Exception as error:  # torch.load raises many kinds for damaged or foreign files
        wanted = re.search(r"GLOBAL ([\w.]+)", str(error)) if isinstance(error, pickle.UnpicklingError) else None
        if wanted is not None:
            raise ValueError(
                f"{path} wants to execute {wanted[1]} when its {member} is read, which was not done: weights need "
                "nothing executed, do not use this file."
            ) from None
        reason = " ".join(str(error).split(". ")[0].split())[:120]
        raise ValueError(f"{path} is damaged ({reason}): save the model again.") from None


def read_archive(path: Path) -> Archive:
    """Read a model saved by Stable-Baselines3's ``model.save``.

    Raises:
        ValueError: the file is missing, damaged or not such an archive.
    """
    if not path.is_file():
        raise ValueError(
            f"there is no file {path}: give the path of a model saved by Stable-Baselines3, with its .zip."
        )
    try:
        with zipfile.ZipFile(path) as file:
            parts = {name: file.read(name) for name in _MEMBERS if name in file.namelist()}
        data = json.loads(parts.get("data", b"{}"))
    except Exception as error:  # zipfile and json raise many kinds for damaged or foreign files
        reason = " ".join(str(error).split(". ")[0].split())
        raise ValueError(f"{path} is damaged or no zip archive ({reason}): save the model again.") from None
    loaded = {name: load_tensors(path, parts[name], name) for name in parts if name in (*_TENSORS, *_OPTIMIZERS)}
    policy, variables = (loaded.pop(name, {}) for name in _TENSORS)
    if not (isinstance(data, dict) and data and isinstance(policy, dict) and policy):
        raise ValueError(f"{path} is no model of Stable-Baselines3: it needs the parts data and policy.pth.")
    version = parts.get(_VERSION, b"unknown").decode(errors="replace")
    optimizers = {name.removesuffix(".pth"): state for name, state in loaded.items() if isinstance(state, dict)}
    variables = variables if isinstance(variables, dict) else {}
    return Archive(path, policy, data, version.strip(), variables, optimizers)
