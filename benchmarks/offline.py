"""Policies learned from recordings of a mixture of players alone: cloning beside advantage-weighted regression, over
seeds. What was measured is kept in a file, and a study that was stopped continues there.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch

from torchrl_agent import Experiment
from torchrl_agent.core.checkpoint import read_json, write_json
from torchrl_agent.core.progress import Progress
from torchrl_agent.core.tables import aligned
from torchrl_agent.experiment.judging import evaluate
from torchrl_agent.models.agent import Agent
from torchrl_agent.pretrain import PretrainConfig, learn, make_updater, prepare
from torchrl_agent.pretrain.data import choose_players
from torchrl_agent.pretrain.lessons import Best
from torchrl_agent.training.evaluator import evaluate_policy, summarize

EAGER = "acceleration={step: false, advantages: false, update: false, cudagraphs: false}"


class Mixture(NamedTuple):
    """Players of a world whose recordings are learned from."""

    overrides: tuple[str, ...]
    players: tuple[str, ...]
    frames: int
    updates: int
    temperature: float = 0.5


MIXTURES = {
    "arena": Mixture(
        (
            *("world.num_envs=64", "algorithm.rollout_steps=64", "world.desynchronize=false", "world.curriculum=null"),
            "evaluation.max_steps=150",
        ),
        ("scripted", "random"),
        8_192,
        200,
    ),
    "town": Mixture(("world.num_envs=32", "algorithm.rollout_steps=64"), ("greedy", "random"), 8_192, 300),
    "growth": Mixture(
        ("world.num_envs=60", "algorithm.rollout_steps=64", "world.desynchronize=false", "policy=lstm"),
        ("two", "one", "heuristic", "wait", "random"),
        3_840,
        400,
    ),
}
"""By the name of the configuration."""
WAYS = ("cloning", "regression")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add worlds, seeds, episodes, and the file of what was measured."""
    parser.add_argument("--worlds", nargs="+", default=["arena"], choices=list(MIXTURES), help="configurations (arena)")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], help="seeds (0 1 2)")
    parser.add_argument("--episodes", type=int, default=64, help="evaluation episodes of each policy (64)")
    parser.add_argument("--kept", default="runs/offline.json", help="file of what was measured (runs/offline.json)")


def run(parsed: argparse.Namespace) -> dict[str, Any]:
    """Measure what is not in the file yet, and print the figures."""
    path = Path(parsed.kept)
    kept: dict[str, Any] = read_json(path) or {}
    cells = [(world, seed) for world in parsed.worlds for seed in parsed.seeds]
    for world, seed in Progress(len(cells), "seed").over(cells):
        name = f"{world} {seed} {parsed.episodes}"
        if name not in kept:
            kept[name] = measure(world, seed, parsed.episodes)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_json(path, kept)
    rows = [kept[f"{world} {seed} {parsed.episodes}"] for world, seed in cells]
    print(table(rows))
    return {"seeds": parsed.seeds, "episodes": parsed.episodes, "rows": rows}


def measure(world: str, seed: int, episodes: int) -> dict[str, Any]:
    """Learn from the same recording by each way; return mean returns of sampled actions, and those of the players."""
    mixture = MIXTURES[world]
    experiment = Experiment.load(world, *mixture.overrides, f"seed={seed}", EAGER, "threads=1", "device=cpu")
    experiment.evaluation.episodes = episodes
    result: dict[str, Any] = {"world": world, "seed": seed}
    with TemporaryDirectory() as folder:
        recording = Path(folder) / "recording"
        for way in WAYS:
            agent = _learned(experiment, mixture, way, recording)
            result[way] = evaluate(experiment, agent, deterministic=False)["return_mean"]
            result[f"{way}, deterministic"] = evaluate(experiment, agent, deterministic=True)["return_mean"]
    result["players"] = {name: _play(experiment, name) for name in mixture.players}
    return result


def _learned(experiment: Experiment, mixture: Mixture, way: str, recording: Path) -> Agent:
    """Learn from the recording, which the first way makes; return the agent with the best weights."""
    config = PretrainConfig(
        mixture.frames,
        mixture.updates,
        players=list(mixture.players),
        temperature=None if way == "cloning" else mixture.temperature,
        record=None if recording.exists() else str(recording),
        data=[str(recording)] if recording.exists() else None,
    )
    lesson, data = prepare("policy", experiment, config)
    best = Best(lesson, lesson.validate(data.validation))
    for update, _, validation in learn(lesson, make_updater(lesson, config.learning_rate, False), data, config):
        best.consider(update, validation)
    best.restore()
    return lesson.agent


@torch.no_grad()
def _play(experiment: Experiment, name: str) -> float:
    """Return the mean return of a player on the evaluation worlds."""
    judged = experiment.evaluation
    env = experiment.make_world(evaluation=True, num_envs=judged.episodes, seed=judged.seed)
    player = choose_players(env, [name], imitate=True)[name]
    return summarize(evaluate_policy(player, env, max_steps=judged.max_steps))["return_mean"]


def table(rows: list[dict[str, Any]]) -> str:
    """Return the figures as lines of text: each seed, and the mean of its players."""
    ways = [*WAYS, *(f"{way}, deterministic" for way in WAYS)]
    lines = [["world", "seed", *ways, "best player", "mean of players"]]
    for row in rows:
        players = row["players"].values()
        cells = [*(row[way] for way in ways), max(players), statistics.mean(players)]
        lines.append([row["world"], str(row["seed"]), *(f"{cell:.2f}" for cell in cells)])
    return "\n".join(aligned(lines))
