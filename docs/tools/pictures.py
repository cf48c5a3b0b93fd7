"""The pictures of the Arena and of a town in README and guides, drawn by the worlds themselves: ``make pictures``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from PIL import Image, ImageDraw, ImageFont

from envs import ArenaEnv, TownEnv
from envs.arena.picture import viewport

DOCS = Path(__file__).parents[1]
SIZE = (960, 768)
"""Width and height [pixels]: a ship is 27 pixels long then."""
DECISIONS, HOURS = 130, 60
"""What is played before the picture, by the scripted player and by the greedy ones."""
INK, LINE = (236, 240, 248), (150, 160, 182)


def main(folder: Path = DOCS) -> None:
    """Draw all pictures into ``folder``."""
    draw_arena().save(folder / "arena.png", optimize=True)
    draw_town().save(folder / "town.png", optimize=True)


def draw_arena() -> Image.Image:
    """The scripted player's game, with the names of what is seen."""
    env = ArenaEnv(1, seed=3, action_repeat=4)
    _play(env, env.players()["scripted"], DECISIONS)
    picture, ((left, top), scale) = Image.fromarray(env.draw(0, SIZE)), viewport(env.rules, SIZE)
    pen, letters = ImageDraw.Draw(picture), ImageFont.load_default(20)
    for words, things, alive in _named(env.state):
        first = int(alive.float().argmax())
        x, y = left + scale * float(things.x.reshape(-1)[first]), top + scale * float(things.y.reshape(-1)[first])
        aside = 60 if x < SIZE[0] - 200 else -60
        pen.line([(x + aside / 4, y + 14), (x + aside, y + 44)], LINE, 2)
        pen.text((x + aside, y + 44), words, INK, letters, anchor="la" if aside > 0 else "ra")
    return picture


def _named(state: Any) -> list[tuple[str, Any, torch.Tensor]]:
    """(words, things, which of them are alive) of the first world, of what is there."""
    named = [
        ("ship: the agent", state.ship, state.ship.health.reshape(-1) > 0),
        ("spawner", state.spawners, state.spawners.health[:, 0] > 0),
        ("enemy", state.enemies, state.enemies.health[:, 0] > 0),
        ("its shot", state.shots, state.shots.life[:, 0] > 0),
        ("an enemy's shot", state.enemy_shots, state.enemy_shots.life[:, 0] > 0),
    ]
    return [(words, things, alive) for words, things, alive in named if alive.any()]


def draw_town() -> Image.Image:
    """Four agents under fog: the bright window is what agent 0 sees."""
    env = TownEnv(1, level="L6", seed=0)
    _play(env, env.players()["greedy"], HOURS)
    return Image.fromarray(env.draw(0, SIZE))


@torch.no_grad()
def _play(env: Any, player: Any, steps: int) -> None:
    root = env.reset()
    for _ in range(steps):
        _, root = env.step_and_maybe_reset(player(root))


if __name__ == "__main__":
    main()
