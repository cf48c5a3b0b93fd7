"""``torchrl-agent film``: film a run's policy, or watch it in a window."""

from __future__ import annotations

import argparse
from contextlib import closing
from pathlib import Path

from torchrl_agent.cli.arguments import add_acting, add_agent, add_overrides, check_least, run_of
from torchrl_agent.core.run_names import output_of
from torchrl_agent.models.planned_policy import acting_policy
from torchrl_agent.runs.film import film_policy, film_world
from torchrl_agent.runs.live import live_world, play_live
from torchrl_agent.runs.load import load_agent


def add_film(parser: argparse.ArgumentParser) -> None:
    """Add an agent, its way of acting, and the extent of the film."""
    add_agent(parser)
    add_overrides(parser)
    add_acting(parser)
    parser.add_argument(
        "--output", help=".gif, or .mp4 with the extra 'video' (RUN/film.gif; NAME_film.gif of shipped:NAME)"
    )
    parser.add_argument("--live", action="store_true", help="watch an episode in a window, and write no film")
    parser.add_argument("--worlds", type=int, default=1, help="number of worlds side by side")
    parser.add_argument("--steps", type=int, default=900, help="longest film in steps of the game")
    parser.add_argument("--every", type=int, help="draw every Nth step of the game (20 pictures a second)")
    parser.add_argument(
        "--fps", type=float, help="steps of the game per second (what the world names: Arena 60, Town 4)"
    )


def run_film(parsed: argparse.Namespace) -> None:
    """Write the film and print its path, or show an episode live."""
    check_least(parsed, worlds=1, steps=1, every=1)
    run_folder = run_of(parsed)
    overrides = (*parsed.changes, *parsed.overrides)
    experiment, agent = load_agent(run_folder, parsed.device, parsed.checkpoint, overrides)
    if parsed.live:
        with closing(live_world(experiment)) as world:
            played = play_live(
                agent.attach(world), acting_policy(agent), parsed.steps, not parsed.stochastic, parsed.fps
            )
        print(f"{played} steps played")
        return
    world = film_world(experiment, parsed.worlds)
    path = film_policy(
        agent.attach(world),
        acting_policy(agent),
        Path(parsed.output or output_of(run_folder, "film.gif")),
        parsed.steps,
        parsed.every,
        not parsed.stochastic,
        experiment.acceleration,
        parsed.fps,
    )
    print(path)
