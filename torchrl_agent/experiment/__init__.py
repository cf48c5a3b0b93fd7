"""Experiment: everything that decides a training run, loaded from YAML and overrides, checked, saved."""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import yaml
from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf._utils import OmegaConfDumper
from torchrl.envs import EnvBase
from typing_extensions import override

from torchrl_agent.algorithms.algorithm import Algorithm
from torchrl_agent.algorithms.ppo import PPOConfig
from torchrl_agent.algorithms.registry import find_algorithm
from torchrl_agent.core.bounds import FRAMES, SEED, any_number, check_ranges, choice, count, number, share, weight
from torchrl_agent.core.devices import resolve_device
from torchrl_agent.core.run_names import check_run_name
from torchrl_agent.core.text import dotted, with_tilde
from torchrl_agent.experiment import build
from torchrl_agent.experiment.compose import SCHEMA, compose_experiment, read_config
from torchrl_agent.models.agent import Agent
from torchrl_agent.models.config import ModelConfig
from torchrl_agent.models.pretrained import PretrainedConfig
from torchrl_agent.optimization.compilation import AccelerationConfig
from torchrl_agent.population.config import LeagueConfig, PopulationConfig, check_league, check_population
from torchrl_agent.training.evaluator import MAX_STEPS
from torchrl_agent.training.governor import GovernorConfig
from torchrl_agent.training.learner import Learner
from torchrl_agent.transforms.character import CharacterConfig
from torchrl_agent.trust.hidden import check_envs

check_envs()

RESUMES = ("never", "auto")
POLICIES = ("mlp", "gru", "lstm", "cnn")


@dataclass
class EvaluationConfig:
    """Evaluation of a policy."""

    episodes: int = count(256)
    """Worlds, each of which plays one episode."""
    seed: int = number(10_000, least=0, most=SEED)
    """Seed of the evaluation worlds."""
    deterministic: bool = True
    """Take the most likely action instead of sampling."""
    max_steps: int = count(MAX_STEPS, FRAMES)
    """Steps after which an evaluation ends, finished or not. For worlds without a time limit: during training it then
    gives no figures, in the end episodes count as far as they have come."""
    mark: float | None = any_number(None)
    """Solved return: mean return that solves the world. ``torchrl-agent bench skill`` and ``stop_at_mark`` read it."""
    every: int | None = count(None, FRAMES)
    """Frames between evaluations during training. None by default. They go into the metrics as ``eval/...`` and choose
    the best checkpoint, by the games of the next seed."""
    stop_at_mark: bool = False
    """End training at the evaluation that reaches ``mark``."""
    world: dict[str, Any] = field(default_factory=dict)
    """Differences from the training world, such as no curriculum."""


@dataclass
class ShapingConfig:
    """Potential-based shaping of training rewards, for worlds that have a potential."""

    scale: float = weight(0.0)
    """Weight of the shaping; 0 for none."""
    gamma: float | None = share(None)
    """Discount factor, by default the learner's. It must be that one."""


@dataclass
class RunConfig:
    """Files of a run, and how it is trained by several processes."""

    folder: str = "runs"
    """Folder that the run's folder is made in."""
    name: str | None = None
    """Name of the run's folder. By default the configuration's name and the time."""
    checkpoint_every: int = count(1_000_000, FRAMES)
    """Frames between checkpoints, at most."""
    checkpoint_minutes: float | None = number(10.0, above=0)
    """Minutes between checkpoints, at most; null for no limit."""
    keep_checkpoints: int = count(3)
    """Newest checkpoints to keep, besides the best."""
    tensorboard: bool = True
    """Write TensorBoard's events beside ``metrics.csv``."""
    record_host: bool = False
    """Name this machine in TensorBoard's files. TensorBoard itself does."""
    wandb: str | None = None
    """Weights & Biases project that gets the metrics. It needs the package wandb."""
    film: bool = True
    """Film the final policy, if the world can be drawn."""
    film_every: int | None = count(None, FRAMES)
    """Frames between films during training; null for none. They are in ``films/``, TensorBoard and W&B."""
    resume: str = choice("never", RESUMES)
    """Resume a stopped run of this name. auto: resume if the run's folder has a checkpoint of this very configuration,
    else begin."""
    shard: bool = False
    """Sharding of large linear layers over processes (FSDP2). Where several train together, each holds its part of
    every such layer only."""
    rank_timeout: float = number(600.0, above=0)
    """Seconds that a process waits for the others. Where several train together; their compilation counts."""
    spread_agents: bool = False
    """Spreading of each world's agents over processes. Where several train together, each acts and learns for its
    fraction of the agents of every world, and all step all worlds; else each has its fraction of the worlds."""
    final_evaluation: bool = True
    """Evaluate the final policy for summary.json."""


@dataclass
class Experiment:
    """A training run. Every field can be given in YAML or as an override, such as ``algorithm.gamma=0.995``."""

    name: str = MISSING
    """Name of the configuration."""
    world: dict[str, Any] = MISSING
    """World: ``_target_`` (class or factory) and its arguments. It is a batched TorchRL environment; ``device`` is
    added."""
    total_frames: int = count(1_000_000, FRAMES)
    """Frames to train for (steps summed over worlds)."""
    seed: int = number(0, least=0, most=SEED)
    """Seed of weights, worlds and actions."""
    device: str = "auto"
    """Device: auto (CUDA if available), cpu, cuda or cuda:N."""
    threads: int | None = count(None)
    """CPU threads; by default PyTorch's choice."""
    model: ModelConfig = field(default_factory=ModelConfig)
    pretrained: PretrainedConfig = field(default_factory=PretrainedConfig)
    frozen: list[str] = field(default_factory=list)
    """Modules that do not learn. They are perception, world_model, social_model, manager, policy, or modules of your
    own."""
    algorithm: Any = field(default_factory=PPOConfig)
    """Hyper-parameters of the algorithm that ``_target_`` names: an ``AlgorithmConfig`` with the keys of its own."""
    tuned: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Hyperparameters that suit this world, by algorithm. What stands under ``algorithm`` is stronger."""
    acceleration: AccelerationConfig = field(default_factory=AccelerationConfig)
    governor: GovernorConfig = field(default_factory=GovernorConfig)
    population: PopulationConfig = field(default_factory=PopulationConfig)
    league: LeagueConfig = field(default_factory=LeagueConfig)
    shaping: ShapingConfig = field(default_factory=ShapingConfig)
    character: CharacterConfig = field(default_factory=CharacterConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    run: RunConfig = field(default_factory=RunConfig)

    @staticmethod
    def load(config: Any, *overrides: str, trust: bool = False) -> Experiment:
        """The experiment of a configuration: a name of ``composition.config_names()``, the path of a YAML file, a world
        by its prefix, such as ``gym:Hopper-v5``, or a world of your own as an object (see ``world_rules.py``).

        Args:
            config: its name or path; or a class or function that makes a world of Gymnasium or TorchRL, or such a
                world, of which copies are made.
            *overrides: changes of it, such as ``seed=1``.
            trust: let the file name code that is not ours (see ``docs/security.md``).

        Raises:
            ValueError: unknown configuration or key, a value of the wrong type, or one that needs trust; the sentence
                names it.
        """
        for each in overrides:
            if not isinstance(each, str):
                raise ValueError(f"{each!r} is no override: give texts KEY=VALUE, such as 'seed=1'.")
        source = read_config(config, trust, overrides)
        file = compose_experiment(source, overrides, ExperimentFile)
        if file.on_cuda and resolve_device(file.device).type == "cuda":
            file = compose_experiment(source, overrides, ExperimentFile, file.overrides_on_cuda(source.content))
        file.check()
        build.check_world_arguments({**file.world, **file.evaluation.world})
        return file.experiment()

    @property
    def algorithm_class(self) -> type[Algorithm]:
        """Class of the algorithm that learns."""
        return find_algorithm(self.algorithm._target_)

    def to_yaml(self) -> str:
        """The full resolved configuration, without the name of the home folder; a file with this text can be loaded
        again.

        Raises:
            ValueError: it holds something that YAML cannot hold.
        """
        plain = with_tilde(dataclasses.asdict(self))
        try:
            body = yaml.dump(plain, Dumper=_Dumper, default_flow_style=False, allow_unicode=True, sort_keys=False)
        except yaml.representer.RepresenterError as error:
            raise ValueError(
                f"the configuration holds {error.args[-1]!r}, which YAML cannot hold: give numbers, texts or lists."
            ) from None
        return f"defaults: [{SCHEMA}, _self_]\n{body}"

    def settings(self) -> dict[str, Any]:
        """Settings of the run by dotted names, such as ``algorithm.gamma``, and ``algorithm`` by its short name:
        without ``run`` and ``tuned``; lists are text, and null values are left out.
        """
        plain = dataclasses.asdict(self)
        del plain["run"], plain["tuned"], plain["algorithm"]["_target_"]
        given = {name: value for name, value in dotted(with_tilde(plain)).items() if value is not None}
        listed = {name: str(value) if isinstance(value, list) else value for name, value in given.items()}
        return {"algorithm": self.algorithm_class.name, **listed}

    def hash(self) -> str:
        """Short hash of the configuration without its ``run`` section."""
        return hashlib.sha256(dataclasses.replace(self, run=RunConfig()).to_yaml().encode()).hexdigest()[:16]

    @property
    def has_members(self) -> bool:
        """True if agents learn side by side: a population or a league."""
        return self.population.members > 1 or self.league.enabled

    @property
    def plays_apart(self) -> bool:
        """True if one of several processes learns and the others collect for it, with an older policy."""
        return self.algorithm_class.plays_apart or getattr(self.algorithm, "lag", 0) > 0

    def make_world(self, evaluation: bool = False, num_envs: int | None = None, seed: int | None = None) -> EnvBase:
        """The training world, or the evaluation world (``evaluation.world`` applied), seeded, on the device."""
        return build.make_world(self, evaluation, num_envs, seed)

    def make_agent(self, env: EnvBase) -> Agent:
        """A freshly initialized agent for a world."""
        return build.make_agent(self, env)

    def make_learner(self, pretrained: bool = True, agent: Agent | None = None) -> Learner:
        """World, agent and algorithm put together, seeded.

        Args:
            pretrained: begin with the pre-trained modules; a checkpoint that follows replaces them anyway.
            agent: the agent to train further instead of a fresh one; it is changed in place.

        Raises:
            ValueError: a configuration that cannot work.
        """
        return build.make_learner(self, pretrained, agent)


@dataclass
class ExperimentFile(Experiment):
    """Keys that a file and overrides may also give: they are resolved when the file is read."""

    algorithm: Any = None
    """A name (ppo, a2c, impala, dqn, sac, or the path of a class: see ``_target_``), or the section."""
    policy: str | None = choice(None, POLICIES)
    """Short name of the network. mlp: no memory; gru, lstm: model.memory; cnn: model.perception, for pictures."""
    on_cuda: dict[str, Any] = field(default_factory=dict)
    """Overrides (dotted name: value) for CUDA devices. Those of the command line are stronger, and those of a file that
    this one begins with are also weaker than what this one says itself.
    """

    def overrides_on_cuda(self, own: DictConfig) -> list[str]:
        """Overrides of ``on_cuda`` that the file's ``own`` content does not contradict."""
        mine = OmegaConf.select(own, "on_cuda") or {}
        meant = {k: v for k, v in self.on_cuda.items() if k in mine or OmegaConf.select(own, k) is None}
        return [f"{key}={value}" for key, value in meant.items()]

    def check(self) -> None:
        """Raise ValueError for values that are out of range or do not fit each other."""
        check_ranges(self)
        _check_evaluation(self.evaluation)
        if self.run.name is not None:
            check_run_name(self.run.name)
        check_population(self.population, self.total_frames)
        check_league(self.league, self.population)
        if self.shaping.scale and "algorithm.gamma" in self.population.genes:
            raise ValueError(
                "algorithm.gamma is a gene, but shaping has one discount for all members: use shaping.scale=0."
            )
        if self.has_members and self.governor.enabled:
            raise ValueError(
                "governor.enabled takes back a single agent's collapses: population.evolve=pbt replaces members."
            )

    def experiment(self) -> Experiment:
        """The experiment, with short words replaced by the settings that they stand for."""
        if self.policy in ("mlp", "cnn"):
            self.model.memory, self.model.perception.enabled = "none", self.policy == "cnn"
        elif self.policy is not None:
            self.model.memory = self.policy
        return Experiment(**{each.name: getattr(self, each.name) for each in dataclasses.fields(Experiment)})


def check_experiment(given: object) -> None:
    """Raise ValueError for anything but an :class:`Experiment`, such as the name of its configuration."""
    if not isinstance(given, Experiment):
        raise ValueError(f"{given!r} is no experiment: give Experiment.load({given!r}).")


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """Writes texts as OmegaConf does, by the fast library where PyYAML was built with it."""

    @override
    def ignore_aliases(self, data: Any) -> bool:
        """True: equal objects are written out each time."""
        return True


_Dumper.add_representer(str, OmegaConfDumper.str_representer)
_Dumper.add_multi_representer(np.floating, lambda dumper, value: dumper.represent_float(float(value)))
_Dumper.add_multi_representer(np.integer, lambda dumper, value: dumper.represent_int(int(value)))


def _check_evaluation(config: EvaluationConfig) -> None:
    if config.stop_at_mark and (config.mark is None or config.every is None):
        raise ValueError(
            "evaluation.stop_at_mark is true: give evaluation.mark, the return to reach, and evaluation.every, the "
            "frames between evaluations."
        )
