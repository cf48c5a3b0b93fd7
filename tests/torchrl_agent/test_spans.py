"""Spans are seen by a profiler, and by nobody else."""

from __future__ import annotations

import pytest
import torch
from torch.profiler import profile

from torchrl_agent.core.spans import span, spanned


@spanned("outer")
def work(value):
    with span("inner"):
        return value + 1


def names(recorded):
    return [event.name for event in recorded.events() if event.name in ("outer", "inner")]


def test_a_profiler_sees_them_nested():
    with profile() as recorded:
        assert work(torch.ones(2)).tolist() == [2, 2]
    assert sorted(names(recorded)) == ["inner", "outer"]
    outer, inner = (next(each for each in recorded.events() if each.name == name) for name in ("outer", "inner"))
    assert outer.time_range.start <= inner.time_range.start and inner.time_range.end <= outer.time_range.end


def test_without_a_profiler_nothing_is_entered(monkeypatch):
    monkeypatch.setattr("torchrl_agent.core.spans.record_function", lambda name: pytest.fail("somebody looked"))
    assert work(torch.ones(1)).item() == 2


def test_a_span_ends_with_an_error_and_a_function_keeps_its_name():
    @spanned("outer")
    def fail():
        """Say so."""
        raise KeyError("no")

    with profile() as recorded, pytest.raises(KeyError):
        fail()
    assert names(recorded) == ["outer"]
    assert (fail.__name__, fail.__doc__) == ("fail", "Say so.")


def test_compiled_code_holds_none_and_stays_one_graph(recwarn):
    compiled = torch.compile(work, fullgraph=True, backend="eager")
    for _ in range(2):
        with profile() as recorded:
            assert compiled(torch.ones(2)).tolist() == [2, 2]
        assert not names(recorded)
    compiled(torch.ones(2))
    assert not [each for each in recwarn if "record_function" in str(each.message) or "rofil" in str(each.message)]
