"""The headroom benchmark: the same games for both players, and the arithmetic of what knowing earns."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from benchmarks import __main__ as studies
from benchmarks.__main__ import main
from benchmarks.headroom import COLUMNS, _measure_level, compare, measure_headroom, play, table
from envs.town import LEVELS
from torchrl_agent.core.tables import student
from torchrl_agent.experiment import Experiment

RECORD = Path(__file__).parents[2] / "benchmarks" / "results" / "headroom.json"
PAYS = {"memory": {"memory"}, "foresight": {"foresight"}, "others": {"social", "teacher"}, "change": {"change"}}
"""What a level is named after, and the module that gains by it."""
TINY = ["world.num_agents=2", "world.rules.max_steps=4", "threads=1"]


def test_what_knowing_earns_by_hand():
    """Differences 3, 5 and 4: mean 4, deviation 1, so 4.303 / sqrt(3) = 2.484 on either side; 10 without."""
    row = compare(torch.tensor([12.0, 14.0, 16.0]), torch.tensor([9.0, 9.0, 12.0]))
    assert (row["without"], row["with"], row["difference"]) == (10.0, 14.0, 4.0)
    assert row["low"] == pytest.approx(4 - 2.484, abs=1e-3)
    assert row["high"] == pytest.approx(4 + 2.484, abs=1e-3)
    assert row["share"] == pytest.approx(0.4)
    assert row["testable"]


@pytest.mark.parametrize(
    ("informed", "ignorant", "testable"),
    [
        ([12.1, 11.9, 12.2], [10.0, 10.0, 10.0], True),
        ([11.8, 11.9, 11.8], [10.0, 10.0, 10.0], False),  # sure, but less than a fifth
        ([30.0, 5.0, 12.0], [10.0, 10.0, 10.0], False),  # much, but chance may have done it
        ([-7.5, -7.6, -7.4], [-10.0, -10.0, -10.0], True),  # costs
        ([1.0, 1.0, 1.0], [0.0, 0.0, 0.0], False),  # a share of nothing
    ],
)
def test_a_claim_may_be_tested_where_a_fifth_is_surely_to_be_gained(informed, ignorant, testable):
    assert compare(torch.tensor(informed), torch.tensor(ignorant))["testable"] is testable


@pytest.mark.parametrize(("freedom", "quantile"), [(9, 2.262), (10, 2.228), (15, 2.131), (63, 1.998), (10**6, 1.960)])
def test_students_quantiles(freedom, quantile):
    assert student(freedom) == pytest.approx(quantile, abs=3e-3)


@pytest.mark.slow
def test_every_player_plays_the_same_games():
    experiment = Experiment.load("small_town", *TINY)
    world = experiment.make_world(evaluation=True, num_envs=3)
    greedy, wait = world.players()["greedy"], world.players()["wait"]
    first, other = play(world, greedy, 5), play(world, wait, 5)
    again = play(world, greedy, 5)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert not torch.equal(first, play(world, greedy, 6))


def test_a_search_is_the_same_for_the_same_games():
    world = Experiment.load("town", "world.level=L2", "world.rules={max_steps: 4}").make_world(num_envs=2)
    planner, twin = (world.experts()["foresight"][0] for _ in range(2))
    assert torch.equal(play(world, planner, 5), play(world, twin, 5))


@pytest.mark.slow
def test_knowing_is_compared_with_the_best_of_those_without():
    world = Experiment.load("small_town", *TINY).make_world(evaluation=True, num_envs=3)
    greedy, wait, random = (world.players()[name] for name in ("greedy", "wait", "random"))
    (row,) = _measure_level(world, {"module": (greedy, wait, greedy, random)}, 5)
    assert row["with"] == row["without"] == play(world, greedy, 5).mean().item()


def test_the_return_is_the_first_agents_in_its_first_episode():
    experiment = Experiment.load("small_town", *TINY, "+world.rules.reward=constant")
    world = experiment.make_world(evaluation=True, num_envs=2)
    assert play(world, world.players()["wait"], 0).tolist() == [5.0, 5.0]  # 1 for each of 4 steps, 1 for retiring


@pytest.mark.slow
def test_the_command_prints_a_table_and_records_it(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(studies, "RESULTS", tmp_path)
    main(["headroom", "small_town", *TINY, "--episodes", "2", "--json", "--record"])
    head, *rows, last = capsys.readouterr().out.splitlines()
    result = json.loads(last)
    assert [row.split()[1] for row in rows] == ["foresight", "hierarchy", "social", "memory", "map"]
    assert head.split() == list(COLUMNS)
    assert table(result).splitlines() == [head, *rows]
    assert json.loads((tmp_path / "headroom.json").read_text())[0]["rows"] == result["rows"]
    assert {row["level"] for row in result["rows"]} == {"L2"}


def test_only_the_modules_that_are_named_are_measured():
    rows = measure_headroom("small_town", TINY, [], 2, ["map", "memory"])["rows"]
    assert [row["module"] for row in rows] == ["memory", "map"]
    with pytest.raises(ValueError, match="--modules names 'change', in which no expert differs here: use foresight, "):
        measure_headroom("small_town", TINY, [], 2, ["change"])


@pytest.mark.parametrize("level", [level for level in LEVELS if level.split("_")[0] in PAYS])
def test_a_level_that_is_named_after_what_it_needs_is_recorded_to_pay_for_it(level):
    rows = [row for result in json.loads(RECORD.read_text()) for row in result["rows"] if row["level"] == level]
    assert any(row["testable"] for row in rows if row["module"] in PAYS[level.split("_")[0]])


@pytest.mark.parametrize(
    ("config", "levels", "episodes", "words"),
    [
        ("arena", [], 2, "'arena' has a world without experts"),
        ("town", [], 1, "--episodes is 1: give at least 2"),
        ("town", ["L99"], 2, "level 'L99' is unknown"),
    ],
)
def test_errors_are_one_sentence(config, levels, episodes, words):
    with pytest.raises(ValueError, match=words):
        measure_headroom(config, ["world.num_envs=2"], levels, episodes)
