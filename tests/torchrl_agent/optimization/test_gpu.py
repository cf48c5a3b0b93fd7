"""What only a CUDA device can show: run with `make test-gpu`. What can be shown without one is in ``test_cuda.py``."""

from __future__ import annotations

import pytest
import torch
from kinds import KINDS, learner_of, uncompiled

from envs import ArenaEnv, TownEnv
from torchrl_agent import Experiment, evaluate, learn, load_agent, train
from torchrl_agent.loop import iterate
from torchrl_agent.optimization.compilation import CUDA_GRAPH

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


@pytest.fixture(autouse=True)
def nothing_compiled_before():
    """TorchDynamo counts how often it has compiled a function, whoever's learner it was for."""
    torch.compiler.reset()


@pytest.fixture
def no_waits():
    """Fails where the host waits for the device."""

    def watch(function, *args):
        torch.cuda.set_sync_debug_mode("error")
        try:
            return function(*args)
        finally:
            torch.cuda.set_sync_debug_mode("default")

    return watch


# --- worlds

WORLDS = [
    (ArenaEnv, {}),
    (ArenaEnv, {"style": 2, "observation": "extended"}),
    (ArenaEnv, {"observation": "pixels"}),
    (TownEnv, {"level": "L3"}),
    (TownEnv, {"level": "L5"}),
    (TownEnv, {"level": "L8", "privileged": True}),
]


@pytest.mark.parametrize("compile", [False, True])
@pytest.mark.parametrize(("make", "options"), WORLDS)
def test_a_step_does_what_it_does_on_the_cpu(make, options, compile):
    """From the same state at every step, so that an ulp that turns one comparison is one world in one step."""
    here, there = make(256, seed=3, **options), make(256, device="cuda", seed=3, compile=compile, **options)
    root, _ = here.reset(), there.reset()
    key, agree = here.action_key, []
    for step in range(30):
        there.load_state_dict(here.state_dict())
        action = torch.full_like(here.full_action_spec[key].rand(), step % 5)
        played, root = here.step_and_maybe_reset(root.set(key, action))
        other, _ = there.step_and_maybe_reset(there.fake_tensordict().exclude("next").set(key, action.cuda()))
        pairs = [(value, other["next", name].cpu()) for name, value in played["next"].items(True, True)]
        same = [torch.isclose(one.double(), two.double(), atol=1e-3, rtol=1e-3) for one, two in pairs]
        agree.append(torch.stack([each.reshape(256, -1).all(-1) for each in same]).all(0).float().mean())
    assert torch.stack(agree).mean() > 0.999


@pytest.mark.parametrize(("make", "options"), WORLDS)
def test_a_step_never_waits_for_the_host(make, options, no_waits):
    env = make(256, device="cuda", **options)
    root = env.reset()
    root.set(env.action_key, env.full_action_spec[env.action_key].rand())
    no_waits(env.step_and_maybe_reset, root)


# --- learning

COMPILED = [f"acceleration.{part}=true" for part in ("step", "advantages", "update")]


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_is_compiled_and_recorded_and_never_waits(name, no_waits):
    learner = learner_of(KINDS[name], *COMPILED)
    loop = iterate(learner)
    for _ in range(5):
        metrics = next(loop).metrics
    assert not uncompiled(learner)
    assert learner.modes() == {"rollout": CUDA_GRAPH, "update": CUDA_GRAPH}
    assert metrics.get("train/skipped", 0) == 0
    rollout = no_waits(learner.collector.collect)
    if name != "stops early":  # there the host asks after each epoch
        no_waits(learner.improve, rollout, 1e-3)


LOSSES = {"ppo": "value_loss", "gru": "value_loss", "dqn": "loss_value", "impala": "value_loss"}


@pytest.mark.parametrize("name", LOSSES)
def test_graphs_learn_what_compiled_code_learns(name):
    losses = []
    for graphs in ("false", "true"):
        loop = iterate(learner_of(KINDS[name], *COMPILED, f"acceleration.cudagraphs={graphs}"))
        losses.append(torch.tensor([next(loop).metrics[f"train/{LOSSES[name]}"] for _ in range(5)]))
    torch.testing.assert_close(losses[0], losses[1], atol=1e-3, rtol=1e-2, equal_nan=True)


def test_memory_does_not_grow_with_iterations():
    learner = Experiment.load("smoke", "device=cuda").make_learner()
    used = []
    for _ in range(8):
        learner.improve(learner.collector.collect(), 1e-4)
        used.append(torch.cuda.memory_allocated())
    assert used[-1] <= used[4] * 1.05  # graphs are captured in the third


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_a_second_device_learns_by_itself():
    before = torch.cuda.memory_allocated(0)
    metrics = [each.metrics for each in learn(Experiment.load("smoke", "device=cuda:1", "total_frames=4096"))]
    assert len({each["train/value_loss"] for each in metrics}) == len(metrics)  # no frame is learned from for ever
    assert torch.cuda.memory_allocated(0) == before


# --- life cycle


def test_a_checkpoint_continues_on_either_device(tmp_path):
    experiment = Experiment.load("smoke", "device=cuda", f"run.folder={tmp_path}", "run.name=cuda", "run.film=false")
    for _ in train(experiment):
        pass
    loaded, agent = load_agent(tmp_path / "cuda", device="cpu")
    assert evaluate(loaded, agent, episodes=4)["episodes"] == 4
    for device, frames in (("cuda", 4096), ("cpu", 6144), ("cuda", 8192)):
        again = Experiment.load(tmp_path / "cuda" / "config.yaml", f"device={device}", f"total_frames={frames}")
        assert [each.frames for each in train(again, resume=tmp_path / "cuda")][-1] == frames


def test_an_evaluation_on_cuda_is_that_of_the_cpu(tmp_path):
    experiment = Experiment.load("smoke", "device=cuda", f"run.folder={tmp_path}", "run.name=cuda")
    for _ in train(experiment):
        pass
    found = [evaluate(*load_agent(tmp_path / "cuda", device), episodes=64)["return_mean"] for device in ("cpu", "cuda")]
    assert found[0] == pytest.approx(found[1], rel=0.1, abs=1.0)
