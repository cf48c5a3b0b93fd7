"""Pictures of worlds of other libraries for ``docs/worlds_you_bring.md``; MuJoCo's need a machine that can render."""

from __future__ import annotations

import argparse
from contextlib import closing
from pathlib import Path

import torch
from PIL import Image

from envs.libs.gymnasium import VectorGymEnv

FOLDER = Path(__file__).parents[1] / "docs" / "worlds"
HEIGHT, STEPS, SEED = 96, 40, 3
WORLDS = {
    "cart_pole": "CartPole-v1",
    "lunar_lander": "LunarLander-v3",
    "hopper": "Hopper-v5",
    "pong": "ALE/Pong-v5",
    "door_key": "MiniGrid-DoorKey-5x5-v0",
    "breakout": "MinAtar/Breakout-v1",
    "fetch_reach": "FetchReach-v4",
    "highway": "highway-v0",
}
"""Worlds by file name, with their ids."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the names of the worlds."""
    parser.add_argument("names", nargs="*", default=list(WORLDS), help=f"of {', '.join(WORLDS)} (all)")


def run(parsed: argparse.Namespace) -> None:
    """Draw each world after some random steps, and print the errors of those that cannot be drawn."""
    FOLDER.mkdir(exist_ok=True)
    for name, world in WORLDS.items():
        if name not in parsed.names:
            continue
        torch.manual_seed(SEED)
        try:
            with closing(VectorGymEnv(world, 1, render_mode="rgb_array")) as env:
                env.set_seed(SEED)
                env.rollout(STEPS)
                picture = Image.fromarray(env.draw(0))
        except ValueError as error:
            print(error)
            continue
        width = round(picture.width * HEIGHT / picture.height)
        picture.resize((width, HEIGHT), Image.Resampling.LANCZOS).save(FOLDER / f"{name}.png", optimize=True)
