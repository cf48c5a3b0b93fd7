"""Modules of an agent as files of their own: saved after pre-training, loaded into other agents, frozen or not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from torchrl_agent.core.checkpoint import MODULE_FILE, not_finite, versions, write_atomically
from torchrl_agent.core.text import did_you_mean
from torchrl_agent.models.agent import MODULES as BUILT_IN
from torchrl_agent.models.agent import Agent
from torchrl_agent.models.exported import SUFFIX, read_exported
from torchrl_agent.modules.networks import GatedConcat
from torchrl_agent.transforms import RewardScaler, get_statistics, set_statistics

FORMAT = 2
POLICY = "policy"
"""Name of the controller with what stands between it and the modules."""
MODULES = (*(name for name, kind in BUILT_IN.items() if kind.learns_alone), POLICY)
"""Modules that ``torchrl-agent pretrain`` trains, besides those of your own that have a loss; files hold, and
``frozen`` names, any module of an agent.
"""
USES_NORMALIZER = (*(name for name, kind in BUILT_IN.items() if kind.reads_normalized), POLICY)
"""Modules that read normalized observations: the statistics belong to them."""
PREDICT_REWARDS = {name for name, kind in BUILT_IN.items() if kind.predicts_rewards}
"""Modules that predict scaled rewards: their unit belongs to them."""


@dataclass
class PretrainedConfig:
    """Modules to begin with: files of ``torchrl-agent pretrain``, or its folders."""

    perception: str | None = None
    """Pre-trained perception. An exported one (``perception.pt2``) too."""
    world_model: str | None = None
    """Pre-trained world model."""
    social_model: str | None = None
    """Pre-trained social model."""
    manager: str | None = None
    """Pre-trained manager."""
    policy: str | None = None
    """Pre-trained perception and controller."""
    custom_modules: dict[str, str] = field(default_factory=dict)
    """Pre-trained modules of your own, by name."""

    def paths(self) -> dict[str, str]:
        """The given files, by module."""
        built_in = {name: getattr(self, name) for name in (*BUILT_IN, POLICY)}
        return {name: path for name, path in {**built_in, **self.custom_modules}.items() if path is not None}


class ModuleError(ValueError):
    """A module's file is missing, damaged, of another kind or of other sizes."""


@dataclass
class ModuleFile:
    """Content of a module's file.

    Attributes:
        path: file that it was read from.
        module: its name.
        parts: weights by the name of the module that they belong to.
        auxiliary: weights that were trained along, for agents that continue: those of perception's losses, or of a
            policy's critic.
        observations: shapes of observations by key, in order; None if the file does not tell.
        statistics: statistics of normalization, see ``transforms.STATISTICS``.
    """

    path: Path
    module: str
    parts: dict[str, dict[str, Tensor]]
    auxiliary: dict[str, Tensor]
    observations: dict[str, list[int]] | None
    statistics: dict[str, Any]

    @property
    def predicts_rewards(self) -> bool:
        """True if the world model or a critic is in it."""
        return bool(PREDICT_REWARDS & set(self.parts)) or (self.module == POLICY and bool(self.auxiliary))


def agent_modules(agent: Agent) -> dict[str, nn.Module]:
    """Modules of an agent by name; ``policy`` computes logits from the other modules' features."""
    result = {name: module.weights for name, module in agent.agent_modules.items()}
    others = [agent.normalizer, *agent.agent_modules.values()]
    inside = [part for part in agent.encoder if part not in others]
    trunk = nn.ModuleList(part for part in inside if not isinstance(part, GatedConcat))
    policy = nn.ModuleDict({"trunk": trunk, "head": agent.actor_head})
    for join in (part for part in inside if isinstance(part, GatedConcat)):
        policy["join"] = join
    return {**result, "policy": policy}


def reads(agent: Agent, name: str) -> list[str]:
    """Modules in a module's file: itself and, if the agent has them, the modules whose output it was trained with."""
    believes = name != "social_model" or agent.agent_modules[name].believes
    wanted = [*agent.agent_modules, POLICY] if name == POLICY else ["perception"] * believes + [name]
    return [part for part in dict.fromkeys(wanted) if part in agent_modules(agent)]


def load_pretrained(agent: Agent, config: PretrainedConfig, frozen: Iterable[str], load: bool = True) -> None:
    """Load pre-trained modules and freeze the named ones, as an experiment's ``pretrained`` and ``frozen`` request.

    The normalization that a frozen, pre-trained module reads is frozen with it.

    Args:
        load: False if a checkpoint is loaded instead.

    Raises:
        ModuleError: see :func:`load_modules` and :func:`freeze`.
    """
    if load:
        load_modules(agent, config.paths())
    freeze(agent, frozen)
    agent.normalizer.frozen = bool(set(frozen) & set(USES_NORMALIZER)) and has_statistics(agent, config)


def has_statistics(agent: Agent, config: PretrainedConfig) -> bool:
    """True if the normalization comes from a file."""
    return any(set(reads(agent, name)) & set(USES_NORMALIZER) for name in config.paths())


def restore_reward_scale(
    scaler: RewardScaler, agent: Agent, config: PretrainedConfig, frozen: Iterable[str], load: bool = True
) -> None:
    """Let rewards begin in the unit in which a pre-trained world model or critic predicts them, and keep it if the
    world model is frozen.

    Args:
        scaler: scaler of the rewards that the agent will learn from.
        agent: agent that has the model.
        load: False if a checkpoint is loaded instead.
    """
    read = {part for name in config.paths() for part in reads(agent, name)}
    files = [read_module(path) for path in config.paths().values()] if load else []
    sources = [file for file in files if file.predicts_rewards]
    if sources:
        set_statistics(None, scaler, sources[0].statistics)
    scaler.frozen = bool(PREDICT_REWARDS & read) and bool(PREDICT_REWARDS & set(frozen))


def freeze(agent: Agent, names: Iterable[str]) -> None:
    """Freeze the named modules, so that they are no longer trained.

    Raises:
        ModuleError: the agent has no such module; none is frozen then.
    """
    for module in [_find(agent, name) for name in names]:
        module.requires_grad_(False)


def save_module(path: Path, agent: Agent, name: str, scaler: RewardScaler, auxiliary: nn.Module | None = None) -> None:
    """Write the named module, with those it reads, the agent's normalization and versions, atomically.

    Args:
        scaler: scaler of the rewards that it learned from.
        auxiliary: perception's losses or the critic, if they were trained along.
    """
    modules = agent_modules(agent)
    content = {
        "format": FORMAT,
        "module": name,
        "parts": {part: dict(modules[part].state_dict()) for part in reads(agent, name)},
        "auxiliary": {} if auxiliary is None else dict(auxiliary.state_dict()),
        "observations": _observations(agent),
        "statistics": get_statistics(agent.normalizer, scaler),
        "versions": versions(),
    }
    write_atomically(path, lambda temporary: torch.save(content, temporary))


def load_module(agent: Agent, path: Path | str, frozen: bool = False) -> str:
    """Load a pre-trained module, and those it reads, into an agent, and return its name.

    Args:
        path: a file written by :func:`save_module`, or the folder of ``torchrl-agent pretrain``.
        frozen: freeze everything that the file holds.

    Raises:
        ModuleError: the file is foreign, or its sizes are not the agent's; the agent is then unchanged.
    """
    file = read_module(path)
    _load(agent, [file])
    if frozen:
        freeze(agent, file.parts)
        agent.normalizer.frozen |= bool(set(file.parts) & set(USES_NORMALIZER))
    return file.module


def load_modules(agent: Agent, paths: Mapping[str, str | Path]) -> None:
    """Load several pre-trained modules, given by name, into an agent; all of them or, if one does not fit, none.

    Raises:
        ModuleError: see :func:`load_module`; also if a file holds another module than its name says, or if two files
            hold different versions of one module.
    """
    files = []
    for name, path in paths.items():
        _find(agent, name)
        file = read_module(path)
        if file.module != name:
            raise ModuleError(f"{file.path} holds the module {file.module}, not {name}: use pretrained.{file.module}=.")
        files.append(file)
    _load(agent, files)


def read_module(path: Path | str) -> ModuleFile:
    """Read a file (or ``module.pt`` in a folder, or an exported ``perception.pt2``) onto the CPU: tensors and plain
    values, nothing else.
    """
    path = Path(path).expanduser()
    path = path / MODULE_FILE if path.is_dir() else path
    if not path.is_file():
        raise ModuleError(f"there is no module {path}: make one with 'torchrl-agent pretrain MODULE CONFIG'.")
    try:
        exported = path.suffix == SUFFIX
        content = read_exported(path) if exported else torch.load(path, map_location="cpu", weights_only=True)
        if not exported and content["format"] != FORMAT:
            raise ModuleError(f"{path} has format {content['format']} but this version reads {FORMAT}: train it again.")
        names = ("auxiliary", "observations", "statistics")
        file = ModuleFile(path, content["module"], content["parts"], *(content[name] for name in names))
        for part, weights in file.parts.items():
            if (name := not_finite(weights)) is not None:
                raise ModuleError(f"{path} holds NaN or infinity in {part}'s {name}: train it again.")
    except ModuleError:
        raise
    except Exception:  # torch.load raises many kinds for damaged or foreign files
        what, command = "pre-trained module", "pretrain MODULE CONFIG"
        if path.suffix == SUFFIX:
            what, command = "exported perception", "export RUN --module perception"
        raise ModuleError(f"{path} is damaged or no {what}: make one with 'torchrl-agent {command}'.") from None
    return file


def _load(agent: Agent, files: list[ModuleFile]) -> None:
    """Check everything, then change the agent."""
    holder: dict[str, ModuleFile] = {}
    for file in files:
        for part, weights in file.parts.items():
            _check_sizes(agent, file, part)
            first = holder.setdefault(part, file)
            other = first.parts[part]
            if other.keys() != weights.keys() or not all(torch.equal(other[name], weights[name]) for name in other):
                raise ModuleError(
                    f"{first.path} and {file.path} hold different versions of {part}: pre-train the second with "
                    f"pretrained.{part}= of the first and frozen=[{part}], or use one of them alone."
                )
    for file in files:
        if set(file.parts) & set(USES_NORMALIZER):
            set_statistics(agent.normalizer, None, file.statistics)
    for part, file in holder.items():
        _find(agent, part).load_state_dict(file.parts[part])
        for learner in agent.agent_modules["perception"].losses if part == "perception" else ():
            _load_what_fits(learner, file.auxiliary)
        if part == file.module == POLICY:
            _load_what_fits(agent.critic_head, file.auxiliary)
        if part in agent.agent_modules:  # a policy, which comes last, restores the gates it was trained with
            for gate in (each for each in agent.encoder if isinstance(each, GatedConcat)):
                gate.open_gate(agent.agent_modules[part].out_keys[0])  # the controller reads it in full at once


def _load_what_fits(module: nn.Module, weights: dict[str, Tensor]) -> None:
    """Load the weights that the module has, too, in the same shape."""
    own = module.state_dict()
    fits = {key: weights[key] for key in own if key in weights and weights[key].shape == own[key].shape}
    module.load_state_dict({**own, **fits})


def _check_sizes(agent: Agent, file: ModuleFile, part: str) -> None:
    """Raise ModuleError naming the first size that differs between file and agent."""
    mine = _observations(agent)
    if part in USES_NORMALIZER and file.observations is not None and mine != file.observations:
        raise ModuleError(
            f"the {part} of {file.path} reads {_words(file.observations)}, but this world shows {_words(mine)}: "
            "use the world it was pre-trained in."
        )
    fix = f"use the model's sizes in the config.yaml beside {file.path.name}."
    own, theirs = _find(agent, part).state_dict(), file.parts[part]
    for name in [*own, *theirs]:
        there, here = (list(weights[name].shape) if name in weights else "missing" for weights in (theirs, own))
        if there != here:
            raise ModuleError(f"{part}'s {name} is {there} in {file.path} but {here} in this agent: {fix}")


def _find(agent: Agent, name: str) -> nn.Module:
    modules = agent_modules(agent)
    if name in modules:
        return modules[name]
    if name in BUILT_IN:
        switch = {"perception": "model.memory=gru"}
        raise ModuleError(f"this agent has no {name}: use {switch.get(name, f'model.{name}.enabled=true')}.")
    raise ModuleError(f"there is no module {name!r}{did_you_mean(name, modules)}: use one of {', '.join(modules)}.")


def _observations(agent: Agent) -> dict[str, list[int]]:
    pairs = zip(agent.normalizer.in_keys, agent.normalizer.shapes, strict=True)
    return {str(key): list(shape) for key, shape in pairs}


def _words(observations: dict[str, list[int]]) -> str:
    return ", ".join(f"{name} {shape}" for name, shape in observations.items())
