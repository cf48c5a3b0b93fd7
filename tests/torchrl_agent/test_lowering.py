"""Every kernel that a GPU would run compiles for one, though there is none here (``torchrl_agent/lowering.py``)."""

from __future__ import annotations

import pytest
import torch
import torch.utils._triton

pytest.importorskip("triton", reason="needs Triton: pip install triton==3.7.1")

from envs.chance import seed_chance
from torchrl_agent.lowering import H100, lower, machine_code, pretended_h100


@pytest.mark.parametrize("stream", [0, 1, 2, 48])
def test_chance_compiles_for_a_gpu(stream):
    chance = seed_chance(0, 64)
    graphs = lower(lambda key, clock: chance._replace(key=key, clock=clock).uniform(stream, 24), *chance)
    graph = graphs["inference"]
    assert graph.launches == 1
    assert graph.bytes == 64 * (2 * 4 + 24 * 4)
    (used,) = machine_code(graph.kernels).values()
    assert used.spilled == 0


def test_nothing_is_pretended_afterwards():
    before = torch.cuda.is_available(), torch.utils._triton.has_triton()
    with pretended_h100():
        assert torch.cuda.is_available()
        assert torch.cuda.get_device_name() == H100.name
    assert before == (torch.cuda.is_available(), torch.utils._triton.has_triton())


def test_without_triton_one_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"needs Triton, which is not installed: pip install triton==3\.7\.1"):
        lower(torch.sin, torch.zeros(8))
