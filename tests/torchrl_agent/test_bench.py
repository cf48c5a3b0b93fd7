"""The benchmarks measure something, in the promised form."""

from __future__ import annotations

import json

import pytest

from torchrl_agent.cli import main


def test_a_row_has_every_promised_column(capsys):
    command = ["bench", "smoke", "--num-envs", "16", "--modes", "eager", "--seconds", "0.1", "--json"]
    assert main(command) == 0
    result = json.loads(capsys.readouterr().out.strip().split("\n")[-1])
    assert result["world"] == "smoke"
    assert {"torch", "torchrl", "tensordict"} <= result["versions"].keys()
    (row,) = result["rows"]
    assert row["num_envs"] == 16
    assert row["mode"] == "eager"
    assert min(row[name] for name in ("world", "world_policy", "training")) > 0
    assert row["peak_memory_mb"] > 0
    assert row["compile_seconds"] >= 0


@pytest.mark.parametrize("bad", [["--num-envs", "0"], ["--seconds", "0"], ["nothing"]])
def test_impossible_measurements_are_refused(bad, capsys):
    assert main(["bench", *bad]) == 2
    assert len(capsys.readouterr().err.strip().split("\n")) == 1
