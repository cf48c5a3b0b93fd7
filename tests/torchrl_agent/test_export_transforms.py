"""Exported policies with the transforms of the world's observations inside."""

from __future__ import annotations

import json

import pytest
import torch
from torchrl.envs.utils import ExplorationType, set_exploration_type

from torchrl_agent import load_agent
from torchrl_agent.experiment import Experiment
from torchrl_agent.export import export_run
from torchrl_agent.runs.run import train

QUICK = ["device=cpu", "threads=1", "run.film=false", "run.final_evaluation=false", "run.tensorboard=false"]
SMALL = ["total_frames=64", "algorithm.rollout_steps=16", "algorithm.minibatch_size=16", "world.num_envs=4"]
STACK = {"CatFrames": {"N": 3, "dim": -1, "in_keys": ["observation"]}}
NORM = {"ObservationNorm": {"loc": 0.5, "scale": 2.0, "in_keys": ["observation"]}}
JOIN = {"CatTensors": {"in_keys": ["observation"], "out_key": "joined"}}
TURN = {"PermuteTransform": {"dims": [-3, -1, -2], "in_keys": ["observation"]}}
CASES = {
    "vectors": (["gym:CartPole-v1"], [STACK, NORM, JOIN], 1),
    "pictures": (["smoke", "policy=cnn", "world.observation=heatmap"], [TURN, NORM], 0),
    "a stack last": (["gym:CartPole-v1"], [NORM, STACK], 2),
}
"""World, its transforms, and how many of them stay outside of the file."""


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_a_file_takes_what_the_world_gives_and_acts_as_the_agent_behind_the_transforms(case, tmp_path):
    world, transforms, outside = CASES[case]
    listed = "+world.transforms=" + json.dumps(transforms).replace('"', "").replace(":", ": ")
    for _ in train(Experiment.load(*world, *QUICK, *SMALL, listed, f"run.folder={tmp_path}", "run.name=run")):
        pass
    export_run(tmp_path / "run", output=tmp_path / "policy.pt2")
    described = json.loads((tmp_path / "policy.pt2.json").read_text())
    assert described["run"]["world"]["transforms"] == transforms[:outside]
    program = torch.export.load(tmp_path / "policy.pt2").module()

    experiment, agent = load_agent(tmp_path / "run", "cpu")
    behind = agent.attach(experiment.make_world(evaluation=True, num_envs=5))
    experiment.world = described["run"]["world"]
    before = experiment.make_world(evaluation=True, num_envs=5)
    for env in (before, behind):
        env.set_seed(1)
    seen, transformed = before.reset(), behind.reset()
    for _ in range(8):
        given = program({entry["name"]: seen[entry["name"]] for entry in described["inputs"]})
        with torch.no_grad(), set_exploration_type(ExplorationType.DETERMINISTIC):
            transformed = agent.actor(transformed)
        torch.testing.assert_close(given["logits"], transformed["logits"], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(given["action"], transformed["action"])
        action = before.rand_action(seen)
        seen = before.step_and_maybe_reset(action)[1]
        transformed = behind.step_and_maybe_reset(transformed.update(action.select("action")))[1]
