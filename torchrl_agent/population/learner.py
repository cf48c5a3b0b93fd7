"""Learner of a population: several agents at once in one batch of worlds."""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor
from torchrl.envs import EnvBase
from typing_extensions import override

from torchrl_agent.algorithms.algorithm import Algorithm
from torchrl_agent.core import keys, ranks
from torchrl_agent.core.abilities import abilities
from torchrl_agent.models.agent import Agent
from torchrl_agent.population.agent import Member
from torchrl_agent.population.algorithm import MembersAlgorithm
from torchrl_agent.population.config import TRAIT, PopulationConfig
from torchrl_agent.population.evolution import Evolution, EvolutionStep
from torchrl_agent.population.genes import check_genes, numbers_of
from torchrl_agent.population.inheritance import Inheritance, inherit, lr_scales
from torchrl_agent.population.stack import tensors_of
from torchrl_agent.training.collector import finished_worlds
from torchrl_agent.training.learner import Learner, random_state
from torchrl_agent.training.metrics import EpisodeWindow, Figures, train_metrics
from torchrl_agent.transforms import get_statistics

logger = logging.getLogger(__name__)


class PopulationLearner(Learner):
    """Members that learn at once, each in an equal part of the worlds, and evolve.

    Frames are counted for each member, as if it were alone.

    Several ranks divide the members among them, with their worlds: gradients stay on their rank, copies are sent. Every
    rank counts the episodes of all members. Methods that show or save a member are called by all ranks.

    Args:
        env: the worlds of all members of this rank.
        algorithms: one per member of this rank, with its fresh agent and for its part of the worlds.
        total_frames: of each member.
        newborn: makes an algorithm like these, with an agent made with the given seed, for a child that inherits no
            weights.

    Attributes:
        own: the members of this rank, by their numbers.
        evolution: the members' genes and their descent.
        member_metrics: metrics of each member in the last iteration.
        home: member that owns each of all ranks' worlds, int64 [worlds].

    Raises:
        ValueError: the worlds, the algorithm or a gene cannot be those of a population.
    """

    algorithm: MembersAlgorithm

    def __init__(
        self,
        env: EnvBase,
        algorithms: Sequence[Algorithm],
        config: PopulationConfig,
        seed: int = 0,
        total_frames: int = 1_000_000,
        experiment: Any = None,
        newborn: Callable[[int], Algorithm] | None = None,
    ) -> None:
        self.members = len(algorithms) * ranks.size()
        self.own = slice(ranks.rank() * len(algorithms), (ranks.rank() + 1) * len(algorithms))
        algorithm = MembersAlgorithm(algorithms)
        traits = {f"{TRAIT}{name}": value for name, value in (abilities(env).traits or {}).items()}
        check_genes(config, algorithm.numbers, traits, has_modules=len(algorithm.template.agent.auxiliary) > 0)
        self.evolution = Evolution(config, {**numbers_of(algorithm.config), **traits}, seed)
        self._first_seed, self._make_newborn = seed + self.members, newborn
        self._write_genes(algorithm)
        self._assign_worlds(env, algorithm)
        self.inheritance = Inheritance(env, config, self.own)
        self.inheritance.send(env, self.evolution.genes)
        # mypy sees an Agent here; of it only what MembersAgent has is asked for
        super().__init__(env, algorithm.agent, algorithm, total_frames=total_frames, experiment=experiment)  # type: ignore[arg-type]
        if config.evolve != "none" and config.fitness not in self.measures():
            raise ValueError(
                f"population.fitness is {config.fitness!r}: use a statistic of this world's episodes, "
                f"{', '.join(self.measures())}."
            )
        size = max(100, self.num_envs // len(algorithms))
        self.windows = [EpisodeWindow(size) for _ in range(self.members)]
        self.member_metrics: list[dict[str, float]] = [{} for _ in range(self.members)]
        self.home = torch.arange(self.members).repeat_interleave(self.num_envs // len(algorithms))
        self._since_step = torch.zeros(2, self.members, dtype=torch.float64)
        """Sum of the fitness of episodes since the last evolution step, and their number."""
        self._broken: list[int] = []
        self._shown: Member = copy.deepcopy(Member(algorithms[0]))
        self.best_agent()

    def _assign_worlds(self, env: EnvBase, algorithm: MembersAlgorithm) -> None:
        """Assign worlds to members: each acts in its own part of the worlds, at its own place in their curriculum."""
        abilities(env).split_curriculum(self.members)

    # --- members ------------------------------------------------------------------------------------------------------

    def measures(self) -> list[str]:
        """Statistics by which members may be judged."""
        return list(self.collector.statistics)

    def fitness(self) -> Tensor:
        """Mean fitness of each member's episodes since the last evolution step, [P]; NaN where too few finished."""
        total, count = self._since_step
        known = count >= self.evolution.config.least_episodes
        return torch.where(known, total / count.clamp_min(1), math.nan)

    def best(self) -> int:
        """Number of the best member: by its curriculum, then by its latest episodes' returns."""
        scores = [
            (metrics.get("curriculum/stage", 0.0), _comparable(metrics.get("rollout/ep_rew_mean")))
            for metrics in self.member_metrics
        ]
        return max(range(self.members), key=scores.__getitem__)

    @override
    def best_agent(self, member: int | None = None) -> Agent:
        """A member as an agent of its own, the best one if none is named; the same object at every call."""
        number = self.best() if member is None else member
        owner, place = divmod(number, self.algorithm.stack.size)
        if owner == ranks.rank():
            self.algorithm.stack.show(place, self._shown)
        ranks.broadcast(tensors_of(self._shown).values(), owner)
        return self._shown.agent

    @override
    def statistics(self, member: int | None = None) -> dict[str, Any]:
        """Normalization statistics of a member, the best one if none is named, as plain numbers."""
        agent = self.best_agent(member)
        return get_statistics(agent.normalizer, self._shown.scaler)

    @override
    def tolerates_nonfinite(self, rollout: TensorDict) -> bool:
        """True if at least one member wrote only finite numbers. The others skip their updates from such frames,
        and evolution may replace them.
        """
        written = [rollout.get(key) for key in self.collector.policy.out_keys if key in rollout.keys(True)]
        finite = [self._of_members(value.isfinite()) for value in written if value.is_floating_point()]
        sound = chain.from_iterable(ranks.all_gather(torch.stack(finite).all(0).tolist()))
        broken = [index for index, is_sound in enumerate(sound) if not is_sound]
        if broken != self._broken:
            self._broken = broken
            logger.warning("the policies of members %s are not finite: they learn no more until replaced", broken)
        return len(broken) < self.members

    def _of_members(self, flags: Tensor) -> Tensor:
        """True for members of which all flags, bool [T, N, ...], in a rollout are true, bool [P]."""
        if self.learning is not None:
            flags = flags.reshape(len(flags), -1, *flags.shape[3:])[:, self.learning]
        return flags.reshape(len(flags), self.algorithm.stack.size, -1).all(-1).all(0)

    # --- parts of an iteration ----------------------------------------------------------------------------------------

    @override
    def collect(self) -> TensorDict:
        """The next rollout, of this rank's members."""
        with ranks.dealing("members"):
            return super().collect()

    @override
    def improve(self, rollout: TensorDict, learning_rate: float) -> dict[str, Tensor]:
        """Learn from a rollout; return diagnostics as scalars on the CPU, means over the members (of updates skipped in
        a row the minimum).
        """
        with ranks.alone():
            of_members = super().improve(rollout, learning_rate)
        mine = torch.stack([value.float().reshape(-1) for value in of_members.values()]).cpu()
        table = torch.cat(ranks.all_gather(mine), 1)
        columns = table.T.tolist()
        self.member_metrics = [dict(zip(of_members, column, strict=True)) for column in columns]
        means = dict(zip(of_members, table.mean(1), strict=True))
        return {**means, "skipped_in_row": table[list(of_members).index("skipped_in_row")].amin()}

    @override
    def log_episodes(self, rollout: TensorDict, finished: dict[str, Tensor]) -> dict[str, float]:
        """Record the members' episodes and update their curricula; return means over the members."""
        return self._log_members(finished, finished_worlds(rollout))

    def _log_members(self, finished: dict[str, Tensor], worlds: Tensor) -> dict[str, float]:
        """The same for episodes [episodes] and the worlds in which they ended."""
        reports, member = [], self.home[worlds]
        for index, window in enumerate(self.windows):
            mine = {name: values[member == index] for name, values in finished.items()}
            window.add(mine)
            self._count_fitness(index, mine)
            self.inheritance.count(index, mine)
            stage = abilities(self.env).update_curriculum(mine, index)
            reports.append({**window.metrics(), **{f"curriculum/{name}": value for name, value in stage.items()}})
        learned = [train_metrics(each) for each in self.member_metrics]
        self.member_metrics = [{**report, **each} for report, each in zip(reports, learned, strict=True)]
        return {name: _mean([report[name] for report in reports if name in report]) for name in reports[0]}

    def _count_fitness(self, member: int, finished: dict[str, Tensor]) -> None:
        values = finished.get(self.evolution.config.fitness)
        if values is None:
            return
        whole = finished.get(keys.EPISODE_COMPLETE, torch.ones_like(values)) > 0
        self._since_step[0, member] += values[whole].double().sum()
        self._since_step[1, member] += whole.sum()

    @override
    def end_iteration(self, metrics: dict[str, float], updates: Figures) -> dict[str, float]:
        """Make an evolution step if one is due; return metrics of the population."""
        returns = [each.get("rollout/ep_rew_mean", math.nan) for each in self.member_metrics]
        known = [value for value in returns if not math.isnan(value)] or [math.nan]
        found = {"population/return_best": max(known), "population/return_worst": min(known)}
        if self.evolution.is_due(self.frames):
            step = self.evolution.step(self.frames, ranks.first(self.fitness))  # machines may round otherwise
            self._apply_step(step)
        found |= {
            "population/evolution_steps": float(len(self.evolution.steps)),
            "population/copies": float(self.evolution.births),
            "population/founders": float(len(self.evolution.founders.unique())),
            "population/diversity": self.evolution.diversity(),
        }
        for name, values in self.evolution.genes.items():
            extent = {"mean": values.mean(), "low": values.min(), "high": values.max()}
            found |= {f"genes/{name}_{what}": float(each) for what, each in extent.items()}
        return found

    def _apply_step(self, step: EvolutionStep) -> None:
        """Apply an evolution step to the rows: weights, statistics, optimizer, curricula; the worlds go on."""
        config = self.evolution.config
        how = config.family.inherit if config.evolve == "genetic" else "best"
        inherit(self.algorithm, step, how, self._newborn, self.own)
        self._write_genes(self.algorithm)
        self.inheritance.bequeath(step)
        self.inheritance.send(self.env, step.after)
        parents = step.parents[:, 0].tolist()
        abilities(self.env).copy_curricula(parents)
        self._since_step.zero_()
        played = [window.state_dict() for window in self.windows]
        for window, parent in zip(self.windows, parents, strict=True):
            window.load_state_dict(played[parent])  # it is judged by these until it has episodes of its own
        self.member_metrics = [dict(self.member_metrics[parent]) for parent in parents]

    def _newborn(self, child: int) -> Algorithm:
        """Algorithm of a child with fresh weights, with another seed for every birth of the run."""
        if self._make_newborn is None:
            raise ValueError(
                "population.family.inherit is fresh, which needs an experiment: make the learner from one."
            )
        with_it = self.evolution.steps[-1].children
        return self._make_newborn(self._first_seed + self.evolution.births - int(with_it[child:].sum()))

    def _write_genes(self, algorithm: MembersAlgorithm) -> None:
        for name, values in self.evolution.genes.items():
            if name in algorithm.numbers:
                algorithm.numbers[name].copy_(values[self.own])
        algorithm.write_numbers()
        steps = self.evolution.steps
        algorithm.lr_scale.copy_(lr_scales(steps[-1] if steps else None, self.evolution.config)[self.own])

    # --- saving -------------------------------------------------------------------------------------------------------

    @override
    def state_dict(self) -> dict[str, Any]:
        """All members; besides, ``agent`` and ``reward_scaler`` are the best one's, as those of a single run."""
        state = super().state_dict()
        return {**state, "algorithm": {**state["algorithm"], "reward_scaler": self._shown.scaler.state_dict()}}

    def member_state(self, member: int) -> dict[str, Any]:
        """Checkpoint from which a member can continue alone, with its worlds reset at its place in the curriculum."""
        agent, scaler = (copy.deepcopy(each.state_dict()) for each in (self.best_agent(member), self._shown.scaler))
        curricula = abilities(self.env).curricula
        owner, place = divmod(member, self.algorithm.stack.size)
        optimizer = ranks.from_one(owner, lambda: self.algorithm.optimizer_state_of(place))
        algorithm = {**optimizer, "reward_scaler": scaler}
        return {
            "agent": agent,
            "algorithm": {**algorithm, "name": self.algorithm.template.name},
            "replay": None,
            "governor": None,
            "frames": self.frames,
            "number": self.number,
            "episodes": self.windows[member].state_dict(),
            "world": None,
            "root": None,
            "curriculum": curricula[member].state_dict() if curricula else None,
            **random_state(self.device),
        }

    @override
    def bookkeeping(self) -> dict[str, Any]:
        """State of episode statistics and evolution."""
        return {
            "episodes": [window.state_dict() for window in self.windows],
            "since_step": self._since_step.clone(),
            "member_metrics": self.member_metrics,
            "evolution": self.evolution.state_dict(),
            "inheritance": self.inheritance.state_dict(),
        }

    @override
    def load_bookkeeping(self, state: dict[str, Any]) -> None:
        """Continue what :meth:`bookkeeping` kept."""
        for window, saved in zip(self.windows, state["episodes"], strict=True):
            window.load_state_dict(saved)
        self._since_step.copy_(state["since_step"])
        self.member_metrics = state["member_metrics"]
        self.evolution.load_state_dict(state["evolution"])
        self.inheritance.load_state_dict(state["inheritance"])
        self._write_genes(self.algorithm)

    @override
    def load_agent(self, state: dict[str, Any]) -> None:
        """Do nothing: the algorithm loads the members."""


def _comparable(value: float | None) -> float:
    return -math.inf if value is None or math.isnan(value) else value


def _mean(values: list[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan
