"""The benchmarks measure something, in the promised form."""

from __future__ import annotations

import builtins
import json

import pytest

from torchrl_agent.bench_learn import learn_against_baseline
from torchrl_agent.cli import main

TINY = [
    "world.num_envs=16",
    "ppo.rollout_steps=32",
    "ppo.minibatch_size=128",
    "model.hidden_sizes=[16]",
    "acceleration.step=false",
    "acceleration.advantages=false",
    "acceleration.update=false",
]


def test_a_row_has_every_promised_column(capsys):
    command = ["bench", "smoke", "--num-envs", "16", "--modes", "eager", "--seconds", "0.1", "--json"]
    assert main(command) == 0
    result = json.loads(capsys.readouterr().out.strip().split("\n")[-1])
    assert result["world"] == "smoke"
    assert {"torch", "torchrl", "tensordict"} <= result["versions"].keys()
    (row,) = result["rows"]
    assert row["num_envs"] == 16
    assert row["mode"] == "eager"
    assert row["world"] > row["world_policy"] > row["training"] > 0
    assert row["peak_memory_mb"] > 0
    assert row["compile_seconds"] >= 0


@pytest.mark.parametrize("bad", [["--num-envs", "0"], ["--seconds", "0"], ["nothing"]])
def test_impossible_measurements_are_refused(bad, capsys):
    assert main(["bench", *bad]) == 2
    assert len(capsys.readouterr().err.strip().split("\n")) == 1


def test_without_the_baseline_installed_the_mend_is_named(monkeypatch):
    real = builtins.__import__

    def refuse(name, *arguments, **kwargs):
        if name.startswith("stable_baselines3"):
            raise ImportError(name)
        return real(name, *arguments, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ValueError, match="bench"):
        learn_against_baseline(TINY, 1)


@pytest.mark.slow
def test_both_learn_and_are_judged_alike():
    pytest.importorskip("stable_baselines3")
    result = learn_against_baseline(TINY, 3, 12)
    for side in ("ours", "stable_baselines3"):
        assert result[side]["evaluation"]["episodes"] == 64
        assert result[side]["frames"] > 0
        assert result[side]["curve"]
