"""Hostile values for every key of every configuration: accepted, or refused in one sentence."""

from __future__ import annotations

import functools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from torchrl_agent.experiment import Experiment
from torchrl_agent.experiment.compose import CONFIGS, config_names
from torchrl_agent.loop import iterate
from torchrl_agent.optimization.updater import NonFiniteError

WORDS = ["nan", "inf", "-inf", "null", "true", "false", "''", "x", "[]", "{}", "[1]", "[[1]]", "{a: 1}", "???", "1e400"]
NUMBERS = [
    "0",
    "-0.0",
    "-1",
    "0.5",
    "1",
    "2",
    "1e-300",
    "1e300",
    "-1e300",
    "2147483648",
    "9223372036854775808",
    "1" + "0" * 40,
]
ENOUGH = ["device=cpu", "threads=1", "world.num_envs=4"]
DEAR = (
    "total_frames",
    "rollout_steps",
    "num_envs",
    "size",
    "sizes",
    "channels",
    "epochs",
    "batch",
    "samples",
    "iterations",
    "members",
)
"""Parts of names of keys for which an honest large number is only a long training."""


@functools.cache
def keys(config: str) -> list[str]:
    """Dotted names of all settings that a configuration has or may have, sections included."""
    there = OmegaConf.merge(
        OmegaConf.structured(Experiment), OmegaConf.masked_copy(OmegaConf.load(CONFIGS / f"{config}.yaml"), ["world"])
    )
    found: list[str] = []

    def walk(node, prefix):
        for name, value in node.items():
            found.append(f"{prefix}{name}")
            if isinstance(value, dict):
                walk(value, f"{prefix}{name}.")

    walk(OmegaConf.to_container(there), "")
    return found


@st.composite
def overrides(draw, config):
    key = draw(st.sampled_from(keys(config)))
    if draw(st.integers(0, 9)) == 0:
        return f"~{key}"
    value = draw(
        st.one_of(st.sampled_from(WORDS), st.sampled_from(NUMBERS), st.floats().map(repr), st.integers().map(str))
    )
    return f"{draw(st.sampled_from(['', '', '+', '++']))}{key}={value}"


@pytest.mark.parametrize("override", ["tuned=nan", "tuned=null", "tuned.ppo=3"])
def test_a_section_that_is_a_number_is_refused(override):
    key = override.split("=")[0]
    with pytest.raises(ValueError, match=rf"{key} is .*: "):
        Experiment.load("smoke", override)


@given(st.data())
def test_whatever_is_written_is_loaded_or_refused_in_a_sentence(outcome, data):
    config = data.draw(st.sampled_from(config_names()))
    with outcome():
        Experiment.load(config, "device=cpu", data.draw(overrides(config)))


@given(overrides("smoke"))
@example("algorithm.learning_rate.initial=1e300")
@example("algorithm.critic_coeff=nan")
@example("model.hidden_sizes=[[1]]")
@example("~total_frames")
def test_what_is_loaded_trains_or_is_refused_in_a_sentence(outcome, override):
    with outcome(NonFiniteError):
        experiment = Experiment.load(
            "smoke", *ENOUGH, "algorithm.rollout_steps=8", "algorithm.minibatch_size=16", override
        )
        learner = experiment.make_learner()
        if not any(part in override.split("=")[0] for part in DEAR):
            next(iterate(learner))
