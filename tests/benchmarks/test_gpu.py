"""Rows of training speed on one card: what a row measures, and how their processes are run."""

from __future__ import annotations

import argparse
import json
import time

import pytest
import torch
from torch._dynamo.utils import counters

from benchmarks import __main__ as studies
from benchmarks import gpu
from benchmarks.gpu.measure import measure, summary
from torchrl_agent.profiling.trace import Event

SCRIPT = """
import json, sys, time
print("no figures")
print(json.dumps({"loop_fps": 45_000_000}), flush=True)
if "break" in sys.argv:
    raise SystemExit("first line\\nit broke")
time.sleep(1e6 if "stay" in sys.argv else 0)
"""


def test_a_row_is_measured_part_by_part(tmp_path):
    given = argparse.Namespace(smoke=True, again=False, begun=time.time(), lock=tmp_path / "lock", seconds=0.01)
    counters["inductor"].clear()  # of tests before
    start, compiled, speeds, loop, mark = measure(gpu.ROWS["cartpole"], given)
    assert start["first_update_s"] > 0 and start["first_update_cache"] == "unused"
    assert compiled["mode"] == "eager"
    assert speeds["rollout_fps"] > 0 and speeds["training_fps"] > 0 and loop["loop_fps"] > 0
    assert mark["mark_frames"] / loop["loop_fps"] == mark["mark_s"]


def test_kernels_are_summed_by_name():
    def event(kind, name, duration):
        return Event(kind, name, 0, 0.0, duration, 0, 0)

    events = [event("kernel", "add", 2000.0), event("gpu_memcpy", "copy", 5000.0), event("kernel", "add", 4000.0)]
    found = summary([*events, event("cpu_op", "add", 9000.0)])
    assert found == {"launches": 3, "busy_ms": 11.0, "top": [("add", 2, 6.0), ("copy", 1, 5.0)]}


def test_speeds_are_fractions_of_goal_and_peer():
    found = {"cartpole": {"loop_fps": 45e6, "training_fps": 50e6}, "jax": {"loop_fps": 180e6}, "sac": {"loop_fps": 1}}
    assert gpu.ratios("cartpole", found) == {"of_training": 0.9, "of_goal": 0.5, "of_peer": 0.25}
    assert gpu.ratios("sac", found) == gpu.ratios("jax", found) == {}


@pytest.fixture
def peers(tmp_path, monkeypatch):
    (tmp_path / "script.py").write_text(SCRIPT)

    def peer(word, *packages):
        return gpu.Peer((str(tmp_path / "script.py"), word), packages, ())

    found = {"fine": peer(""), "broken": peer("break"), "absent": peer("", "no_such_package"), "endless": peer("stay")}
    monkeypatch.setattr(gpu, "PEERS", found)
    return ["gpu", "--smoke", "--json", "--output", str(tmp_path / "found.jsonl")]


def test_processes_are_run_and_what_they_find_is_kept(peers, tmp_path, capsys):
    assert studies.main([*peers, "fine", "broken", "absent"]) == 0
    printed, errors = capsys.readouterr()
    assert "absent is left out: the package no_such_package is not installed." in printed
    assert "broken failed: first line\nit broke" in errors
    rows = {row["name"]: row for row in json.loads(printed.splitlines()[-1])["rows"]}
    assert rows == {
        "fine": {"name": "fine", "loop_fps": 45_000_000},
        "broken": {"name": "broken", "loop_fps": 45_000_000, "error": "it broke"},
    }
    lines = [json.loads(line) for line in (tmp_path / "found.jsonl").read_text().splitlines()]
    assert sorted(line["name"] for line in lines) == ["broken", "broken", "fine"]


def test_the_call_ends_when_its_time_is_up(peers, capsys):
    assert studies.main([*peers, "endless", "--limit", "0"]) == 0
    (row,) = json.loads(capsys.readouterr().out.splitlines()[-1])["rows"]
    assert row["name"] == "endless" and "error" not in row


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nothing"], "there is no row 'nothing': use some of town_agent, arena"),
        (["--smoke", "--record"], "leave out --smoke or --record"),
        pytest.param(
            [], "no CUDA device: --smoke", marks=pytest.mark.skipif(torch.cuda.is_available(), reason="it has one")
        ),
    ],
)
def test_calls_that_cannot_be_are_refused(words, said, capsys):
    assert studies.main(["gpu", *words]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.slow
def test_a_smoke_test_measures_a_row_in_its_own_process(tmp_path, capsys):
    assert studies.main(["gpu", "--smoke", "sac", "--json", "--output", str(tmp_path / "found.jsonl")]) == 0
    (row,) = json.loads(capsys.readouterr().out.splitlines()[-1])["rows"]
    assert row["loop_fps"] > 0 and "error" not in row
