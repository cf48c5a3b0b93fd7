"""The skill benchmark: players and policies on the same worlds."""

from __future__ import annotations

import json

import pytest

from torchrl_agent.cli import main
from torchrl_agent.evaluation.skill import measure_skill, table

TINY = [
    "world={level: L1, num_envs: 4}",
    "algorithm={rollout_steps: 16, minibatch_size: 64}",
    "total_frames=128",
    "threads=1",
    "evaluation.episodes=4",
    "acceleration={step: false, advantages: false, update: false}",
]


@pytest.mark.slow
def test_players_and_seeds_are_judged_alike():
    result = measure_skill("town", TINY, [3, 4])
    players = [(row["player"], row.get("seed")) for row in result["rows"]]
    assert players == [("greedy", None), ("rest", None), ("wait", None), ("random", None), ("ppo", 3), ("ppo", 4)]
    assert {row["episodes"] for row in result["rows"]} == {4}
    greedy, rest = (next(row for row in result["rows"] if row["player"] == name) for name in ("greedy", "rest"))
    assert greedy["lifetime"] > rest["lifetime"]
    assert [row["frames"] for row in result["rows"][-2:]] == [128, 128]
    *rows, last = table(result).splitlines()
    assert len(rows) == 7
    assert result["return_mean"] == sum(row["return_mean"] for row in result["rows"][-2:]) / 2
    assert last == f"ppo over 2 seeds: {result['return_mean']:,.4g}"
    assert result["reached"] is None


@pytest.mark.slow
def test_the_command_prints_a_table_and_one_object(capsys):
    main(["bench", "skill", "town", *TINY, "--seeds", "0", "--json"])
    *_, last = capsys.readouterr().out.strip().splitlines()
    assert json.loads(last)["rows"][-1]["player"] == "ppo"


@pytest.mark.parametrize(("mark", "reached", "words"), [(1, True, "reached"), (501, False, "missed")])
def test_a_mark_is_reached_or_missed(mark, reached, words):
    tiny = ["device=cpu", "world.num_envs=2", "algorithm={rollout_steps: 8, minibatch_size: 16}", "total_frames=16"]
    result = measure_skill("cartpole", [*tiny, "evaluation.episodes=2", f"evaluation.mark={mark}"], [0])
    assert result["reached"] is reached
    assert words in table(result).splitlines()[-1]
