"""The reference of all keys: complete, and as fresh as the dataclasses."""

import dataclasses
from pathlib import Path

import pytest

from torchrl_agent.algorithms.registry import ALGORITHMS
from torchrl_agent.experiment import Experiment, ExperimentFile
from torchrl_agent.experiment.compose import CONFIGS, config_names
from torchrl_agent.experiment.reference import Key, explained, keys_of, meaning, page, summary
from torchrl_agent.pretrain import PretrainConfig

ROOTS = (ExperimentFile, PretrainConfig, *(each.config_class for each in ALGORITHMS.values()))
PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"


@pytest.mark.parametrize("root", ROOTS)
def test_every_key_says_what_it_means(root):
    assert [key.name for key in keys_of(root) if not key.meaning] == []


def test_the_page_is_as_fresh_as_the_dataclasses():
    assert PAGE.read_text(encoding="utf-8") == page(), "torchrl-agent configs --page > docs/configuration.md"


def test_the_page_has_every_key_of_every_configuration():
    shown = PAGE.read_text(encoding="utf-8")
    for name in ("smoke", "town_agent"):
        for key in Experiment.load(name, "device=cpu").settings():
            free = ("world.", "evaluation.world.", "model.manager.goals.", "model.perception.encoders.")
            assert f"`{key}`" in shown or key.startswith(free) or key == "algorithm", key


def test_keys_come_with_type_range_default_and_meaning():
    keys = {key.name: key for key in keys_of(ALGORITHMS["ppo"].config_class)}
    assert keys["gamma"] == Key("gamma", "number within [0, 1]", "`0.99`", "Discount factor.")
    assert keys["target_kl"].type == "number above 0, or null"
    assert keys["learning_rate.schedule"].type == "constant, linear, exponential, cosine, adaptive"
    assert keys["num_epochs"].type == "whole number at least 1, at most 1,000,000"
    assert keys["normalize_advantage"].default == "`true`"


def test_a_field_of_a_derived_section_means_what_the_first_says():
    @dataclasses.dataclass
    class Mine(ALGORITHMS["ppo"].config_class):
        gamma: float = 0.5

    assert meaning(Mine, "gamma") == "Discount factor."


def test_a_configuration_is_shown_with_meanings_and_is_read_again(tmp_path):
    loaded = Experiment.load("town_agent", "device=cpu", "algorithm=a2c")
    shown = explained(loaded)
    assert "  rmsprop_decay: 0.99  # Smoothing constant (alpha) of RMSprop's mean of squared gradients." in shown
    assert "    belief_size: 64  # D, size of the latent state, the belief." in shown
    path = tmp_path / "shown.yaml"
    path.write_text(shown)
    assert Experiment.load(path) == loaded


@pytest.mark.parametrize("name", config_names())
def test_every_configuration_says_what_it_is(name):
    assert 10 < len(summary(name)) < 140
    assert summary(name).endswith(".")
    assert (CONFIGS / f"{name}.yaml").is_file()
