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
from torchrl_agent.core import ranks
from torchrl_agent.core.abilities import abilities
from torchrl_agent.models.agent import Agent
from torchrl_agent.population.algorithm import MembersAlgorithm
from torchrl_agent.population.config import TRAIT, PopulationConfig
from torchrl_agent.population.evolution import Evolution, EvolutionStep
from torchrl_agent.population.genes import check_genes, numbers_of
from torchrl_agent.population.inheritance import Inheritance, inherit, lr_scales
from torchrl_agent.training.collector import episode_entries, finished_worlds
from torchrl_agent.training.learner import Learner, random_state
from torchrl_agent.training.metrics import EpisodeWindow, Figures, train_metrics, window_size
from torchrl_agent.transforms import get_statistics

logger = logging.getLogger(__name__)


class PopulationLearner(Learner):
    """Members that learn at once, each in an equal part of the worlds, and evolve.

    Frames are counted for each member, as if it were alone.

    Several ranks divide the members among them, with their worlds: gradients stay on their rank, copies are sent. Every
    rank counts the episodes of all members. Methods that show or save a member are called by all ranks.

    Args:
        env: the worlds of all members of this rank.
        algorithm: the algorithm of all members of this rank.
        total_frames: of each member.
        newborn: makes an algorithm like a member's, with an agent made with the given seed, for a child that inherits
            no weights.
        home: member that owns each of all ranks' worlds, int64 [worlds]; by default each has an equal part of them,
            and its own place in their curriculum.
        measures: statistics by which members may be judged; by default all that the world reports.

    Attributes:
        own: the members of this rank, by their numbers.
        evolution: the members' genes and their descent.
        records: latest episodes and metrics of each member.

    Raises:
        ValueError: the worlds, the algorithm or a gene cannot be those of a population.
    """

    algorithm: MembersAlgorithm

    def __init__(
        self,
        env: EnvBase,
        algorithm: MembersAlgorithm,
        config: PopulationConfig,
        seed: int = 0,
        total_frames: int = 1_000_000,
        experiment: Any = None,
        newborn: Callable[[int], Algorithm] | None = None,
        home: Tensor | None = None,
        measures: Sequence[str] | None = None,
    ) -> None:
        count, worlds = algorithm.stack.size, env.batch_size[0]
        self.members = count * ranks.size()
        self.own = slice(ranks.rank() * count, (ranks.rank() + 1) * count)
        measures = list(episode_entries(env)) if measures is None else measures
        if config.evolve != "none" and config.fitness not in measures:
            raise ValueError(
                f"population.fitness is {config.fitness!r}: use a statistic of this world's episodes, "
                f"{', '.join(measures)}."
            )
        traits = {f"{TRAIT}{name}": value for name, value in (abilities(env).traits or {}).items()}
        check_genes(config, algorithm.numbers, traits, has_modules=len(algorithm.template.agent.auxiliary) > 0)
        self.evolution = Evolution(config, {**numbers_of(algorithm.config), **traits}, seed)
        self._first_seed, self._make_newborn = seed + self.members, newborn
        self._write_genes(algorithm)
        if home is None:
            abilities(env).split_curriculum(self.members)
            home = torch.arange(self.members).repeat_interleave(worlds // count)
        self.home = home
        self.inheritance = Inheritance(env, config, self.own)
        self.inheritance.send(env, self.evolution.genes)
        super().__init__(env, algorithm.agent, algorithm, total_frames=total_frames, experiment=experiment)
        self.records = MemberRecords(self.members, window_size(worlds // count))
        self.parts |= {"episodes": self.records, "evolution": self.evolution, "inheritance": self.inheritance}
        self._broken: list[int] = []
        self.best_agent()

    # --- members ------------------------------------------------------------------------------------------------------

    @property
    def member_metrics(self) -> list[dict[str, float]]:
        """Metrics of each member in the last iteration."""
        return self.records.metrics

    def fitness(self) -> Tensor:
        """Fitness of each member, [P]; NaN where it is unknown."""
        return self.evolution.fitness()

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
        return self.algorithm.show(self.best() if member is None else member)

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
    def improve(self, rollout: TensorDict, learning_rate: float) -> dict[str, Tensor]:
        """Learn from a rollout; return diagnostics as scalars on the CPU, means over the members (of updates skipped in
        a row the minimum).
        """
        with ranks.alone():
            of_members = super().improve(rollout, learning_rate)
        mine = torch.stack([value.float().reshape(-1) for value in of_members.values()]).cpu()
        table = torch.cat(ranks.all_gather(mine), 1)
        columns = table.T.tolist()
        self.records.metrics = [dict(zip(of_members, column, strict=True)) for column in columns]
        means = dict(zip(of_members, table.mean(1), strict=True))
        return {**means, "skipped_in_row": table[list(of_members).index("skipped_in_row")].amin()}

    @override
    def log_episodes(self, rollout: TensorDict, finished: dict[str, Tensor]) -> dict[str, float]:
        """Record the members' episodes and update their curricula; return means over the members."""
        return self._log_members(finished, finished_worlds(rollout))

    def _log_members(self, finished: dict[str, Tensor], worlds: Tensor) -> dict[str, float]:
        """The same for episodes [episodes] and the worlds in which they ended."""
        reports, member = [], self.home[worlds]
        for index, window in enumerate(self.records.windows):
            mine = {name: values[member == index] for name, values in finished.items()}
            window.add(mine)
            self.evolution.count(index, mine)
            self.inheritance.count(index, mine)
            stage = abilities(self.env).update_curriculum(mine, index)
            reports.append({**window.metrics(), **{f"curriculum/{name}": value for name, value in stage.items()}})
        learned = [train_metrics(each) for each in self.member_metrics]
        self.records.metrics = [{**report, **each} for report, each in zip(reports, learned, strict=True)]
        return {name: _mean([report[name] for report in reports if name in report]) for name in reports[0]}

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
        self.records.copy(parents)

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

    def member_state(self, member: int) -> dict[str, Any]:
        """Checkpoint from which a member can continue alone, with its worlds reset at its place in the curriculum."""
        shown = self.best_agent(member), self.algorithm.scaler
        agent, scaler = (copy.deepcopy(each.state_dict()) for each in shown)
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
            "episodes": self.records.windows[member].state_dict(),
            "world": None,
            "root": None,
            "curriculum": curricula[member].state_dict() if curricula else None,
            **random_state(self.device),
        }

    def member_statistics(self, member: int) -> dict[str, Any]:
        """Normalization statistics of a member as plain numbers."""
        return get_statistics(self.best_agent(member).normalizer, self.algorithm.scaler)

    @override
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue, with the genes that were saved."""
        super().load_state_dict(state)
        self._write_genes(self.algorithm)


class MemberRecords:
    """Latest episodes of each member, and its metrics of the last iteration.

    Args:
        members: number of members.
        size: number of episodes that are kept of each.
    """

    def __init__(self, members: int, size: int) -> None:
        self.windows = [EpisodeWindow(size) for _ in range(members)]
        self.metrics: list[dict[str, float]] = [{} for _ in range(members)]

    def copy(self, parents: Sequence[int]) -> None:
        """Copy to each member the records of its parent: it is judged by these until it has episodes of its own."""
        self.load_state_dict({name: [each[parent] for parent in parents] for name, each in self.state_dict().items()})

    def state_dict(self) -> dict[str, list]:
        """Tensors and plain values of each member."""
        windows = [window.state_dict() for window in self.windows]
        return {"windows": windows, "metrics": [dict(each) for each in self.metrics]}

    def load_state_dict(self, state: dict[str, list]) -> None:
        """Continue from :meth:`state_dict`."""
        for window, saved in zip(self.windows, state["windows"], strict=True):
            window.load_state_dict(saved)
        self.metrics = [dict(each) for each in state["metrics"]]


def _comparable(value: float | None) -> float:
    return -math.inf if value is None or math.isnan(value) else value


def _mean(values: list[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan
