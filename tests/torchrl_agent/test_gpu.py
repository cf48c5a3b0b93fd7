"""What only a CUDA device can show: run with `make test-gpu`."""

from __future__ import annotations

import pytest
import torch

from envs import ArenaEnv, TownEnv
from torchrl_agent import Experiment, evaluate, learn, load_agent, train
from torchrl_agent.learner import Learner

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


WORLDS = [(ArenaEnv, {}), (TownEnv, {"level": "L5"}), (TownEnv, {"level": "L8", "privileged": True})]


@pytest.mark.parametrize(("make", "options"), WORLDS)
def test_the_world_plays_the_same_game_on_cuda_as_on_the_cpu(make, options):
    worlds = [make(64, device=device, seed=3, **options) for device in ("cpu", "cuda")]
    roots = [world.reset() for world in worlds]
    key = worlds[0].action_key
    for step in range(100):
        action = torch.full_like(worlds[0].full_action_spec[key].rand(), step % 5)
        roots = [
            world.step_and_maybe_reset(root.set(key, action.to(root.device)))[1]
            for world, root in zip(worlds, roots, strict=True)
        ]
    seen = "observation" if worlds[0].num_agents is None else ("agents", "observation")
    torch.testing.assert_close(roots[0][seen], roots[1][seen].cpu(), atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("cudagraphs", [False, True])
def test_training_runs_compiled_and_captured(cudagraphs):
    acceleration = [f"acceleration.{part}=true" for part in ("step", "advantages", "update")]
    experiment = Experiment.load("smoke", "device=cuda", f"acceleration.cudagraphs={cudagraphs}", *acceleration)
    experiment.total_frames = 512 * 8
    iterations = list(learn(experiment))
    learner = iterations[-1].learner
    assert all(part.compiled for part in (*learner.collector.accelerated, *learner.algorithm.accelerated))
    assert learner.collector.accelerated[0].captured == cudagraphs
    assert iterations[-1].metrics["train/skipped"] == 0


def test_cuda_graphs_learn_what_eager_learns():
    experiment = Experiment.load("smoke", "device=cuda", "acceleration.cudagraphs=false")
    captured = Experiment.load("smoke", "device=cuda", "acceleration.cudagraphs=true")
    for config in (experiment, captured):
        config.total_frames = 512 * 6
    losses = [[i.metrics["train/value_loss"] for i in learn(config)] for config in (experiment, captured)]
    torch.testing.assert_close(torch.tensor(losses[0][0]), torch.tensor(losses[1][0]), atol=1e-4, rtol=1e-3)
    assert all(value == value for value in losses[1])


@pytest.mark.parametrize(("make", "options"), WORLDS)
def test_a_step_never_waits_for_the_host(make, options):
    env = make(256, device="cuda", **options)
    root = env.reset()
    root.set(env.action_key, env.full_action_spec[env.action_key].rand())
    torch.cuda.set_sync_debug_mode("error")
    try:
        env.step_and_maybe_reset(root)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_a_checkpoint_from_cuda_continues_on_the_cpu(tmp_path):
    experiment = Experiment.load("smoke", "device=cuda", f"run.folder={tmp_path}", "run.name=cuda", "run.film=false")
    for _ in train(experiment):
        pass
    loaded, agent = load_agent(tmp_path / "cuda", device="cpu")
    assert evaluate(loaded, agent, episodes=4)["episodes"] == 4
    cpu = Experiment.load(tmp_path / "cuda" / "config.yaml", "device=cpu", "total_frames=4096")
    assert [i.frames for i in train(cpu, resume=tmp_path / "cuda")][-1] == 4096


def test_memory_does_not_grow_with_iterations():
    learner = Learner(Experiment.load("smoke", "device=cuda"))
    used = []
    for _ in range(6):
        learner.algorithm.learn(learner.collector.collect(), 1e-4)
        used.append(torch.cuda.memory_allocated())
    assert used[-1] <= used[2] * 1.05
