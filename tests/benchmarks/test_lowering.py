"""Every kernel that a GPU would run compiles for one, though there is none here (``benchmarks/lowering``)."""

from __future__ import annotations

from unittest import mock

import pytest
import torch
import torch.utils._triton

pytest.importorskip("triton", reason="needs Triton: pip install triton==3.7.1")

from tensordict import TensorDict
from torch import Tensor
from torchrl.modules import set_recurrent_mode

from benchmarks.lowering import lower
from benchmarks.lowering.pretended_gpu import H100, machine_code, pretended_h100
from envs.toolkit.chance import seed_chance
from torchrl_agent.modules.memory import recurrence

pytestmark = pytest.mark.ci


@pytest.mark.parametrize("stream", [0, 1, 2, 48])
def test_chance_compiles_for_a_gpu(stream):
    chance = seed_chance(0, 64)
    graphs = lower(lambda key, clock: chance._replace(key=key, clock=clock).uniform(stream, 24), *chance)
    graph = graphs["inference"]
    assert graph.launches == 1
    assert graph.bytes == 64 * (2 * 4 + 24 * 4)
    (used,) = machine_code(graph.kernels).values()
    assert used.spilled == 0


def test_chance_at_places_compiles_for_a_gpu():
    chance = seed_chance(0, 64)

    def draw(key, clock):
        places = torch.arange(5, dtype=torch.int32).unsqueeze(1) * 11 + 7
        return chance._replace(key=key, clock=clock).uniform_at(1, places)

    graph = lower(draw, *chance)["inference"]
    assert graph.bytes == 64 * (2 * 4 + 5 * 4)
    (used,) = machine_code(graph.kernels).values()  # Triton refuses constants beyond 32 bits
    assert used.spilled == 0


def test_what_the_host_reads_is_counted():
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        (graph,) = lower(lambda counts: counts * counts.sum().item(), torch.zeros(8, dtype=torch.int64)).values()
    assert graph.waits == 1
    (graph,) = lower(lambda counts: counts * counts.sum(), torch.zeros(8, dtype=torch.int64)).values()
    assert graph.waits == 0


def test_what_is_written_in_place_is_written_by_the_kernel():
    (graph,) = lower(lambda counts: counts.add_(1).sum(), torch.zeros(64, 8)).values()
    assert (graph.launches, graph.bytes) == (1, 4 * (2 * 64 * 8 + 1))
    assert "'mutated_arg_names': ['in_ptr0'" in graph.code


def test_every_configuration_of_a_kernel_is_compiled():
    import triton

    (graph,) = lower(lambda values: values.sum(-1), torch.zeros(4096, 64)).values()
    ((name, source),) = graph.kernels.items()
    with mock.patch("triton.compile", wraps=triton.compile) as compile:
        machine_code({name: source})
    assert compile.call_count > 1


def test_a_region_that_is_compiled_once_counts_as_often_as_it_runs():
    @torch.compiler.nested_compile_region
    def grow(value: Tensor) -> Tensor:
        return value.cumsum(0) + 1

    def thrice(value: Tensor) -> Tensor:
        return grow(grow(grow(value)))

    (once,) = lower(lambda value: value.cumsum(0) + 1, torch.zeros(8, 64)).values()
    (graph,) = lower(thrice, torch.zeros(8, 64)).values()
    assert list(graph.repeats.values()) == [3]
    assert (graph.launches, graph.bytes) == (3 * once.launches, 3 * once.bytes)


@pytest.mark.slow
def test_a_memory_is_a_loop_over_time_that_never_waits():
    rows, steps, width, size = 8, 12, 6, 16
    network, _ = recurrence("gru", width, size, "value", "out")

    def loss(value: Tensor, begins: Tensor, hidden: Tensor) -> Tensor:
        with set_recurrent_mode(True):
            data = network(TensorDict({"value": value, "is_init": begins, "hidden": hidden}, [rows, steps]))
        return data["out"].sum()

    begins = torch.zeros(rows, steps, 1, dtype=torch.bool)
    graphs = lower(loss, torch.zeros(rows, steps, width), begins, torch.zeros(rows, steps, 1, size))
    gates, recurrent = 3 * size, 2 * rows * steps * size * 3 * size
    inputs = 2 * rows * steps * width * gates
    assert graphs["forward"].flops == inputs + recurrent
    assert graphs["backward"].flops == inputs + 2 * recurrent  # the inputs' own gradients are not asked for
    for graph in graphs.values():
        assert graph.waits == 0
        assert list(graph.repeats.values()) == [steps]
        assert graph.launches >= 3 * steps
        assert graph.bytes >= steps * 4 * gates * size  # every step reads the weights anew
        assert all(used.spilled == 0 for used in machine_code(graph.kernels).values())


def test_nothing_is_pretended_afterward():
    before = torch.cuda.is_available(), torch.utils._triton.has_triton()
    with pretended_h100():
        assert torch.cuda.is_available()
        assert torch.cuda.get_device_name() == H100.name
    assert before == (torch.cuda.is_available(), torch.utils._triton.has_triton())


def test_without_triton_one_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"needs Triton, which is not installed: pip install triton==3\.7\.1"):
        lower(torch.sin, torch.zeros(8))
