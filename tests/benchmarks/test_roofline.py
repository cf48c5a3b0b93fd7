"""What a GPU could do at best is counted from the code that it would run (``benchmarks/roofline.py``)."""

from __future__ import annotations

import json

import pytest
import torch

pytest.importorskip("triton", reason="needs Triton: pip install triton==3.7.1")

from torch._higher_order_ops.scan import scan

from benchmarks import __main__ as studies
from benchmarks import roofline
from benchmarks.__main__ import main
from benchmarks.lowering import lower
from benchmarks.roofline import GPUS, REST, UNCOMPILED, Part, small_experiment
from torchrl_agent.optimization.tracing import options_on_gpu


def test_a_slice_counts_as_what_is_read_of_it():
    values = torch.zeros(64, 1000)
    (graph,) = lower(lambda values: values[3].sin() + values[5].cos(), values).values()
    assert graph.bytes == 3 * 4 * 1000
    assert graph.launches == 1


def test_a_product_counts_its_operations():
    (graph,) = lower(torch.mm, torch.zeros(64, 32), torch.zeros(32, 16)).values()
    assert graph.flops == 2 * 64 * 32 * 16
    assert graph.bytes == 4 * (64 * 32 + 32 * 16 + 64 * 16)
    assert graph.launches == 1


def test_elementwise_operations_are_counted_where_they_are_made():
    def of(function, *shape):
        (graph,) = lower(function, torch.zeros(*shape), options=options_on_gpu()).values()
        assert graph.launches == 1
        return graph.operations

    assert of(lambda values: values * 2 + values, 64, 1000) == 2 * 64 * 1000
    assert of(lambda bits: (bits.int() >> 3) ^ 5, 1000) == 2 * 1000
    assert of(lambda values: (values.sin(), values[3:].cos()), 64) == 64 + 61  # combined in a kernel
    maxima = of(lambda values: values.amax(1), 1000, 64)
    assert 64 * 1000 <= maxima <= 2 * 64 * 1000  # a mask may stand beside it
    assert of(lambda values: values.sin().amax(1), 1000, 64) == maxima + 64 * 1000
    assert of(lambda values: values.amax(1).sin(), 1000, 64) == maxima + 1000


def test_a_part_is_bound_by_what_takes_longest():
    part = Part("one", bytes=335, operations=3350)
    assert GPUS[0].bounds(part) == pytest.approx({"bytes": 1e-10, "flops": 0, "operations": 1e-10})
    assert (Part("two", bytes=400, operations=3350).bound_by, GPUS[0].seconds(part)) == ("bytes", pytest.approx(1e-10))
    assert Part("three", bytes=335, operations=4000).bound_by == "operations"


def test_what_learns_has_two_graphs():
    weight = torch.zeros(32, 16, requires_grad=True)
    graphs = lower(lambda weight, seen: (seen @ weight).tanh().sum(), weight, torch.zeros(64, 32))
    assert set(graphs) == {"forward", "backward"}
    assert graphs["forward"].flops == graphs["backward"].flops == 2 * 64 * 32 * 16


def test_a_loop_over_time_is_one_kernel():
    def returns(reward):
        result, following = torch.zeros_like(reward), torch.zeros_like(reward[0])
        for step in reversed(range(4)):
            following = reward[step] + 0.9 * following
            result[step] = following
        return result

    (graph,) = lower(returns, torch.zeros(4, 100)).values()
    assert graph.bytes == 2 * 4 * 4 * 100
    assert graph.launches == 1


def test_a_scan_over_time_is_a_kernel_for_every_step():
    def step(following, reward):
        following = 0.9 * following + reward
        return following, following.clone()

    (graph,) = lower(lambda start, reward: scan(step, start, reward), torch.zeros(1000), torch.zeros(10, 1000)).values()
    assert graph.bytes == 10 * 4 * 4 * 1000  # reads a sum and a reward, writes the sum twice
    assert graph.launches == 10
    assert graph.waits == 0


def test_the_bound_is_what_takes_longer():
    h100 = GPUS[0]
    assert h100.seconds(Part("copies", bytes=3_350_000, flops=1)) == pytest.approx(1e-6)
    assert h100.seconds(Part("multiplies", bytes=1, flops=494_700_000)) == pytest.approx(1e-6)
    assert Part("copies", bytes=3_350_000, flops=1).bound_by == "bytes"
    assert Part("multiplies", bytes=1, flops=494_700_000).bound_by == "flops"


def test_a_world_of_the_host_is_refused_before_thousands_are_made(monkeypatch, capsys):
    monkeypatch.setattr(roofline, "NUM_ENVS", 0)  # which a world refuses
    assert main(["roofline", "cartpole"]) == 2
    assert "asks the host at every step" in capsys.readouterr().err


@pytest.mark.slow
def test_the_command_prints_a_table_and_keeps_it(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(studies, "RESULTS", tmp_path)
    assert main(["roofline", "smoke", "--no-assembler", "--record"]) == 0
    assert "at most on H200: world" in capsys.readouterr().out
    (row,) = json.loads((tmp_path / "roofline.json").read_text())
    parts = {part["name"]: part for part in row["parts"]}
    compiled = [name for name, part in parts.items() if part["graphs"]]
    assert compiled == ["the policy with the world's step", "the advantage function", "the update"]
    assert parts.keys() - compiled == {*UNCOMPILED.values(), REST} - {None, "clipping", "the optimizer"}
    weights = sum(each.numel() for each in small_experiment("smoke", []).make_learner().algorithm.updater.parameters)
    assert parts["the update"]["bytes"] > 7 * 4 * weights  # Adam reads four numbers of a weight and writes three
    assert all(parts[name]["kernels"] and parts[name]["tracing"] and parts[name]["generating"] for name in compiled)
    assert not any(part["waits"] for part in (row["world"], *row["parts"]))
    h100, h200 = row["per_second"]["H100"], row["per_second"]["H200"]
    assert h100["training"] < h100["world"] < h200["world"]
    assert h200["world"] / h100["world"] == pytest.approx(4.8 / 3.35, rel=0.01)
