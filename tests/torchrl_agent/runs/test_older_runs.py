"""A run that an older version wrote (before modules moved into rooms) is judged, and goes on."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path

import pytest

from torchrl_agent import Experiment, evaluate, load_agent, train

OLD = Path(__file__).parents[2] / "data" / "run_of_an_older_version"
"""Two iterations of a tiny town_agent, with the last iteration's metrics in summary.json."""


@pytest.fixture
def run(tmp_path):
    return Path(shutil.copytree(OLD, tmp_path / "mind"))


def test_its_agent_is_judged(run):
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".* is now ", DeprecationWarning)  # no module is looked for where it was
        experiment, agent = load_agent(run, device="cpu", overrides=("world.rules={max_steps: 6}",))
    assert list(agent.agent_modules) == ["perception", "social_model", "world_model", "manager"]
    assert evaluate(experiment, agent, episodes=2)["episodes"] == 2


def test_it_goes_on(run):
    experiment = Experiment.load(run / "config.yaml", "total_frames=32")
    frames = [iteration.frames for iteration in train(experiment, resume=run)]
    assert frames == [24, 32]
    assert json.loads((run / "summary.json").read_text(encoding="utf-8"))["frames"] == 32
