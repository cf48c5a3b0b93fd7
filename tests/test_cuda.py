"""What happens on a GPU, shown without one (see ``pretend_cuda.py``): devices do not mix, nothing waits for the host
that need not, a rollout and an iteration's updates are one CUDA graph each and compute what eager code does, bit for
bit.
"""

from __future__ import annotations

import copy
import logging

import pytest
import torch
from kinds import KINDS, SMALL, UNCOMPILED, learner_of
from pretend_cuda import CudaTensor, PretendCuda
from tensordict import TensorDict

from envs import ArenaEnv, TownEnv
from envs.arena import observation
from envs.libs.gymnasium import VectorGymEnv
from torchrl_agent import Experiment, evaluate, load_agent, train
from torchrl_agent.loop import iterate
from torchrl_agent.optimization import tracing
from torchrl_agent.optimization.compilation import (
    COMPILED,
    CUDA_GRAPH,
    EAGER,
    MODES,
    CompiledFunction,
    CudaGraphFunction,
)
from torchrl_agent.optimization.traced_updater import TracedUpdater
from torchrl_agent.runs.film import film_policy
from torchrl_agent.runs.metrics import read_metrics

SUBMITTED = ("sac", "impala with a memory", "mind")
"""Kinds of learning that every submission is tested with: one of each part of the code."""
PER_ITERATION = 2
"""Waits of an iteration, both for its rollout: is it finite and how many episodes ended, with the diagnostics of the
updates before; the statistics of those episodes.
"""


class PretendedProgram:
    """A traced program as far as a capture sees it: the function, run as it is."""

    def __init__(self, function, entries, like):
        def run(*values):
            given = TensorDict(batch_size=like.batch_size, device=like.device)
            return function(given.update(dict(zip(entries, values, strict=True))))

        self.run = torch.compile(run)  # pretended, and counted

    def __call__(self, values):
        with torch.no_grad():
            return self.run(*values)


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.setattr(tracing, "_Program", PretendedProgram)
    with PretendCuda() as device:
        yield device


@pytest.fixture
def trusted(monkeypatch):
    """Worlds are not tried before they are learned from, which is a third of a short training: all are played below."""
    monkeypatch.setattr("torchrl_agent.experiment.build.check_world", lambda env: None)


# --- the pretended device itself --------------------------------------------------------------------------------------


def test_devices_do_not_mix(gpu):
    here, there = torch.ones(3), torch.ones(3, device="cuda")
    assert there.device == torch.device("cuda:0") and type(there) is CudaTensor
    with pytest.raises(RuntimeError, match="same device"):
        there + here
    assert (there + torch.tensor(1.0)).tolist() == [2, 2, 2]


def test_waits_are_counted(gpu):
    there = torch.arange(3.0, device="cuda")
    assert not gpu.waits
    asking = (
        lambda x: x.sum().item(),
        lambda x: bool(x.any()),
        lambda x: x.tolist(),
        lambda x: x[x > 0],
        lambda x: x.cpu(),
    )
    for ask in asking:
        gpu.reset()
        ask(there)
        assert sum(gpu.waits.values()) == 1
    gpu.reset()
    torch.tensor([1.0], device="cuda")
    (wait,) = gpu.waits
    assert wait.startswith("copy from the host, tests/test_cuda.py:")


def test_graphs_replay_operations_and_not_python(gpu):
    state, calls = torch.zeros(2, device="cuda"), []

    def step():
        calls.append(1)
        state.add_(1)
        return state * 10

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = step()
    assert state.tolist() == [0, 0] and out.isnan().all()  # only recorded
    for expected in (1, 2, 3):
        graph.replay()
        assert (state.tolist(), out.tolist()) == ([expected] * 2, [10 * expected] * 2)
    assert len(calls) == 1
    with pytest.raises(RuntimeError, match="stream is capturing"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        out.sum().item()


# --- functions recorded -----------------------------------------------------------------------------------------------


def test_a_function_is_one_launch_from_its_third_call_on(gpu):
    total, calls = torch.zeros(2, device="cuda"), []

    def add(value):
        calls.append(1)
        total.add_(value)
        return {"twice": total * 2}

    part = CudaGraphFunction("adding", add, torch.device("cuda"))
    for number in (1.0, 2.0, 3.0, 4.0):
        value = torch.full((2,), number, device="cuda")
        gpu.reset()
        result = part(value)
    assert (total.tolist(), result["twice"].tolist()) == ([10.0, 10.0], [20.0, 20.0])
    assert part.captured and len(calls) == 3  # twice to warm up, once to record
    gpu.reset()
    part(part._inputs[0])  # what lies there already is not copied
    assert (gpu.launches, sum(gpu.waits.values()), gpu.synchronized) == (1, 0, 0)


def test_inputs_that_moved_are_copied_to_where_the_graph_reads(gpu):
    def double(data):
        return data["a"] * 2

    part = CudaGraphFunction("doubling", double, torch.device("cuda"))
    for number in range(5):
        data = TensorDict({"a": torch.full((3,), float(number), device="cuda")}, [3])
        assert part(data).tolist() == [2.0 * number] * 3


def test_what_cannot_be_recorded_has_not_run_and_goes_on_without(gpu, caplog):
    state, calls = torch.zeros((), device="cuda"), []

    def step():
        calls.append(1)
        state.add_(1)
        return bool(state > 0)  # the host asks

    part = CudaGraphFunction("the step", step, torch.device("cuda"))
    with caplog.at_level(logging.WARNING):
        for number in range(1, 6):
            assert part() is True
            assert state.item() == number  # never twice
    assert not part.captured and len(calls) == 6
    (line,) = [record.getMessage() for record in caplog.records if record.name.startswith("torchrl_agent")]
    assert line.startswith("the step cannot be captured as a CUDA graph, runs without: ")
    assert "test_cuda.py:" in line and "\n" not in line


def test_a_recording_that_compiles_anew_falls_back_to_compiled_code(gpu):
    states = [torch.zeros(2, device="cuda"), torch.zeros(3, device="cuda")]
    calls = []
    part = CompiledFunction("adding", lambda state: state.add_(1), compile=True)

    def step():
        calls.append(1)
        part(states[len(calls) == 3])  # the recording meets inputs of another shape

    captured = CudaGraphFunction("the steps", step, torch.device("cuda"))
    for _ in range(5):
        captured()
    assert not captured.captured and part.mode == COMPILED
    assert states[0].tolist() == [5.0] * 2 and states[1].tolist() == [0.0] * 3


def test_after_a_move_the_graph_is_recorded_anew(gpu):
    holder = {"state": torch.zeros(1, device="cuda")}
    part = CudaGraphFunction("adding", lambda: holder["state"].add_(1), torch.device("cuda"))
    for _ in range(4):
        part()
    holder["state"] = torch.full((1,), 10.0, device="cuda")
    part.forget()
    for _ in range(4):
        part()
    assert holder["state"].tolist() == [14.0]


# --- worlds -----------------------------------------------------------------------------------------------------------

WORLDS = [(ArenaEnv, {"observation": mode, "style": 1 + index % 2}) for index, mode in enumerate(observation.MODES)]
WORLDS += [(TownEnv, {"level": level}) for level in ("L0", "L3", "L6")]
WORLDS += [pytest.param(TownEnv, {"level": f"L{level}"}, marks=pytest.mark.slow) for level in (1, 2, 4, 5, 7, 8)]
WORLDS += [(TownEnv, {"level": "L8", "observation": "groups", "privileged": True, "potential": True, "drives": True})]


def player(env, name):
    """A policy by name: of the world's hand-written players, or of no use."""
    if name in env.players():
        return env.players()[name]
    return lambda root: root.set(env.action_key, env.full_action_spec[env.action_key].rand())


@pytest.mark.parametrize(("make", "options"), WORLDS)
def test_a_step_never_waits(gpu, make, options):
    env = make(2, device="cuda", **options)
    root = env.reset()
    for _ in range(2):
        root.set(env.action_key, env.full_action_spec[env.action_key].rand())
        gpu.reset()
        _, root = env.step_and_maybe_reset(root)
        assert not gpu.waits
        assert all(type(value) is CudaTensor for value in root.values(True, True))


@pytest.mark.parametrize(
    ("make", "options"), [(ArenaEnv, {"style": 1}), (ArenaEnv, {"style": 2}), (TownEnv, {"level": "L8"})]
)
def test_scripted_players_never_wait(gpu, make, options):
    env = make(2, device="cuda", **options)
    for name, policy in env.players().items():
        root = policy(env.reset())  # tables that last are made in the first call
        gpu.reset()
        policy(root)
        assert not gpu.waits, name


def test_worlds_on_the_host_wait_for_the_action_alone(gpu):
    shown = []
    for device in ("cpu", "cuda"):
        env = VectorGymEnv("CartPole-v1", 2, device=device, processes=False)
        env.set_seed(1)
        roots = [env.reset()]
        for _ in range(3):
            acted = roots[-1].clone().set("action", torch.ones(2, dtype=torch.int64, device=device))
            gpu.reset()
            roots.append(env.step_and_maybe_reset(acted)[1])
        shown.append([root["observation"].cpu() for root in roots])
        waits = [wait for wait in gpu.waits if "envs/libs" in wait]
        assert len(waits) == (device == "cuda"), gpu.waits
    assert all(wait.startswith("copy to the host") for wait in waits)
    assert all(torch.equal(*pair) for pair in zip(*shown, strict=True))  # and the arrays are overwritten in between


@pytest.mark.parametrize(("make", "options"), [(ArenaEnv, {}), (TownEnv, {"level": "L8"})])
def test_the_game_is_the_cpus(gpu, make, options):
    roots = []
    for device in ("cpu", "cuda"):
        env = make(2, device=device, seed=3, **options)
        root = env.reset()
        action = torch.ones_like(env.full_action_spec[env.action_key].zero())
        for _ in range(3):
            _, root = env.step_and_maybe_reset(root.set(env.action_key, action))
        roots.append(root)
    for key in roots[0].keys(True, True):
        assert torch.equal(roots[0][key], roots[1][key].cpu()), key


# --- learning ---------------------------------------------------------------------------------------------------------


def metrics_of(gpu, learner, iterations):
    """Metrics of each iteration, read when all have been made, and the waits and launches of the last."""
    loop, made = iterate(learner), []
    for _ in range(iterations):
        gpu.reset()
        made.append(next(loop))
    waits, read = gpu.waits.copy(), [each.metrics for each in made]
    gpu.waits = waits
    return [{key: value for key, value in each.items() if key.startswith("train/")} for each in read]


def check_learning(gpu, overrides):
    eager = learner_of(overrides, *UNCOMPILED, "acceleration.cudagraphs=false")
    expected = metrics_of(gpu, eager, 4)
    epochs = (
        eager.experiment.algorithm.num_epochs if "algorithm.target_kl=0.001" in overrides else 0
    )  # one question after each
    assert sum(gpu.waits.values()) <= PER_ITERATION + epochs, gpu.waits
    captured = learner_of(overrides, *UNCOMPILED)
    found = metrics_of(gpu, captured, 4)  # two to warm up, one to record, one that only replays
    assert sum(gpu.waits.values()) <= PER_ITERATION + epochs, gpu.waits
    assert captured.modes() == {"rollout": CUDA_GRAPH, "update": CUDA_GRAPH}
    assert gpu.synchronized == 0
    assert found == expected  # to the last bit


@pytest.mark.parametrize("name", ["ppo"])
def test_captured_code_learns_what_eager_code_learns_and_never_waits(gpu, name):
    check_learning(gpu, KINDS[name])


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.ci] if name in SUBMITTED else []) for name in KINDS if name != "ppo"]
)
def test_every_other_kind_too(gpu, trusted, name):
    check_learning(gpu, KINDS[name])


def test_a_rollout_and_an_iterations_updates_are_one_launch_each(gpu):
    learner = learner_of([], *UNCOMPILED)
    for _ in range(3):
        learner.improve(learner.collector.collect(), 1e-3)
    gpu.reset()
    rollout = learner.collector.collect()
    assert (gpu.launches, sum(gpu.waits.values()), gpu.synchronized) == (1, 0, 0)
    gpu.reset()
    learner.improve(rollout, 1e-3)
    assert gpu.launches <= 4  # the graph; before it the learning rate and a counter, after it the rate's copy
    assert (sum(gpu.waits.values()), gpu.synchronized) == (0, 0)


@pytest.mark.parametrize("name", ["ppo", pytest.param("gru", marks=pytest.mark.slow)])
def test_compiled_code_can_be_recorded(gpu, name):
    learner = learner_of(KINDS[name], *(word.replace("false", "true") for word in UNCOMPILED))
    gpu.reset()
    metrics = [iteration for iteration, _ in zip(iterate(learner), range(4), strict=False)][-1].metrics
    assert learner.modes() == {"rollout": CUDA_GRAPH, "update": CUDA_GRAPH}
    assert metrics["acceleration/rollout"] == metrics["acceleration/update"] == MODES.index(CUDA_GRAPH)
    assert gpu.compilations == 3  # the step, the advantages and the update, each once


@pytest.mark.parametrize("name", ["ppo", pytest.param("dqn", marks=pytest.mark.slow)])
def test_an_update_as_one_program_is_recorded_and_learns_the_same(gpu, name):
    def found(traced):
        learner = learner_of(KINDS[name], *UNCOMPILED[:2], f"acceleration.update={traced}")
        assert isinstance(learner.algorithm.updater, TracedUpdater) is traced
        metrics = metrics_of(gpu, learner, 4)
        assert learner.modes()["update"] == CUDA_GRAPH
        assert sum(gpu.waits.values()) <= PER_ITERATION, gpu.waits
        return metrics

    for one, other in zip(found(True), found(False), strict=True):
        assert one == pytest.approx(other, rel=1e-4, abs=1e-6, nan_ok=True)  # Adam's arithmetic in another order


def test_modes_are_reported_where_graphs_are_off(gpu):
    learner = learner_of([], *UNCOMPILED, "acceleration.cudagraphs=false")
    metrics = next(iterate(learner)).metrics
    assert learner.modes() == {"rollout": EAGER, "update": EAGER}
    assert metrics["acceleration/rollout"] == metrics["acceleration/update"] == 0


@pytest.mark.slow
def test_a_governor_waits_once_and_goes_back_into_what_was_recorded(gpu, trusted):
    """It goes back after the fifth iteration: from there on graphs learn from restored tensors what eager code does."""
    watched = ["governor.enabled=true", "governor.warmup=3", "governor.snapshot_every=1"]
    found = []
    for graphs in ("false", "true"):
        learner = learner_of([], *UNCOMPILED, *watched, f"acceleration.cudagraphs={graphs}")
        before = metrics_of(gpu, learner, 5)
        assert sum(gpu.waits.values()) <= PER_ITERATION + 1, gpu.waits  # it decides by the figures of the updates
        learner.governor.rollback("the test says so", learner.frames, 0.0)
        found.append([{key: repr(value) for key, value in row.items()} for row in before + metrics_of(gpu, learner, 3)])
        assert sum(gpu.waits.values()) <= PER_ITERATION + 1, gpu.waits
        assert learner.governor.returns == 1
    assert learner.modes() == {"rollout": CUDA_GRAPH, "update": CUDA_GRAPH}
    assert found[0] == found[1]


# --- life cycle -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_run_goes_from_one_device_to_the_other(gpu, tmp_path):
    small = [*SMALL, *UNCOMPILED, "world.rules={max_steps: 8}", "total_frames=64", "run.checkpoint_every=64"]
    run = [f"run.folder={tmp_path}", "run.name=run", "run.final_evaluation=false", "run.film=false"]
    experiment = Experiment.load("smoke", "device=cuda", *small, *run)
    assert [each.frames for each in train(experiment)][-1] == 64
    for device, frames in (("cuda", 128), ("cpu", 192), ("cuda", 256)):
        again = Experiment.load(tmp_path / "run" / "config.yaml", f"device={device}", f"total_frames={frames}")
        assert [each.frames for each in train(again, resume=tmp_path / "run")][-1] == frames
    rows = read_metrics(tmp_path / "run" / "metrics.csv")
    assert [int(row["frames"]) for row in rows] == list(range(32, 257, 32))  # those of a GPU are written late
    loaded, agent = load_agent(tmp_path / "run", device="cpu")
    assert evaluate(loaded, agent, episodes=2)["episodes"] == 2


@pytest.mark.slow
@pytest.mark.ci
def test_a_learner_that_has_recorded_takes_a_checkpoint_and_goes_on_from_there(gpu):
    learner = learner_of([], *UNCOMPILED)
    loop = iterate(learner)
    for _ in range(4):
        next(loop)
    state = copy.deepcopy(learner.state_dict())
    expected = [next(loop).metrics["train/value_loss"] for _ in range(4)]
    learner.load_state_dict(state)
    assert [next(loop).metrics["train/value_loss"] for _ in range(4)] == expected
    assert learner.modes() == {"rollout": CUDA_GRAPH, "update": CUDA_GRAPH}


@pytest.mark.slow
def test_an_evaluation_is_recorded_and_finds_what_eager_code_finds(gpu):
    options = [*SMALL, "world.rules={max_steps: 20}", "evaluation.world={curriculum: null}"]
    found = []
    for graphs in ("false", "true"):
        experiment = Experiment.load("smoke", "device=cuda", *options, f"acceleration.cudagraphs={graphs}")
        torch.manual_seed(0)
        agent = experiment.make_agent(experiment.make_world(evaluation=True, num_envs=1))
        found.append(evaluate(experiment, agent, episodes=2))
    assert found[0] == found[1]
    assert gpu.compilations == 0  # which takes longer than one evaluation
    assert found[0]["length_mean"] > 10


def test_a_picture_is_one_copy_to_the_host(gpu, tmp_path):
    for env in (ArenaEnv(1, device="cuda"), TownEnv(1, device="cuda", level="L6")):
        env.reset()
        gpu.reset()
        env.draw(0)
        assert sum(gpu.waits.values()) == 1, gpu.waits
        path = film_policy(env, player(env, "random"), tmp_path / "film.gif", steps=4, every=2)
        assert path is not None and path.stat().st_size > 0
