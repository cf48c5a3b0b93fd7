"""A short record of a shipped agent with four modules, for all tests of replays."""

import copy
from contextlib import closing

import pytest

from torchrl_agent.experiment import Experiment
from torchrl_agent.loop import learn
from torchrl_agent.replay import RecordConfig, record_run
from torchrl_agent.replay.recorder import record_agent
from torchrl_agent.runs.run import save

TINY = (
    *("device=cpu", "world.num_envs=2", "evaluation.episodes=2"),
    *("algorithm.rollout_steps=8", "algorithm.minibatch_size=16"),
    *(f"acceleration.{name}=false" for name in ("step", "advantages", "update")),
)


@pytest.fixture(scope="session")
def village():
    return record_run("shipped:village", RecordConfig(steps=6, ahead=3))


@pytest.fixture(scope="session")
def cartpole(tmp_path_factory):
    """The record of two checkpoints of a run in pictures."""
    pytest.importorskip("pygame")
    folder = tmp_path_factory.mktemp("cartpole")
    experiment = Experiment.load("cartpole", f"run.folder={folder}", *TINY)
    (folder / "checkpoints").mkdir()
    (folder / "config.yaml").write_text(experiment.to_yaml())
    iterations = iter(learn(experiment))
    for _ in range(2):
        save(next(iterations), folder)
    return record_run(folder, RecordConfig(world=1, steps=5, checkpoints=3))


@pytest.fixture(scope="session")
def growth():
    """The record of an agent that has not learned to let a network grow."""
    experiment = Experiment.load("growth", *TINY)
    with closing(experiment.make_world(evaluation=True)) as env:
        agent = experiment.make_agent(env)
    return record_agent("growth", experiment, agent, RecordConfig(steps=5), 1.0, None)


@pytest.fixture
def hostile(village):
    """The record with names that would be markup."""
    record = copy.deepcopy(village)
    record["run"] = "<script>alert(1)</script>"
    record["config"] = '"><img src=x onerror=alert(1)>'
    record["names"]["actions"][0] = "<b>up</b>"
    record["episodes"][-1]["thoughts"][4][0]["surprises"] = ["social model: <i>it was wrong</i>"]
    return record
