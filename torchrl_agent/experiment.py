"""Experiment: everything that decides a training run, loaded from YAML and overrides, checked, saved."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from hydra.errors import HydraException
from hydra.utils import instantiate
from omegaconf import MISSING, DictConfig, OmegaConf
from tensordict.utils import NestedKey
from torchrl.envs import Compose, EnvBase, RewardSum, StepCounter, Transform, TransformedEnv

from torchrl_agent import keys, ranks
from torchrl_agent.capacity import size_limit
from torchrl_agent.character import CharacterConfig, CharacterReward
from torchrl_agent.composition import CONFIGS as CONFIGS
from torchrl_agent.composition import SCHEMA, compose_experiment, config_file
from torchrl_agent.composition import config_names as config_names
from torchrl_agent.hidden import check_envs
from torchrl_agent.learner import Learner
from torchrl_agent.models.agent import Agent, ModelConfig
from torchrl_agent.models.memory import try_scan
from torchrl_agent.models.specs import agent_group, group_spec
from torchrl_agent.population.config import LeagueConfig, PopulationConfig, check_league, check_population
from torchrl_agent.population.league import make_seats
from torchrl_agent.population.league_learner import LeagueLearner
from torchrl_agent.population.learner import PopulationLearner
from torchrl_agent.population.seats import Seats
from torchrl_agent.processes.actors import Actor, ActorsLearner, RemoteCollector
from torchrl_agent.processes.spread import SpreadLearner, check_spread
from torchrl_agent.ranges import FRAMES, SEED, check_ranges
from torchrl_agent.training.acceleration import AccelerationConfig
from torchrl_agent.training.actor_critic import ActorCritic, OnPolicyActorCritic
from torchrl_agent.training.algorithm import Algorithm
from torchrl_agent.training.algorithms import find_algorithm
from torchrl_agent.training.checkpoint import code_digest
from torchrl_agent.training.governor import GovernorConfig
from torchrl_agent.training.lag import LaggingPlayer
from torchrl_agent.training.ppo import PPOConfig
from torchrl_agent.training.precision import without_float8
from torchrl_agent.training.pretrained import PretrainedConfig, begin_with
from torchrl_agent.training.rollout import RolloutCollector, episode_entries
from torchrl_agent.training.sharding import shard
from torchrl_agent.transforms import PotentialShaping, TeamReturn, check_shaping
from torchrl_agent.world_check import check_world

check_envs()

POLICIES = ("mlp", "gru", "lstm", "cnn")


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
    """Solved return: mean return from which on the world counts as solved, for ``torchrl-agent bench skill`` and
    ``stop_at_mark``."""
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
    resume: str = "never"
    """never, or auto: go on if the run's folder has a checkpoint of this very configuration, else begin."""
    shard: bool = False
    """Where several processes train together, each holds its part of every large linear layer only (FSDP2)."""
    rank_timeout: float = 600.0
    """Seconds that a process waits for the others, where several train together; their compilation counts."""
    spread_agents: bool = False
    """Where several processes train together, each acts and learns for its share of the agents of every world, and all
    step all worlds; else each has its share of the worlds."""
    final_evaluation: bool = True
    """Evaluate the final policy for summary.json."""


@dataclass
class Experiment:
    """A training run. Every field can be given in YAML or as an override, such as ``algorithm.gamma=0.995``."""

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
    algorithm: Any = field(default_factory=PPOConfig)
    """Hyper-parameters of the algorithm that ``_target_`` names: an ``AlgorithmConfig`` with the keys of its own."""
    tuned: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Hyper-parameters that suit this world, by the algorithm's name; what stands under ``algorithm`` is stronger."""
    acceleration: AccelerationConfig = field(default_factory=AccelerationConfig)
    governor: GovernorConfig = field(default_factory=GovernorConfig)
    population: PopulationConfig = field(default_factory=PopulationConfig)
    league: LeagueConfig = field(default_factory=LeagueConfig)
    shaping: ShapingConfig = field(default_factory=ShapingConfig)
    character: CharacterConfig = field(default_factory=CharacterConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    run: RunConfig = field(default_factory=RunConfig)

    @staticmethod
    def load(config: str | Path, *overrides: str) -> Experiment:
        """The experiment of a configuration: a name of :func:`config_names`, or the path of a YAML file.

        Raises:
            ValueError: unknown configuration or key, or a value of the wrong type; the sentence names it.
        """
        path = config_file(config)
        file = compose_experiment(path, overrides, _schema())
        if file.on_cuda and resolve_device(file.device).type == "cuda":
            file = compose_experiment(path, [*file.overrides_on_cuda(path), *overrides], _schema())
        file.check()
        return file.experiment()

    @property
    def algorithm_class(self) -> type[Algorithm]:
        """What learns."""
        return find_algorithm(self.algorithm._target_)

    def to_yaml(self) -> str:
        """The full resolved configuration; a file with this text can be loaded again."""
        body = OmegaConf.to_yaml(OmegaConf.structured(self))
        return f"defaults: [{SCHEMA}, _self_]\n{body}"

    def settings(self) -> dict[str, Any]:
        """What the run is made from, by dotted names, such as ``algorithm.gamma``, and ``algorithm`` by its short name:
        without ``run`` and ``tuned``; lists are text, and what is null is left out.
        """
        plain = dataclasses.asdict(self)
        del plain["run"], plain["tuned"], plain["algorithm"]["_target_"]
        return {"algorithm": self.algorithm_class.name, **_flat(plain)}

    def hash(self) -> str:
        """Short hash of the configuration, whatever its run's name."""
        return hashlib.sha256(dataclasses.replace(self, run=RunConfig()).to_yaml().encode()).hexdigest()[:16]

    def make_world(self, evaluation: bool = False, num_envs: int | None = None, seed: int | None = None) -> EnvBase:
        """The training world, or the evaluation world (``evaluation.world`` applied), seeded, on the device."""
        arguments = {**self.world, **(self.evaluation.world if evaluation else {})}
        if num_envs is not None:
            arguments["num_envs"] = num_envs
        env = make_world(arguments, resolve_device(self.device), self.seed if seed is None else seed)
        return env if evaluation else self._rewarded(env)

    def _rewarded(self, env: EnvBase) -> EnvBase:
        """The world with what training adds to its rewards."""
        parts: list[Transform] = []
        if self.shaping.scale:
            (potential,) = _shown(env, keys.POTENTIAL, but="shaping.scale is set but the world shows no potential")
            gamma = self.algorithm.gamma if self.shaping.gamma is None else self.shaping.gamma
            parts.append(PotentialShaping(potential, env.reward_key, gamma, self.shaping.scale))
        if self.character.scale:
            places = (keys.DRIVES, keys.CHARACTER)
            drives, character = _shown(env, *places, but="character.scale is set but the world shows no drives")
            parts.append(CharacterReward(drives, character, env.reward_key, self.character.scale))
        if not parts:
            return env
        kind = getattr(env, "transformed_class", TransformedEnv)
        return kind(env, Compose(*parts))

    def make_learner(self, pretrained: bool = True) -> Learner:
        """World, agent and algorithm put together, seeded.

        Args:
            pretrained: begin with the pre-trained modules; a checkpoint that follows replaces them anyway.

        Raises:
            ValueError: a configuration that cannot work.
        """
        self._seed_everything()
        self.check_ranks()
        if ranks.size() > 1 and self.plays_apart and not self._several():
            raise ValueError(
                "where players lag, one of several processes learns and the others play, which train() and "
                "'torchrl-agent train' share out: use one of them, or algorithm.lag=0 and no impala."
            )
        members = ranks.share(self.population.members, "population.members") if self._several() else 1
        seats = make_seats(self.league, members, self._num_envs()) if self.league.enabled else None
        env = self.make_world(num_envs=self._worlds(seats))
        check_world(env)
        env.set_seed(self._take_part(env))  # begin anew what the check has played
        check_shaping(env, self.algorithm.gamma)
        rows = math.prod(group_spec(env).shape) // members if seats is None else seats.members.shape[1]
        if self._several():
            first = ranks.rank() * members
            with ranks.alone():  # no member learns together with another
                algorithms = [
                    self._make_algorithm(env, rows, pretrained, self.seed + first + i) for i in range(members)
                ]
            torch.manual_seed(self.seed)
            rest = (self.seed, self.total_frames, self)
            if seats is not None:
                return LeagueLearner(env, algorithms, self.population, self.league, seats, *rest)
            return PopulationLearner(env, algorithms, self.population, *rest)
        if self._spreads:
            algorithm = self._make_algorithm(env, rows // ranks.size(), pretrained)
            return SpreadLearner(env, algorithm.agent, algorithm, self.total_frames, self)
        algorithm = self._make_algorithm(env, rows, pretrained)
        governor = self.governor if self.governor.enabled else None
        return Learner(
            env, algorithm.agent, algorithm, total_frames=self.total_frames, governor=governor, experiment=self
        )

    def _make_algorithm(self, env: EnvBase, rows: int, pretrained: bool, seed: int | None = None) -> Algorithm:
        """An algorithm with a fresh agent, which begins as that of a run of its own with this seed would."""
        if seed is not None:
            torch.manual_seed(seed)
        agent = self.make_agent(env)
        begin_with(agent, self.pretrained, self.frozen, pretrained)
        acceleration, config, device = self.acceleration, self.algorithm, resolve_device(self.device)
        in_parts = self.run.shard and ranks.size() > 1
        if in_parts:
            shard(agent, device)
            acceleration = dataclasses.replace(acceleration, step=False, update=False)  # layers move in between
        if in_parts or self._several():
            config = dataclasses.replace(config, precision=without_float8(config.precision, device))
        return self.algorithm_class(agent, config, rows, acceleration)

    def make_newborn(self, env: EnvBase, rows: int, seed: int) -> Algorithm:
        """What a member that joins later begins as: the algorithm of an agent made with this seed, whose share of the
        world has so many rows. Random numbers of the run are left alone.
        """
        devices = [env.device] if env.device is not None and env.device.type == "cuda" else []
        with torch.random.fork_rng(devices):
            return self._make_algorithm(env, rows, True, seed)

    def _num_envs(self) -> int:
        worlds = self.world.get("num_envs")
        if not isinstance(worlds, int):
            what = "one of several processes" if ranks.size() > 1 else "a member of a population"
            raise ValueError(f"the world has no num_envs, so it is not known how many {what} plays: say it.")
        return worlds

    def _worlds(self, seats: Seats | None) -> int | None:
        """How many worlds are played in this process, if not as many as the configuration says."""
        if seats is not None:
            return len(seats.player)
        if self.population.members > 1:
            return ranks.share(self.population.members, "population.members") * self._num_envs()
        return None if ranks.size() == 1 or self._spreads else ranks.share(self._num_envs(), "world.num_envs")

    @property
    def _spreads(self) -> bool:
        """Whether ranks share the agents of every world."""
        return self.run.spread_agents and ranks.size() > 1

    def _several(self) -> bool:
        """Whether agents learn side by side."""
        return self.population.members > 1 or self.league.enabled

    @property
    def plays_apart(self) -> bool:
        """Whether of several processes one learns and the others play for it: where the policy that plays is older."""
        return self.algorithm_class.plays_apart or getattr(self.algorithm, "lag", 0) > 0

    def make_learner_of_actors(self, actors: int, pretrained: bool = True) -> ActorsLearner:
        """What learns where so many other processes play; see :meth:`make_learner`."""
        if self.governor.enabled:
            raise ValueError(
                "governor.enabled takes back what actors have played with by then: set governor.enabled=false, or "
                "start one process."
            )
        if self._num_envs() % actors:
            raise ValueError(
                f"world.num_envs={self._num_envs()} does not divide among {actors} actors, as one of {actors + 1} "
                f"processes learns: choose a multiple of {actors}."
            )
        env, algorithm, player = self._make_parts(None, pretrained)
        rest = (algorithm.config.rollout_steps, actors, self.acceleration, algorithm.updater.autocast)
        collector = RemoteCollector(algorithm.agent.attach(env), player, algorithm.agent, *rest)
        return ActorsLearner(
            env, algorithm.agent, algorithm, collector, total_frames=self.total_frames, experiment=self
        )

    def make_actor(self, number: int, actors: int) -> Actor:
        """What plays its share of the worlds for a learner elsewhere; see ``processes/actors.py``."""
        env, algorithm, player = self._make_parts(self._num_envs() // actors, pretrained=False)
        env.set_seed(self.seed + number * env.batch_size[0])  # worlds whose state cannot be sent
        played = algorithm.agent.attach(env)
        rest = (algorithm.config.rollout_steps, self.acceleration, algorithm.updater.autocast, True)
        return Actor(played, player, RolloutCollector(played, player.agent, *rest), number, actors)

    def _make_parts(self, num_envs: int | None, pretrained: bool) -> tuple[EnvBase, ActorCritic, LaggingPlayer]:
        """World, algorithm and who plays, seeded; the algorithm is that of all worlds."""
        self._seed_everything()
        env = self.make_world(num_envs=num_envs)
        check_world(env)
        env.set_seed(self.seed)
        check_shaping(env, self.algorithm.gamma)
        rows = math.prod(group_spec(env).shape) * (1 if num_envs is None else self._num_envs() // num_envs)
        algorithm = self._make_algorithm(env, rows, pretrained)
        assert isinstance(algorithm, ActorCritic) and algorithm.player is not None
        return env, algorithm, algorithm.player

    def _seed_everything(self) -> None:
        if self.threads is not None:
            torch.set_num_threads(self.threads)
        torch.manual_seed(self.seed)
        use_device(self.device)

    def check_ranks(self) -> None:
        """Raise ValueError for what cannot be trained by several ranks, or is not the same on all of them."""
        if ranks.size() == 1:
            return
        if self.league.enabled:
            raise ValueError(
                f"a league cannot be trained by {ranks.size()} processes, as its members learn from games in each "
                "other's worlds: start one process, or set league.enabled=false."
            )
        if self.run.spread_agents and (self._several() or self.plays_apart or self.governor.enabled):
            raise ValueError(
                "run.spread_agents is for a single agent that learns by ppo or a2c without a governor: leave it out."
            )
        if not self.algorithm_class.joins_ranks and not self.plays_apart:
            raise ValueError(
                f"algorithm {self.algorithm_class.name} cannot be trained by {ranks.size()} processes: start one, or "
                "use ppo, a2c or impala."
            )
        if self.run.shard:
            self._check_shards()
        facts = {"configuration": self.hash(), "version of the code": code_digest()}
        ranks.check_alike(
            {**facts, **{f"run.{key}": str(getattr(self.run, key)) for key in ("shard", "spread_agents")}}
        )

    def _check_shards(self) -> None:
        """Raise ValueError for what needs the whole agent in one process."""
        needs = {
            f"algorithm={self.algorithm_class.name}": not issubclass(self.algorithm_class, OnPolicyActorCritic),
            "population.members": self.population.members > 1,
            "algorithm.lag": self.plays_apart,
            "governor.enabled": self.governor.enabled,
            "evaluation.every": self.evaluation.every is not None,
        }
        for name in (name for name, needed in needs.items() if needed):
            raise ValueError(
                f"run.shard is set but {name} needs the whole agent in one process: leave one of them out."
            )

    def _take_part(self, env: EnvBase) -> int:
        """Let worlds be those of this rank in a set of all ranks' worlds; the seed that is theirs."""
        if self._spreads:
            check_spread(env)
        if ranks.size() == 1 or self._spreads:
            return self.seed
        first = ranks.rank() * env.batch_size[0]
        if not hasattr(env, "take_part"):
            return self.seed + first
        env.take_part(first, ranks.size() * env.batch_size[0])
        return self.seed

    def make_agent(self, env: EnvBase) -> Agent:
        """A freshly initialised agent for a world."""
        if self.model.memory != "none":
            try_scan(resolve_device(self.device))
        with size_limit("the agent's networks", "size under model", resolve_device(self.device)):
            return self.algorithm_class.make_agent(env, self.model, self.algorithm)


@dataclass
class ExperimentFile(Experiment):
    """What a file and overrides may say besides: it is resolved when the file is read."""

    algorithm: Any = None
    """A name (ppo, a2c, impala, dqn, sac, or the path of a class: see ``_target_``), or the section."""
    policy: str | None = None
    """A short word for the network: mlp (no memory), gru or lstm (model.memory), cnn (model.perception: pictures)."""
    on_cuda: dict[str, Any] = field(default_factory=dict)
    """Overrides (dotted name: value) for CUDA devices, weaker than those of the command line; those of a file that this
    one begins with are also weaker than what this one says itself.
    """
    ppo: Any = None
    a2c: Any = None
    impala: Any = None
    dqn: Any = None
    """Sections of the last release, read for one more."""

    def overrides_on_cuda(self, path: Path) -> list[str]:
        """Those of ``on_cuda`` that the file itself does not contradict."""
        own = OmegaConf.load(path)
        mine = OmegaConf.select(own, "on_cuda") or {}
        meant = {k: v for k, v in self.on_cuda.items() if k in mine or OmegaConf.select(own, k) is None}
        return [f"{key}={value}" for key, value in meant.items()]

    def check(self) -> None:
        """Raise ValueError for words and numbers that cannot be."""
        check_ranges(self)
        if self.policy not in (None, *POLICIES):
            raise ValueError(f"policy is {self.policy!r}: use one of {', '.join(POLICIES)}.")
        _check(self)

    def experiment(self) -> Experiment:
        """What is left when short words are the settings that they stand for."""
        if self.policy in ("mlp", "cnn"):
            self.model.memory, self.model.perception.enabled = "none", self.policy == "cnn"
        elif self.policy is not None:
            self.model.memory = self.policy
        self._move_planner()
        return Experiment(**{each.name: getattr(self, each.name) for each in dataclasses.fields(Experiment)})

    def _move_planner(self) -> None:
        """Take the planner's settings from where a file of the last release has them."""
        model, planner = self.model.world_model, self.model.planner
        if model.planner is not None:
            planner.enabled = model.planner == "cem"
        settings = {} if model.cem is None else model.cem
        if not isinstance(settings, dict):
            raise ValueError(f"model.world_model.cem is {settings}: set the planner's keys under model.planner.")
        for name, value in settings.items():
            if not hasattr(planner, name):
                raise ValueError(
                    f"model.world_model.cem.{name} is no setting of the planner, model.planner: see its keys."
                )
            setattr(planner, name, value)
        model.planner = model.cem = None


@functools.cache
def _schema() -> DictConfig:
    """What a file may hold. Making it takes a third of a load."""
    return OmegaConf.structured(ExperimentFile)


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


def _shown(env: EnvBase, *names: str, but: str) -> list[NestedKey]:
    """Keys of what a world shows of its agents besides observations."""
    group = agent_group(env)
    places: list[NestedKey] = [name if group is None else (group, name) for name in names]
    if not set(places) <= set(env.observation_spec.keys(True)):
        raise ValueError(f"{but}: use world.{names[0]}=true.")
    return places


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


def _check(experiment: Experiment) -> None:
    """Raise ValueError for words and numbers that cannot be."""
    least = {"total_frames": 1, "seed": 0, "threads": 1}
    for name, bound in least.items():
        value = getattr(experiment, name)
        if value is not None and value < bound:
            raise ValueError(f"{name} is {value}: it must be at least {bound}.")
    _check_evaluation(experiment.evaluation)
    check_population(experiment.population, experiment.total_frames)
    check_league(experiment.league, experiment.population)
    if experiment.shaping.scale and "algorithm.gamma" in experiment.population.genes:
        raise ValueError(
            "algorithm.gamma is a gene, but shaping has one discount for all members: use shaping.scale=0."
        )
    if (experiment.population.members > 1 or experiment.league.enabled) and experiment.governor.enabled:
        raise ValueError(
            "governor.enabled takes back a single agent's collapses: population.evolve=pbt replaces members."
        )
    for name in ("checkpoint_every", "keep_checkpoints"):
        if getattr(experiment.run, name) < 1:
            raise ValueError(f"run.{name} is {getattr(experiment.run, name)}: it must be at least 1.")
    if experiment.run.resume not in ("never", "auto"):
        raise ValueError(f"run.resume is {experiment.run.resume!r}: use never or auto.")
    if not experiment.run.rank_timeout > 0:
        raise ValueError(f"run.rank_timeout is {experiment.run.rank_timeout}: it must be above 0 seconds.")
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
