"""Experiment: everything that decides a training run, loaded from YAML and overrides, checked, saved."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import yaml
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from hydra.utils import instantiate
from omegaconf import II, MISSING, DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from torchrl.envs import Compose, EnvBase, RewardSum, StepCounter, TransformedEnv

from torchrl_agent import keys
from torchrl_agent.capacity import size_limit
from torchrl_agent.hidden import check_envs
from torchrl_agent.models.agent import Agent, ModelConfig
from torchrl_agent.models.memory import try_scan
from torchrl_agent.models.specs import agent_group
from torchrl_agent.ranges import FRAMES, SEED, check_ranges
from torchrl_agent.training.a2c import A2CConfig
from torchrl_agent.training.acceleration import AccelerationConfig
from torchrl_agent.training.algorithm import AlgorithmConfig
from torchrl_agent.training.algorithms import ALGORITHMS
from torchrl_agent.training.dqn import DQNConfig
from torchrl_agent.training.governor import GovernorConfig
from torchrl_agent.training.impala import IMPALAConfig
from torchrl_agent.training.ppo import PPOConfig
from torchrl_agent.training.pretrained import PretrainedConfig
from torchrl_agent.training.rollout import episode_entries
from torchrl_agent.transforms import PotentialShaping, TeamReturn

check_envs()

_INSTALLED = Path(__file__).resolve().parent / "configs"
CONFIGS = _INSTALLED if _INSTALLED.is_dir() else _INSTALLED.parents[1] / "configs"
"""The project's configurations: inside the package where it is installed, beside it in a clone."""
SCHEMA = "experiment_schema"
POLICIES = ("mlp", "gru", "lstm", "cnn")
SAME_DISCOUNT = II("ppo.gamma")
"""The discount belongs to the task: it is the same whatever learns, unless an algorithm's section says otherwise."""


@dataclass
class EvaluationConfig:
    """How a policy is judged."""

    episodes: int = 256
    """Worlds, each of which plays one episode."""
    seed: int = field(default=10_000, metadata=SEED)
    """Seed of the evaluation worlds."""
    deterministic: bool = True
    """Take the most likely action instead of sampling."""
    mark: float | None = None
    """Mean return from which on the world counts as solved, for ``torchrl-agent bench skill`` and ``stop_at_mark``."""
    every: int | None = field(default=None, metadata=FRAMES)
    """Frames between evaluations during training; none by default. They go into the metrics as ``eval/...`` and choose
    the best checkpoint."""
    stop_at_mark: bool = False
    """End training at the first of these evaluations that reaches the mark."""
    world: dict[str, Any] = field(default_factory=dict)
    """What differs from the training world, such as no curriculum."""


@dataclass
class ShapingConfig:
    """Potential-based shaping of training rewards, for worlds that have a potential."""

    scale: float = 0.0
    """Weight; 0 for none."""
    gamma: float | None = None
    """Discount; by default the learner's, and it must be that one."""


@dataclass
class RunConfig:
    """What a run leaves on disk."""

    folder: str = "runs"
    name: str | None = None
    """Name of the run's folder; by default the configuration's name and the time."""
    checkpoint_every: int = field(default=1_000_000, metadata=FRAMES)
    """Frames between checkpoints, at most."""
    checkpoint_minutes: float | None = 10.0
    """Minutes between checkpoints, at most; null for no such limit."""
    keep_checkpoints: int = 3
    """Newest checkpoints to keep, besides the best."""
    tensorboard: bool = True
    wandb: str | None = None
    """Project of Weights & Biases that the metrics are also sent to; needs the package wandb."""
    film: bool = True
    """Film the final policy, if the world can be drawn."""
    final_evaluation: bool = True
    """Evaluate the final policy for summary.json."""


@dataclass
class Experiment:
    """A training run. Every field can be given in YAML or as an override, such as ``ppo.gamma=0.995``."""

    name: str = MISSING
    """Name of the configuration."""
    world: dict[str, Any] = MISSING
    """``_target_``: a batched TorchRL environment's class or factory; the rest are its arguments (``device`` is added).
    """
    total_frames: int = field(default=1_000_000, metadata=FRAMES)
    """Frames to train for (steps summed over worlds)."""
    seed: int = field(default=0, metadata=SEED)
    device: str = "auto"
    """auto (CUDA if there is one), cpu, cuda or cuda:N."""
    threads: int | None = None
    """CPU threads; by default PyTorch's choice."""
    model: ModelConfig = field(default_factory=ModelConfig)
    pretrained: PretrainedConfig = field(default_factory=PretrainedConfig)
    frozen: list[str] = field(default_factory=list)
    """Modules that do not learn: perception, world_model, social_model, policy."""
    algorithm: str = "ppo"
    """ppo, a2c, impala or dqn; the section of that name has its hyper-parameters."""
    policy: str | None = None
    """A short word for the network: mlp (no memory), gru or lstm (model.memory), cnn (model.perception: pictures)."""
    ppo: PPOConfig = field(default_factory=PPOConfig)
    a2c: A2CConfig = field(default_factory=lambda: A2CConfig(gamma=SAME_DISCOUNT))
    impala: IMPALAConfig = field(default_factory=lambda: IMPALAConfig(gamma=SAME_DISCOUNT))
    dqn: DQNConfig = field(default_factory=lambda: DQNConfig(gamma=SAME_DISCOUNT))
    acceleration: AccelerationConfig = field(default_factory=AccelerationConfig)
    governor: GovernorConfig = field(default_factory=GovernorConfig)
    shaping: ShapingConfig = field(default_factory=ShapingConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    run: RunConfig = field(default_factory=RunConfig)
    on_cuda: dict[str, Any] = field(default_factory=dict)
    """Overrides (dotted name: value) for CUDA devices, weaker than those of the command line; those of a file that this
    one begins with are also weaker than what this one says itself.
    """

    @staticmethod
    def load(config: str | Path, *overrides: str) -> Experiment:
        """The experiment of a configuration: a name of :func:`config_names`, or the path of a YAML file.

        Raises:
            ValueError: unknown configuration or key, or a value of the wrong type; the sentence names it.
        """
        experiment = _compose(config, overrides)
        if experiment.on_cuda and resolve_device(experiment.device).type == "cuda":
            own = OmegaConf.load(_config_file(config))
            mine = OmegaConf.select(own, "on_cuda") or {}
            meant = {
                key: value
                for key, value in experiment.on_cuda.items()
                if key in mine or OmegaConf.select(own, key) is None
            }
            experiment = _compose(config, [*(f"{key}={value}" for key, value in meant.items()), *overrides])
        experiment.on_cuda = {}  # resolved now: the stored configuration must not be changed by them again
        _resolve_policy(experiment)
        return experiment

    @property
    def hyperparameters(self) -> AlgorithmConfig:
        """The chosen algorithm's section."""
        return getattr(self, self.algorithm)

    def to_yaml(self) -> str:
        """The full resolved configuration; a file with this text can be loaded again."""
        body = OmegaConf.to_yaml(OmegaConf.structured(self))
        return f"defaults: [{SCHEMA}, _self_]\n{body}"

    def settings(self) -> dict[str, Any]:
        """What the run is made from, by dotted names, such as ``ppo.gamma``: without ``run`` and the other algorithms'
        sections; lists are text, and what is null is left out.
        """
        plain = dataclasses.asdict(self)
        for section in {"run", *ALGORITHMS} - {self.algorithm}:
            plain.pop(section)
        return _flat(plain)

    def hash(self) -> str:
        """Short hash of the configuration, whatever its run's name."""
        return hashlib.sha256(dataclasses.replace(self, run=RunConfig()).to_yaml().encode()).hexdigest()[:16]

    def make_world(self, evaluation: bool = False, num_envs: int | None = None, seed: int | None = None) -> EnvBase:
        """The training world, or the evaluation world (``evaluation.world`` applied), seeded, on the device."""
        arguments = {**self.world, **(self.evaluation.world if evaluation else {})}
        if num_envs is not None:
            arguments["num_envs"] = num_envs
        env = make_world(arguments, resolve_device(self.device), self.seed if seed is None else seed)
        return env if evaluation or not self.shaping.scale else self._shaped(env)

    def _shaped(self, env: EnvBase) -> EnvBase:
        group = agent_group(env)
        potential = keys.POTENTIAL if group is None else (group, keys.POTENTIAL)
        if potential not in env.observation_spec.keys(True):
            raise ValueError("shaping.scale is set but the world shows no potential: use world.potential=true.")
        gamma = self.hyperparameters.gamma if self.shaping.gamma is None else self.shaping.gamma
        kind = getattr(env, "transformed_class", TransformedEnv)
        return kind(env, PotentialShaping(potential, env.reward_key, gamma, self.shaping.scale))

    def make_agent(self, env: EnvBase) -> Agent:
        """A freshly initialised agent for a world."""
        if self.model.memory != "none":
            try_scan(resolve_device(self.device))
        with size_limit("the agent's networks", "size under model", resolve_device(self.device)):
            return ALGORITHMS[self.algorithm].make_agent(env, self.model, self.hyperparameters)


def _flat(values: dict[str, Any], above: str = "") -> dict[str, Any]:
    found = {}
    for name, value in values.items():
        if isinstance(value, dict):
            found.update(_flat(value, f"{above}{name}."))
        elif value is not None:
            found[f"{above}{name}"] = str(value) if isinstance(value, list) else value
    return found


def make_world(arguments: dict[str, Any], device: torch.device, seed: int) -> EnvBase:
    """Build the world ``{"_target_": ..., **arguments}``; worlds that report no episode statistics get TorchRL's.

    Raises:
        ValueError: the target cannot be found, its arguments do not fit, or it is no batched TorchRL environment.
    """
    if "_target_" not in arguments:
        raise ValueError("the world has no _target_: name a class or factory, such as world._target_=envs.ArenaEnv.")
    try:
        with size_limit(f"it, with num_envs={arguments.get('num_envs')},", "world.num_envs", device):
            env = instantiate({**arguments, "device": str(device), "_convert_": "all"})
    except HydraException as error:
        cause = error.__cause__
        if isinstance(cause, ValueError):
            raise ValueError(f"world: {cause}") from None
        reason = " ".join(str(cause or error).split())
        raise ValueError(f"the world {arguments['_target_']} cannot be made: {reason}") from None
    if not isinstance(env, EnvBase) or len(env.batch_size) != 1:
        raise ValueError(f"the world {arguments['_target_']} is not a batched TorchRL environment: give it num_envs.")
    if not episode_entries(env):
        group = agent_group(env)
        env = TransformedEnv(env, Compose(RewardSum(), StepCounter(), *([] if group is None else [TeamReturn(group)])))
    env.set_seed(seed)
    return env


def resolve_device(name: str) -> torch.device:
    """The device meant by ``auto``, ``cpu``, ``cuda`` or ``cuda:N``, if this machine has it."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"device {name!r} is unknown: use auto, cpu, cuda or cuda:N.") from None
    if device.type == "cuda" and (not torch.cuda.is_available() or (device.index or 0) >= torch.cuda.device_count()):
        raise ValueError(f"device {name!r} was asked for but is not there: use device=cpu or device=auto.")
    return device


def use_device(name: str) -> torch.device:
    """:func:`resolve_device`, made the one that CUDA's streams, graphs and kernels mean when they name none; matrix
    products may use TensorFloat-32 there.
    """
    device = resolve_device(name)
    torch.set_float32_matmul_precision("high")
    if device.index is not None and device.type == "cuda":
        torch.cuda.set_device(device)
    return device


def config_names() -> list[str]:
    """Names of the configurations that come with the project."""
    return sorted(path.relative_to(CONFIGS).with_suffix("").as_posix() for path in CONFIGS.rglob("*.yaml"))


def _config_file(config: str | Path) -> Path:
    path = Path(config)
    if path.suffix not in (".yaml", ".yml"):
        path = CONFIGS / f"{config}.yaml"
    if not path.is_file():
        raise ValueError(
            f"there is no configuration {str(config)!r}: use one of {', '.join(config_names())}, or the path of a YAML "
            "file."
        )
    return path


@functools.cache
def _schema() -> DictConfig:
    """What a configuration may hold; Hydra finds it by the name :data:`SCHEMA`. Making it takes a third of a load."""
    schema = OmegaConf.structured(Experiment)
    ConfigStore.instance().store(SCHEMA, schema)
    return schema


def _compose(config: str | Path, overrides: Sequence[str]) -> Experiment:
    schema, path = _schema(), _config_file(config)
    GlobalHydra.instance().clear()
    # a user's file may begin with one of ours: defaults: [arena, _self_]
    ours = f'hydra.searchpath=["file://{CONFIGS.as_posix()}"]'
    try:
        with initialize_config_dir(str(path.resolve().parent), version_base="1.3"):
            loaded = compose(path.stem, [ours, *overrides])
        if OmegaConf.get_type(loaded) is not Experiment:
            raise ValueError(
                f"configuration {path.stem} is not an experiment: begin it with 'defaults: [{SCHEMA}, _self_]'."
            )
        # merging once more refuses keys that a "+key=value" override slipped past the schema
        plain: Any = OmegaConf.to_container(loaded)
        _check_complete(plain)
        experiment: Any = OmegaConf.to_object(OmegaConf.merge(schema, plain))
    except yaml.YAMLError as error:
        raise ValueError(f"{path} is not YAML ({' '.join(str(error).split())}): mend that place.") from None
    except (HydraException, OmegaConfBaseException, OverflowError) as error:
        raise ValueError(f"configuration {path.stem}: {_sentence(error)}") from None
    _check(experiment)
    return experiment


def _check_complete(plain: dict[str, Any]) -> None:
    """Raise ValueError for a key that an override ``~key`` took away: its default would silently come back. (Inside the
    sections Hydra refuses such overrides itself.)
    """
    for each in dataclasses.fields(Experiment):
        if each.name not in plain:
            raise ValueError(f"{each.name} cannot be taken away: give it a value, such as {each.name}=VALUE.")


def _resolve_policy(experiment: Experiment) -> None:
    """Turn the word into the settings that it stands for; the stored configuration has these."""
    word, model = experiment.policy, experiment.model
    if word in ("mlp", "cnn"):
        model.memory, model.perception.enabled = "none", word == "cnn"
    elif word is not None:
        model.memory = word
    experiment.policy = None


def _check(experiment: Experiment) -> None:
    """Raise ValueError for words and numbers that cannot be."""
    check_ranges(experiment)
    if experiment.algorithm not in ALGORITHMS:
        raise ValueError(f"algorithm is {experiment.algorithm!r}: use one of {', '.join(ALGORITHMS)}.")
    if experiment.policy not in (None, *POLICIES):
        raise ValueError(f"policy is {experiment.policy!r}: use one of {', '.join(POLICIES)}.")
    least = {"total_frames": 1, "seed": 0, "threads": 1}
    for name, bound in least.items():
        value = getattr(experiment, name)
        if value is not None and value < bound:
            raise ValueError(f"{name} is {value}: it must be at least {bound}.")
    _check_evaluation(experiment.evaluation)
    for name in ("checkpoint_every", "keep_checkpoints"):
        if getattr(experiment.run, name) < 1:
            raise ValueError(f"run.{name} is {getattr(experiment.run, name)}: it must be at least 1.")
    minutes = experiment.run.checkpoint_minutes
    if minutes is not None and not minutes > 0:
        raise ValueError(f"run.checkpoint_minutes is {minutes}: it must be above 0, or null for no limit.")


def _check_evaluation(config: EvaluationConfig) -> None:
    for name in ("episodes", "every"):
        value = getattr(config, name)
        if value is not None and value < 1:
            raise ValueError(f"evaluation.{name} is {value}: it must be at least 1.")
    if config.stop_at_mark and (config.mark is None or config.every is None):
        raise ValueError(
            "evaluation.stop_at_mark is true: give evaluation.mark, the return to reach, and evaluation.every, the "
            "frames between evaluations."
        )


def _sentence(error: BaseException) -> str:
    """An error of Hydra, with its causes, as one sentence that names the key."""
    parts: list[str] = []
    key = ""
    cause: BaseException | None = error
    while cause is not None:
        text = str(cause)
        found = re.search(r"full_key: (\S+)", text)
        key = key or (found[1] if found else "")
        lines = [line.strip() for line in text.splitlines() if line.strip() and not line.strip().endswith(":")]
        part = lines[0].split("To append")[0].strip().rstrip(".") if lines else ""
        parts += [part] if part and part not in parts else []
        cause = cause.__cause__
    sentence = ": ".join(parts)
    for section in dataclasses.fields(Experiment):  # a section replaced by something else is named by its class only
        key = key or (section.name if str(section.type).endswith("Config") and str(section.type) in sentence else "")
    where = f" (key {key})" if key not in sentence else ""
    return f"{sentence}{where}; see 'torchrl-agent configs NAME' for the keys."
