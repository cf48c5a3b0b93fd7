"""Checkpoints whose content cannot be: refused in a sentence, whatever is wrong in them."""

import logging
import math

import pytest
import torch

from torchrl_agent import Experiment
from torchrl_agent.core.checkpoint import CheckpointError
from torchrl_agent.runs.model_card import model_card

SMALL = ("world.num_envs=4", "algorithm.rollout_steps=8", "algorithm.batch_size=16", "algorithm.learning_starts=16")
SUMMARY = {"frames": 512, "seconds": 1.0, "device": "cpu"}


def experiment(*overrides):
    return Experiment.load("smoke", "algorithm=dqn", *SMALL, "algorithm.replay_size=64", "device=cpu", *overrides)


@pytest.fixture(scope="module")
def learner():
    """A DQN's that has played once."""
    learner = experiment().make_learner()
    learner.improve(learner.collector.collect(), 1e-3)
    return learner


def longer(state):
    name = next(iter(state["replay"]["frames"]))
    value = state["replay"]["frames"][name]
    state["replay"]["frames"][name] = torch.cat((value, value[:1]))


def unordered(state):
    state["algorithm"]["optimizer"] = []


def empty(state):
    state["replay"]["frames"] = {}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (longer, "entries of the replay hold 32, 33 frames"),
        (empty, "entries of the replay hold"),
        (lambda state: state["replay"].update(position=math.nan), "the replay's position is nan"),
        (lambda state: state["replay"].update(position=64), "the replay's position is 64"),
        (lambda state: state.update(replay=[]), "does not fit"),
        (unordered, "does not fit"),
        (lambda state: state.update(algorithm=None), "does not fit"),
        (lambda state: state.update(episodes=3), "does not fit"),
        (lambda state: state.update(random=[1]), "does not fit"),
    ],
)
def test_content_that_cannot_be_is_a_sentence(learner, change, sentence):
    state = learner.state_dict()
    change(state)
    with pytest.raises(CheckpointError, match=sentence) as caught:
        experiment().make_learner().load_state_dict(state)
    assert "\n" not in str(caught.value)


def test_a_replay_without_priorities_cannot_go_on_with_some(learner):
    with pytest.raises(CheckpointError, match=r"no priorities, so algorithm\.priority_exponent must stay 0"):
        experiment("algorithm.priority_exponent=0.6").make_learner().load_state_dict(learner.state_dict())


def test_a_missing_replay_is_mentioned(learner, caplog):
    caplog.set_level(logging.WARNING)
    experiment().make_learner().load_state_dict(learner.state_dict())
    assert "no replay" not in caplog.text
    experiment().make_learner().load_state_dict({**learner.state_dict(), "replay": None})
    assert "the checkpoint has no replay (a .replay.pt beside it): it begins empty" in caplog.text


@pytest.mark.parametrize("content", [bytes(64), b"3", b"[]", b'{"versions": []}', b"[" * 3000])
def test_a_damaged_note_of_the_code_is_mentioned_and_stops_no_card(tmp_path, caplog, content):
    (tmp_path / "code.json").write_bytes(content)
    assert "| versions | unknown |" in model_card(tmp_path, experiment(), SUMMARY)
    assert "code.json is damaged" in caplog.text
