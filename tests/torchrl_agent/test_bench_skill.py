"""The skill benchmark: players and policies on the same worlds."""

from __future__ import annotations

import json

from torchrl_agent.bench_skill import measure_skill, table
from torchrl_agent.cli import main

TINY = [
    "world.level=L1",
    "world.num_envs=4",
    "ppo.rollout_steps=16",
    "ppo.minibatch_size=64",
    "total_frames=128",
    "threads=1",
    "evaluation.episodes=4",
    "acceleration.step=false",
    "acceleration.advantages=false",
    "acceleration.update=false",
]


def test_players_and_seeds_are_judged_alike():
    result = measure_skill("town", TINY, [3, 4])
    players = [(row["player"], row.get("seed")) for row in result["rows"]]
    assert players == [("greedy", None), ("rest", None), ("wait", None), ("random", None), ("ppo", 3), ("ppo", 4)]
    assert {row["episodes"] for row in result["rows"]} == {4}
    greedy, rest = (next(row for row in result["rows"] if row["player"] == name) for name in ("greedy", "rest"))
    assert greedy["lifetime"] > rest["lifetime"]
    assert [row["frames"] for row in result["rows"][-2:]] == [128, 128]
    assert len(table(result).splitlines()) == 7


def test_the_command_prints_a_table_and_one_object(capsys):
    main(["bench", "skill", "town", *TINY, "--seeds", "0", "--json"])
    *_, last = capsys.readouterr().out.strip().splitlines()
    assert json.loads(last)["rows"][-1]["player"] == "ppo"
