"""The benchmarks measure something, in the promised form."""

from __future__ import annotations

import json

import pytest
import torch

from benchmarks import modules
from benchmarks.modules import add_roofline, training_flops
from torchrl_agent.cli import main
from torchrl_agent.experiment import Experiment


@pytest.mark.slow
def test_a_row_has_every_promised_column(capsys):
    command = ["bench", "smoke", "--num-envs", "16", "--modes", "eager", "--seconds", "0.01", "--json"]
    command += ["algorithm.rollout_steps=4", "algorithm.num_epochs=1"]
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


def test_the_roofline_by_hand(monkeypatch):
    rows = [{"act_compiled_ms": 2.0, "act_gflop": 0.1, "learn_compiled_ms": None, "learn_gflop": 1.0}]
    result = {"modules": rows, "whole": [{"training": 1000}]}
    add_roofline(result, flops=2e7, peak=1e11)
    assert result["modules"][0]["act_of_peak"] == 0.5  # 1e8 operations in 2 ms are 5e10 a second
    assert "learn_of_peak" not in result["modules"][0], "it could not be compiled"
    assert result["whole"][0]["of_peak"] == 0.2
    assert result["roofline"] == {"flops_per_agent_step": 20_000_000, "peak_gflops": 100.0, "training_bound": 5000}
    monkeypatch.setattr(modules, "LARGE", 64)
    monkeypatch.setattr(modules, "seconds_per_call", lambda *_: 2.0)
    assert modules.peak_flops(0.01, torch.device("cpu")) == 64**3  # a multiplication and an addition for each


@pytest.mark.slow
def test_operations_of_training_grow_with_the_epochs():
    sizes = ["world.num_envs=2", "algorithm.rollout_steps=8", "algorithm.minibatch_size=64"]
    once, twice = (
        training_flops(Experiment.load("town_agent", *sizes, f"algorithm.num_epochs={epochs}")) for epochs in (1, 2)
    )
    acting_and_looking_back = 2 * once - twice
    assert 0 < acting_and_looking_back < once < twice


@pytest.mark.slow
def test_the_agent_is_measured_module_by_module_and_as_a_whole(capsys):
    sizes = [
        "model.perception={embedding_size: 8, memory_size: 8, belief_size: 4, channels: 2}",
        "algorithm.rollout_steps=8",
    ]
    command = [
        "bench",
        "agent",
        "--num-envs",
        "4",
        "--seconds",
        "0.05",
        "--json",
        "algorithm.minibatch_size=64",
        *sizes,
    ]
    assert main(command) == 0
    text = capsys.readouterr().out.strip().split("\n")
    result = json.loads(text[-1])
    modules = {row["module"]: row for row in result["modules"]}
    assert list(modules) == ["perception", "social_model", "world_model", "manager", "controller"]
    for row in modules.values():
        assert all(row[f"{what}_{mode}_ms"] > 0 for what in ("act", "learn") for mode in ("eager", "compiled"))
        assert row["act_ratio"] == pytest.approx(row["act_eager_ms"] / row["act_compiled_ms"], abs=0.01)
        assert row["learn_gflop"] > row["act_gflop"] > 0
        assert 0 < row["learn_of_peak"] < 1
    eager, compiled = result["whole"]
    assert compiled["training"] < result["roofline"]["training_bound"]
    assert eager["ran"] == {"world": "eager", "rollout": "eager", "update": "eager"}
    assert compiled["ran"] == {"world": "compiled", "rollout": "compiled", "update": "compiled"}
    memory = result["recurrence"]
    assert memory["ratio"] == pytest.approx(memory["recurrent_ms"] / memory["feed_forward_ms"], abs=0.01)
    assert any(line.startswith("whole, compiled:") for line in text)
