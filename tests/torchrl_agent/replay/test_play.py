"""Games for a person: the page's drawing is the world's own, and its records are replayed."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from torchrl.envs import GymEnv

from envs import ArenaEnv, DuelEnv, TownEnv
from envs.toolkit.drawing import hexadecimal
from envs.town.panel import kind_color, meter_color
from torchrl_agent import cli
from torchrl_agent import replay as room
from torchrl_agent.export.game import world_record
from torchrl_agent.replay import as_page, game_of
from torchrl_agent.replay.play import _game

NODE = shutil.which("node")
HERE = Path(room.__file__).parent


@pytest.fixture(scope="module")
def duel():
    return game_of("shipped:duel")


def scene_in_node(env):
    """The scene that the page draws of a world's present record."""
    given = json.dumps([env.marks(), world_record(env)])
    script = f"{(HERE / 'marks.js').read_text()}; console.log(JSON.stringify(sceneOf(...{given})))"
    done = subprocess.run([NODE, "-"], input=script, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def centers(scene, kind):
    """Colors and places of the shapes of a kind, in the order of the drawing."""
    return [[shape[2], *shape[1]] for shape in scene["shapes"] if shape[0] == kind]


def places(scene):
    """Colors and widths of the places that are drawn, by their cells: what is drawn last is seen."""
    corner, cell = scene["grid"]["corner"], scene["grid"]["cell"]
    outlines = [shape for shape in scene["shapes"] if shape[0] == "polygon"]
    middles = [[sum(shape[1][axis::2]) * 2 / len(shape[1]) for axis in (0, 1)] for shape in outlines]
    return {
        tuple(int((at - start) // cell) for at, start in zip(middle, corner, strict=True)): shape[2:5]
        for middle, shape in zip(middles, outlines, strict=True)
    }


def assert_near(ours, theirs):
    """The same colors, at places that differ by rounding at most."""
    assert [color for color, *_ in ours] == [color for color, *_ in theirs]
    for one, other in zip(ours, theirs, strict=True):
        assert one[1:] == pytest.approx(other[1:], abs=0.11)


@pytest.mark.skipif(NODE is None, reason="Node, which runs the page's scripts, is not installed")
@pytest.mark.parametrize("make", [lambda: ArenaEnv(1, seed=3), lambda: DuelEnv(1, seed=3)], ids=["arena", "duel"])
def test_marks_draw_what_the_picture_shows(make):
    env = make()
    env.reset()
    torch.manual_seed(0)
    env.rollout(60, break_when_any_done=False)
    ours, picture = scene_in_node(env), env.scene(0)
    assert (ours["size"], ours["ground"]) == (picture["size"], picture["ground"])
    assert len(centers(ours, "disc")) > 1
    assert_near(sorted(centers(ours, "disc")), sorted(centers(picture, "disc")))
    assert_near(centers(ours, "polygon")[-1:], centers(picture, "polygon")[-1:])  # the ship, turned


@pytest.mark.skipif(NODE is None, reason="Node, which runs the page's scripts, is not installed")
@pytest.mark.parametrize("hour", [2, 12])
def test_a_town_is_drawn_as_in_its_picture_with_what_can_be_pointed_at(hour):
    env = TownEnv(1, seed=3, level="L6", num_agents=3)
    env.reset()
    env.rollout(hour)
    ours, picture = scene_in_node(env), env.scene(0)
    assert ours["agents"] == [list(map(int, place)) for place in picture["agents"]]
    assert ours["places"] == picture["places"]
    assert {open for *_, open in ours["places"]} == {True, False}
    assert ours["reach"] == picture["reach"]
    assert ours["grid"]["columns"] == picture["grid"]["columns"]
    assert ours["grid"]["corner"] == pytest.approx(picture["grid"]["corner"], abs=0.1)
    assert places(ours) == places(picture)
    assert {color for color, *_ in centers(ours, "disc")} < {color for color, *_ in centers(picture, "disc")}


def test_one_palette_is_in_pictures_replays_and_games(village):
    rules = TownEnv(1, level="L2").rules
    legend, marks = village["names"]["legend"], TownEnv(1, level="L2").marks()
    assert legend["Bed"] == hexadecimal(kind_color(rules, "Bed")) == legend["energy"]
    assert legend["Bed"] in {shape["stroke"] for shape in marks["shapes"]}
    assert {name: color for name, _, _, color in marks["entries"] if color} == {
        name: hexadecimal(meter_color(index)) for index, name in enumerate(rules.meter_names)
    }
    assert legend["Bed"] in {value for shape in village["episodes"][0]["scenes"][0]["shapes"] for value in shape[2:4]}


def test_a_duel_is_played_against_the_trained_agent(duel):
    assert duel["agents"] == 2, "it is judged against a scripted player, and trained for two seats"
    assert duel["programs"].keys() == {"reset", "step", "policy"}
    assert duel["names"]["actions"][duel["idle"]] == "idle"
    page = as_page(duel)
    assert len(page) < 200_000 and page.count("<script") == 2


def test_a_world_is_played_alone(tmp_path, capsys):
    assert cli.main(["play", "duel", "--output", str(tmp_path / "alone.html")]) == 0, capsys.readouterr().err
    assert (tmp_path / "alone.html").read_text().startswith("<!doctype html>")


def test_what_cannot_be_played_is_one_sentence(capsys):
    with pytest.raises(ValueError, match=r"GymEnv cannot be played in a browser: it has no marks\(\)"):
        _game(GymEnv("CartPole-v1"), None, False)
    assert cli.main(["play", "shipped:nobody"]) == 2
    assert "no agent shipped:nobody" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("name", ["village", "arena"])
def test_pages_of_games_are_small(name):
    assert len(as_page(game_of(f"shipped:{name}"))) <= 1_200_000
