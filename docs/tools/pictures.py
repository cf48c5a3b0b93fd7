"""Pictures in README and guides, of worlds and, as Chromium shows them, of the pages of minds: ``make pictures``."""

from __future__ import annotations

import io
import math
import re
import shutil
import threading
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from PIL import Image, ImageDraw, ImageFont

from envs import ArenaEnv, TownEnv
from envs.arena.picture import viewport
from envs.toolkit import grid
from envs.town.levels import LEVELS
from torchrl_agent.core.run_names import SHIPPED
from torchrl_agent.labs.lab import record_lab
from torchrl_agent.replay import RecordConfig, game_of, read_record, write_page
from torchrl_agent.replay.watch import Watcher, make_server

DOCS = Path(__file__).parents[1]
SIZE = (960, 768)
"""Width and height of a town [pixels]."""
FIELD, CUT = (1920, 1536), (960, 560)
"""Width and height of the whole Arena, where a ship is 54 pixels long, and of the part that is shown."""
DECISIONS, HOURS, EVENING = 130, 60, 17
"""Steps before a picture, by the scripted and the greedy policies; in the levels until the early evening."""
HEIGHTS = (70, -100, 115, -145, 160)
"""Of names below and above what they name [pixels], from left to right."""
BARS = 62
"""Pixels above and below things up to where the bars of their health are."""
INK, LINE = (236, 240, 248), (150, 160, 182)
WINDOW = {"width": 1240, "height": 1000}
"""Of the browser [pixels]."""
SHADES = 128
"""Colors of a picture of a page."""


def main(folder: Path = DOCS) -> None:
    """Draw all pictures into ``folder``."""
    draw_arena().save(folder / "arena.png", optimize=True)
    draw_town().save(folder / "town.png", optimize=True)
    draw_levels().save(folder / "town_levels.png", optimize=True)


def draw_arena() -> Image.Image:
    """The scripted player's game around its ship, with the names of what is seen."""
    env = ArenaEnv(1, seed=3, action_repeat=4)
    _play(env, env.players()["scripted"], DECISIONS)
    picture, ((left, top), scale) = Image.fromarray(env.draw(0, FIELD)), viewport(env.rules, FIELD)
    places = [(words, left + scale * x, top + scale * y) for words, x, y in _named(env.state)]
    pen, letters = ImageDraw.Draw(picture), ImageFont.load_default(24)
    for (words, x, y), height in zip(sorted(places, key=lambda place: place[1]), HEIGHTS, strict=False):
        begin = math.copysign(min(BARS, abs(height) - 20), height)
        pen.line([(x, y + begin), (x, y + height)], LINE, 2)
        pen.text((x, y + height), words, INK, letters, anchor="mt" if height > 0 else "mb")
    x, y = (sum(place[axis] for place in places) / len(places) for axis in (1, 2))
    corner = [
        round(min(max(at - part / 2, 0), whole - part)) for at, part, whole in zip((x, y), CUT, FIELD, strict=True)
    ]
    return picture.crop((*corner, corner[0] + CUT[0], corner[1] + CUT[1]))


def _named(state: Any) -> list[tuple[str, float, float]]:
    """(words, x, y) of the nearest living thing of each kind to the ship."""
    ship = state.ship
    kinds = {
        "spawner": (state.spawners, state.spawners.health),
        "enemy": (state.enemies, state.enemies.health),
        "its shot": (state.shots, state.shots.life),
        "enemy's shot": (state.enemy_shots, state.enemy_shots.life),
    }
    named = [("ship: the agent", float(ship.x), float(ship.y))]
    for words, (things, left) in kinds.items():
        distance = torch.where(left > 0, torch.hypot(things.x - ship.x, things.y - ship.y), torch.inf)[:, 0]
        nearest = int(distance.nan_to_num(torch.inf).argmin())
        if distance[nearest].isfinite():
            named.append((words, float(things.x[nearest, 0]), float(things.y[nearest, 0])))
    return named


def draw_town() -> Image.Image:
    """Four agents under fog: the bright window is what agent 0 sees."""
    env = TownEnv(1, level="L6", seed=0)
    _play(env, env.players()["greedy"], HOURS)
    return Image.fromarray(env.draw(0, SIZE))


def draw_levels() -> Image.Image:
    """The small levels, each named after the ability that it needs most."""
    levels = sorted(level for level in LEVELS if not re.fullmatch(r"L\d", level))
    towns = [TownEnv(1, level=level, num_agents=4 if level == "false_belief" else 1) for level in levels]
    for town in towns:
        town.rollout(EVENING, town.players()["greedy"])
    return Image.fromarray(grid([town.draw(size=(480, 384)) for town in towns], columns=2))


@torch.no_grad()
def _play(env: Any, player: Any, steps: int) -> None:
    root = env.reset()
    for _ in range(steps):
        _, root = env.step_and_maybe_reset(player(root))


def draw_pages(folder: Path = DOCS) -> None:
    """Draw a replay, a lab, a game and a run in training into ``folder``; they need Playwright and Chromium."""
    from playwright.sync_api import sync_playwright  # an optional package

    watcher = Watcher(SHIPPED / "payday", RecordConfig(ahead=0, steps=24))
    watcher.record_newest()
    server = make_server(watcher, 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with TemporaryDirectory() as scratch, sync_playwright() as playwright:
        page = Path(scratch, "page.html")
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, record, moment in (
            ("replay", read_record(DOCS / "village.json.gz"), "#step=72&agent=2&without=social_model"),
            ("lab", record_lab(1), "#step=12"),
            ("play", game_of("shipped:payday"), ""),
        ):
            address = write_page(record, page).as_uri() + moment
            _shown(browser, address).save(folder / f"{name}.png", optimize=True)
        _shown(browser, f"http://127.0.0.1:{server.server_port}/").save(folder / "watch.png", optimize=True)
    server.shutdown()


def _shown(browser: Any, address: str) -> Image.Image:
    """Screenshot of the page at an address, in few colors."""
    page = browser.new_page(viewport=WINDOW)
    page.goto(address)
    page.wait_for_selector("body[data-ready]")
    for frame in page.frames[1:]:
        frame.wait_for_selector("body[data-ready]")
    picture = Image.open(io.BytesIO(page.screenshot()))
    page.close()
    return picture.convert("RGB").quantize(SHADES, dither=Image.Dither.NONE)


if __name__ == "__main__":
    main()
    draw_pages()
