"""The profile of training: ranges nested as the loop is, counted exactly, and gone afterward."""

from __future__ import annotations

import csv
import json
import logging

import pytest
import torch
from kinds import uncompiled

from torchrl_agent import cli
from torchrl_agent.experiment import Experiment
from torchrl_agent.loop import learn
from torchrl_agent.profiling.profile import profile_training
from torchrl_agent.profiling.trace import Operator, most_expensive, read_trace, summarize

TINY = ["device=cpu", "threads=1", "world.num_envs=4", "algorithm.rollout_steps=2", "algorithm.minibatch_size=4"]
COMPILED = ["acceleration.step=true", "acceleration.advantages=true", "acceleration.update=true"]
UPDATES = 2 * 2  # epochs, minibatches


@pytest.fixture(scope="module")
def profiled(tmp_path_factory):
    """A profile of two eager iterations of an agent with memory, and its folder."""
    folder = tmp_path_factory.mktemp("profile") / "deep"
    return profile_training(Experiment.load("smoke", *TINY, "model.memory=gru"), folder, 2, 5), folder


def test_ranges_are_nested_as_the_loop_is_and_counted(profiled):
    calls = {entry.name.removeprefix("iteration/"): entry.calls for entry in profiled[0].ranges}
    step = "collect/policy with the world's step"
    assert calls == {
        "iteration": 2,
        "collect": 2,
        step: 2 * 2,
        f"{step}/policy": 2 * 2,
        f"{step}/policy/perception": 2 * 2,
        f"{step}/policy/critic": 2 * 2,
        f"{step}/world": 2 * 2,
        "check": 2,
        "check/metrics": 2,
        "learn": 2,
        "learn/advantages": 2,
        "learn/advantages/perception": 2,  # values next; those of the frames were found when it acted
        "learn/advantages/critic": 2,
        "learn/advantages/advantage function": 2,
        "learn/update": 2 * UPDATES,
        "learn/update/loss": 2 * UPDATES,
        "learn/update/loss/perception": 2 * UPDATES,
        "learn/update/loss/critic": 2 * UPDATES,
        "learn/update/backward": 2 * UPDATES,
        "learn/update/optimizer": 2 * UPDATES,
        "metrics": 2 * 4,
    }


def test_every_module_of_the_agent_has_a_range_where_it_is_called(tmp_path):
    small = ["world.num_envs=4", "algorithm={rollout_steps: 2, minibatch_size: 8, num_epochs: 1}", "device=cpu"]
    eager = [f"acceleration.{part}=false" for part in ("step", "advantages", "update")]
    names = [entry.name for entry in profile_training(Experiment.load("town_agent", *small, *eager), tmp_path).ranges]
    modules = ("perception", "world_model", "social_model", "manager")
    for place in ("collect/policy with the world's step/policy", "learn/advantages", "learn/update/loss"):
        critic = [] if place.startswith("collect") else ["critic"]
        assert {f"iteration/{place}/{name}" for name in (*modules, *critic)} <= set(names)


@pytest.mark.parametrize(("algorithm", "own"), [("dqn", "learn/replay"), ("impala", "learn/advantages")])
def test_other_algorithms_have_ranges_of_their_own(tmp_path, algorithm, own):
    tiny = ["device=cpu", "threads=1", "world.num_envs=4", "algorithm.rollout_steps=4"]
    starts = ["tuned.dqn={learning_starts: 16, batch_size: 16}", "policy=cnn" if algorithm == "dqn" else "policy=gru"]
    found = profile_training(Experiment.load("smoke", *tiny, f"algorithm={algorithm}", *starts), tmp_path)
    calls = {entry.name.removeprefix("iteration/"): entry.calls for entry in found.ranges}
    assert calls["collect/policy with the world's step/policy/perception"] == 4, "also of the agent that plays"
    assert calls[own] >= 1
    assert calls["learn/update" if algorithm == "dqn" else "learn/update/loss"] >= 1  # one program without memory


def test_inner_ranges_take_no_longer_than_the_one_around_them(profiled):
    times = {entry.name: entry.cpu_ms for entry in profiled[0].ranges}
    for name, time in times.items():
        inner = sum(other for path, other in times.items() if path.rpartition("/")[0] == name)
        assert time > 0
        assert inner <= time * 1.001
    whole = profiled[0].ranges[0]
    assert whole.name == "iteration"
    assert whole.share == 1.0
    assert whole.cpu_ms / 1e3 == pytest.approx(2 * profiled[0].seconds, rel=0.1)
    direct = sum(entry.share for entry in profiled[0].ranges if entry.name.count("/") == 1)
    assert direct > 0.95  # hardly any time is nobody's


def test_tables_and_trace_are_written(profiled):
    found, folder = profiled
    with (folder / "ranges.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["name"], int(row["calls"])) for row in rows] == [(entry.name, entry.calls) for entry in found.ranges]
    with (folder / "operators.csv").open() as file:
        operators = list(csv.DictReader(file))
    assert len(operators) == 5
    assert all(row["name"].startswith("aten::") or "Backward" in row["name"] for row in operators)
    times = [float(row["cpu_ms"]) for row in operators]
    assert times == sorted(times, reverse=True)
    trace = json.loads((folder / "trace.json").read_text())
    assert {"iteration", "perception", "backward"} <= {event.get("name") for event in trace["traceEvents"]}
    assert {path.name for path in folder.iterdir()} == {"ranges.csv", "operators.csv", "trace.json"}


def test_profiling_changes_no_number():
    plain = learn(Experiment.load("smoke", *TINY, "total_frames=64"))
    expected = [next(plain).metrics for _ in range(3)][-1]
    watched = learn(Experiment.load("smoke", *TINY, "total_frames=64"))
    next(watched)
    with torch.profiler.profile():
        found = [next(watched).metrics for _ in range(2)][-1]
    same = [name for name in expected if not name.startswith("time/")]
    torch.testing.assert_close([found[name] for name in same], [expected[name] for name in same], equal_nan=True)


def trace(folder, *events):
    """A file as Kineto writes them, of (category, name, thread, start, end, arguments)."""
    fields = ("cat", "name", "tid", "ts", "dur", "args")
    spans = [(kind, name, thread, start, end - start, more) for kind, name, thread, start, end, more in events]
    listed = [{"ph": "X", **dict(zip(fields, span, strict=True))} for span in spans]
    others = [{"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}}, {"ph": "f", "id": 3}]
    path = folder / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [*others, *listed], "traceName": "trace.json"}))
    return read_trace(path)


def test_a_kernel_counts_where_it_was_launched_on_any_thread(tmp_path):
    events = trace(
        tmp_path,
        ("user_annotation", "iteration", 1, 0, 1000, {"External id": 1}),
        ("user_annotation", "backward", 1, 100, 400, {"External id": 2}),
        ("user_annotation", "Optimizer.step#Adam.step", 1, 500, 700, {"External id": 3}),
        ("cpu_op", "aten::mm", 2, 150, 160, {"External id": 4}),
        ("cuda_runtime", "cudaLaunchKernel", 2, 152, 155, {"External id": 4, "correlation": 20}),
        ("cuda_runtime", "cudaLaunchKernel", 2, 156, 158, {"External id": 4, "correlation": 21}),
        ("kernel", "gemm", 7, 300, 2300, {"External id": 4, "correlation": 20}),  # longer than its launch
        ("kernel", "reduce", 7, 2300, 2800, {"External id": 4, "correlation": 21}),
        ("cuda_driver", "cuLaunchKernel", 1, 600, 610, {"correlation": 22}),  # of a compiled graph: no operator
        ("kernel", "triton", 7, 2800, 3050, {"correlation": 22}),
        ("cuda_runtime", "cudaMemcpyAsync", 1, 1100, 1110, {"correlation": 23}),  # after the iteration
        ("gpu_memcpy", "Memcpy", 7, 4000, 13000, {"correlation": 23}),
        ("gpu_user_annotation", "backward", 7, 300, 3000, {"External id": 2}),  # the device's own view of a range
    )
    found = {entry.name: (entry.calls, entry.cpu_ms, entry.cuda_ms, entry.share) for entry in summarize(events)}
    assert found == {
        "iteration": (1, 1.0, 2.75, 1.0),
        "iteration/backward": (1, 0.3, 2.5, pytest.approx(0.3)),
        "iteration/optimizer": (1, 0.2, 0.25, pytest.approx(0.2)),
    }
    assert most_expensive(events, 5) == [Operator("aten::mm", 1, 0.01, 2.5)]


def test_an_operator_owns_what_the_operators_inside_it_do_not(tmp_path):
    events = trace(
        tmp_path,
        ("cpu_op", "aten::linear", 1, 1000, 5000, {"External id": 1}),
        ("cpu_op", "aten::t", 1, 1000, 1500, {"External id": 2}),  # begins with the one around it
        ("cpu_op", "aten::addmm", 1, 2000, 5000, {"External id": 3}),
        ("cpu_op", "aten::copy_", 1, 2000, 4000, {"External id": 4}),
        ("cpu_op", "aten::add", 2, 2500, 3500, {"External id": 5}),  # at that time, but on another thread
        ("cpu_op", "aten::linear", 1, 5000, 6000, {"External id": 6}),  # begins where the other ends
        ("user_annotation", "policy", 1, 0, 9000, {"External id": 7}),
    )
    assert most_expensive(events, 3) == [
        Operator("aten::copy_", 1, 2.0, 0.0),
        Operator("aten::linear", 2, 0.5 + 1.0, 0.0),
        Operator("aten::addmm", 1, 1.0, 0.0),
    ]


def test_the_command_ends_with_one_line_of_json(tmp_path, capsys):
    arguments = ["--output", str(tmp_path), "--iterations", "1", "--top", "3", "--json"]
    assert cli.main(["profile", "smoke", *arguments, *TINY]) == 0
    printed = capsys.readouterr().out.strip().split("\n")
    found = json.loads(printed[-1])
    assert found["iterations"] == 1
    assert len(found["operators"]) == 3
    assert {"iteration", "iteration/learn/update/backward"} <= {entry["name"] for entry in found["ranges"]}
    assert printed[-2] == str(tmp_path)
    assert any(line.startswith("    policy with the world's step") and line.endswith("%") for line in printed)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--iterations", "0"], "--iterations"),
        (["--top", "0"], "--top"),
        (["algorithm.gama=1"], "gama"),
        (["--output", "{blocked}/there"], "--output"),
    ],
)
def test_what_cannot_be_profiled_is_one_sentence(tmp_path, capsys, arguments, named):
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    assert cli.main(["profile", "smoke", *(word.format(blocked=blocked) for word in arguments)]) == 2
    printed = capsys.readouterr()
    assert named in printed.err
    assert len(printed.err.strip().split("\n")) == 1


@pytest.mark.slow
def test_compiled_training_stays_compiled(tmp_path, caplog):
    """Ranges stand around what is compiled, never inside it: nothing falls back, nothing compiles again."""
    torch._dynamo.reset()
    experiment = Experiment.load("smoke", *TINY, *COMPILED, "total_frames=1_000")
    training = learn(experiment)
    learner = [next(training) for _ in range(2)][-1].learner
    torch._dynamo.utils.counters.clear()
    with caplog.at_level(logging.WARNING), torch.profiler.profile():
        next(training)
    assert not uncompiled(learner)
    assert not torch._dynamo.utils.counters["frames"]
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    found = profile_training(Experiment.load("smoke", *TINY, *COMPILED), tmp_path, 1, 5)
    names = {entry.name.rpartition("/")[2] for entry in found.ranges}
    learning = {"learn", "advantages", "critic", "advantage function", "update"}  # which is one program
    assert names == {"iteration", "collect", "policy with the world's step", "check", "metrics", *learning}
