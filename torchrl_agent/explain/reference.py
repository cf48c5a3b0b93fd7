"""Reference of a healthy agent, kept in its run: what is usual of the evidence for its modules' errors."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor
from torchrl.envs.utils import ExplorationType, set_exploration_type

from torchrl_agent.core import keys
from torchrl_agent.core.abilities import abilities
from torchrl_agent.core.checkpoint import find_checkpoint, read_json, write_json
from torchrl_agent.experiment import Experiment
from torchrl_agent.explain.episode import Episode
from torchrl_agent.explain.evidence import (
    GOALS,
    SIGHT,
    Probe,
    Steps,
    prediction_errors,
    probed,
    quotients,
    summed,
    with_one,
)
from torchrl_agent.explain.thought import Evidence
from torchrl_agent.models.agent import Agent
from torchrl_agent.models.planned_policy import acting_policy
from torchrl_agent.training.collector import agent_rows

FILE = "reference.json"
VERSION = 1
"""Version of the file's format."""
WORLDS, GAMES, STEPS, SEED = 8, 32, 128, 77
"""Number of games that are looked at, of those that are played for a reference, once with deterministic actions and
once sampled, their steps, and the distance of their seed from that of the evaluation.
"""
USUAL, MARGIN = 0.99, 1.25
"""A limit is this quantile of the evidence, times the margin."""
READABLE = 0.5
"""Least fraction of a number's variance that a probe must read to be used."""
SMALLEST = 1e-3
"""Least deviation of a number that is read."""
RIDGE = 1.0
DIGITS = 5


@dataclass(frozen=True)
class Reference:
    """Usual behavior of a healthy agent: probes of its belief, scales, and usual values and limits of evidence.

    Args:
        checkpoint: name of the checkpoint that was played.
        scale: usual errors of the predicted own state, [K].
        usual: mean of each evidence, by name.
        limits: largest usual value of each evidence, by name.
        unit: the world's reward that is one of the agent's units.
    """

    checkpoint: str
    probes: Mapping[str, Probe]
    scale: Tensor
    usual: Mapping[str, float]
    limits: Mapping[str, float]
    unit: float

    def evidence(self, agent: Agent, steps: Steps) -> dict[str, Tensor]:
        """Return the evidence of every step by name, [R, T]; NaN where there is too little."""
        device = steps.begins.device
        probes = {name: Probe(*(part.to(device) for part in probe)) for name, probe in self.probes.items()}
        found = quotients(agent, steps, probes, self.scale.to(device), self.unit)
        return {name: summed(each, steps.begins) for name, each in found.items()}

    def compared(self, found: Mapping[str, Tensor], row: int, step: int) -> dict[str, Evidence]:
        """Return the evidence of a step, by name, beside what is usual."""
        return {
            name: Evidence(values[row, step].item(), self.usual[name], self.limits[name])
            for name, values in found.items()
            if name in self.limits and not bool(values[row, step].isnan())
        }

    def of_episode(self, agent: Agent, episode: Episode, index: int) -> dict[int, dict[str, Evidence]]:
        """Return the evidence of an agent's steps that an episode has kept, without gaps, by step and name."""
        steps = [step for step in sorted(episode.moments) if step < len(episode.frames[index])]
        moments = [episode.moments[step] for step in steps]
        rows, afters = (
            torch.stack([part[index] for part in parts], 1)
            for parts in zip(*((each.rows, each.afters) for each in moments), strict=True)
        )
        begins = torch.arange(len(steps), device=rows.device).unsqueeze(0) == 0
        found = self.evidence(agent, Steps(rows, afters, begins, torch.zeros_like(begins)))
        return {step: self.compared(found, 0, place) for place, step in enumerate(steps)}


def steps_of(
    experiment: Experiment, agent: Agent, seed: int, sampled: bool = False, most: int = STEPS, worlds: int = WORLDS
) -> Steps:
    """Play games of the evaluation world and return the steps of all agents."""
    mode = ExplorationType.RANDOM if sampled else ExplorationType.DETERMINISTIC
    world = agent.attach(experiment.make_world(evaluation=True, num_envs=worlds, seed=seed))
    with closing(world) as env, torch.no_grad(), set_exploration_type(mode):
        played = env.rollout(most, acting_policy(agent), break_when_any_done=False)
    rows = agent_rows(played.transpose(0, 1), agent.group).transpose(0, 1)
    over = rows[keys.NEXT, keys.DONE].squeeze(-1)
    begins = over.roll(1, 1)
    begins[:, 0] = True
    return Steps(rows.exclude(keys.NEXT), rows[keys.NEXT], begins, over)


def make_reference(experiment: Experiment, agent: Agent, checkpoint: str, unit: float) -> Reference:
    """Play games of the evaluation world and measure what is usual of this agent.

    Raises:
        ValueError: the agent has no perception, whose belief the reference is about.
    """
    if agent.perception is None:
        raise ValueError("this agent is one plain network without modules to diagnose: leave --reference out.")
    seed = experiment.evaluation.seed + SEED
    games = [steps_of(experiment, agent.eval(), seed, sampled, worlds=GAMES) for sampled in (False, True)]
    given = [probed(agent, steps) for steps in games]
    probes = {}
    around = _around(experiment)
    for name in given[0]:
        if around is not None and name not in (GOALS, *(f"{SIGHT}{key}" for key in around)):
            continue
        inputs, targets = (torch.cat(part) for part in zip(*(each[name] for each in given), strict=True))
        if bool((probe := _fit(inputs, targets, 0.0 if name == GOALS else READABLE)).readable.any()):
            probes[name] = probe
    scale = _usual_errors(agent, games, unit)
    draft = Reference(checkpoint, probes, scale, {}, {}, unit)
    found = [draft.evidence(agent, steps) for steps in games]
    usual, limits = {}, {}
    for name in found[0]:
        values = torch.cat([each[name].flatten() for each in found])
        if len(values := values[~values.isnan()]):
            usual[name] = round(values.mean().item(), DIGITS)
            limits[name] = round(MARGIN * values.quantile(USUAL).item(), DIGITS)
    return replace(draft, usual=usual, limits=limits)


def _around(experiment: Experiment) -> tuple[str, ...] | None:
    """Return the observations that show what is around, as the world names them; None if it does not tell."""
    with closing(experiment.make_world(evaluation=True, num_envs=1)) as world:
        around = abilities(world).names().get("around")
    return None if around is None else tuple(around)


def _usual_errors(agent: Agent, games: list[Steps], unit: float) -> Tensor:
    if agent.world_model is None:
        return torch.ones(0)
    errors = torch.cat([prediction_errors(agent, steps, unit)[0].flatten(0, 1) for steps in games])
    return errors.mean(0).clamp_min(0.01)


def _fit(inputs: Tensor, targets: Tensor, share: float = READABLE) -> Probe:
    """Return the ridge regression of targets [R, T, F] on inputs [R, T, D]. A target is readable if a regression on
    half of the agents reads this share of its variance for the other half; with a share of 0 all are that vary.
    """

    def solve(x: Tensor, y: Tensor) -> Tensor:
        x = with_one(x).flatten(0, 1).double()
        return torch.linalg.solve(
            x.T @ x + RIDGE * torch.eye(x.shape[-1], device=x.device), x.T @ y.flatten(0, 1).double()
        ).float()

    mean, deviation = targets.mean((0, 1)), targets.flatten(0, 1).std(0, correction=0)
    half = len(inputs) // 2
    read = with_one(inputs[half:]) @ solve(inputs[:half], targets[:half])
    missed = (read - targets[half:]).square().mean((0, 1)) / targets[half:].flatten(0, 1).var(0).clamp_min(1e-9)
    readable = (deviation > SMALLEST) & ((missed < 1 - share) | (share == 0))
    return Probe(solve(inputs, targets[..., readable]), mean[readable], deviation[readable], readable)


# --- the file --------------------------------------------------------------------------------------------------------


def write_reference(reference: Reference, path: Path) -> Path:
    """Write a reference as JSON and return its path."""
    probes = {
        name: {part: _rounded(value) for part, value in probe._asdict().items()}
        for name, probe in reference.probes.items()
    }
    scale = _rounded(reference.scale)
    write_json(path, {"version": VERSION, **vars(reference), "probes": probes, "scale": scale})
    return path


def _rounded(value: Tensor) -> list:
    return value.tolist() if value.dtype == torch.bool else value.double().round(decimals=DIGITS).tolist()


def find_reference(run: Path, which: str = "last") -> Reference | None:
    """Return the reference that was kept with a run's checkpoint; None if there is none of this checkpoint.

    Raises:
        ValueError: the file is damaged, or of a newer version.
    """
    checkpoint = find_checkpoint(run, which)
    path = checkpoint.parent.parent / FILE
    if not path.is_file():
        return None
    known = read_json(path)
    try:
        if known["version"] > VERSION:
            raise ValueError(
                f"{path} is of version {known['version']}, and this torchrl-agent reads {VERSION}: update it."
            )
        if known.pop("checkpoint") != checkpoint.name:
            return None
        probes = {
            name: Probe(*(torch.tensor(probe[part]) for part in Probe._fields))
            for name, probe in known["probes"].items()
        }
        numbers = {name: {key: float(value) for key, value in known[name].items()} for name in ("usual", "limits")}
        return Reference(checkpoint.name, probes, torch.tensor(known["scale"]), **numbers, unit=float(known["unit"]))
    except (TypeError, KeyError, AttributeError, RuntimeError):
        raise ValueError(
            f"{path} is no reference that can be read: make it anew with 'torchrl-agent evaluate RUN --reference'."
        ) from None
