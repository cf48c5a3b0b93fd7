"""The reference of all keys: complete, short, and as fresh as the dataclasses."""

import dataclasses
import re
import runpy
from collections import Counter
from pathlib import Path

import pytest

from torchrl_agent.algorithms.registry import ALGORITHMS
from torchrl_agent.experiment import Experiment, ExperimentFile
from torchrl_agent.experiment.compose import CONFIGS, config_names
from torchrl_agent.experiment.meanings import explained, meaning, short_meaning, summary
from torchrl_agent.pretrain import PretrainConfig

DOCS = Path(__file__).parents[2] / "docs"
TOOL = runpy.run_path(str(DOCS / "tools" / "keys.py"))
PAGES = sorted(path for path in DOCS.rglob("*.md") if "<!-- keys: " in path.read_text(encoding="utf-8"))
ROOTS = (ExperimentFile, PretrainConfig, *(each.config_class for each in ALGORITHMS.values()))


@pytest.mark.parametrize("root", ROOTS)
def test_every_key_says_in_few_words_what_it_means(root):
    for key in TOOL["keys_of"](root()):
        assert 0 < len(key.meaning.split()) <= 12, key


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(DOCS)))
def test_tables_of_keys_are_as_fresh_as_the_dataclasses(path):
    text = path.read_text(encoding="utf-8")
    assert TOOL["fill"](text) == text, "make keys"


def test_every_section_has_one_table():
    tables = Counter(
        section for path in PAGES for section in re.findall(r"<!-- keys: (.+) -->", path.read_text(encoding="utf-8"))
    )
    assert tables == Counter(TOOL["sections"]().keys())


def test_the_tables_have_every_key_of_every_configuration():
    known = {
        f"{section.replace('experiment', '')}.{key.name}".lstrip(".")
        for section, keys in TOOL["sections"]().items()
        for key in keys
    }
    for name in ("smoke", "town_agent"):
        for key in Experiment.load(name, "device=cpu").settings():
            free = ("world.", "evaluation.world.", "model.manager.goals.", "model.perception.encoders.", "algorithm")
            assert key in known or key.startswith(free), key


def test_an_algorithms_table_has_what_it_does_not_share():
    tables = {name: [key.name for key in keys] for name, keys in TOOL["sections"]().items()}
    assert "gamma" in tables["every algorithm"]
    assert "hindsight" in tables["dqn, sac and td3"]
    assert tables["algorithm=sac"] == ["num_steps", "initial_temperature", "deviation", "target_entropy"]
    (rate,) = [key for key in TOOL["sections"]()["algorithm=a2c"] if key.name == "learning_rate.initial"]
    assert rate.default == "`0.001`"


def test_a_table_keeps_what_is_written_by_hand():
    key = TOOL["Key"]
    old = "| key under `run` | default | meaning | change it when |\n|---|---|---|---|\n| `name` | x | y | you like |\n"
    fresh = TOOL["table"]("run", [key("name", "`null`", "Name."), key("film", "`true`", "Film it.")], old)
    assert fresh == (
        "| key under `run` | default | meaning | change it when |\n|---|---|---|---|\n"
        "| `name` | `null` | Name. | you like |\n| `film` | `true` | Film it. |  |\n"
    )


def test_a_short_meaning_has_the_choices():
    config = ALGORITHMS["a2c"].config_class
    assert short_meaning(config, "optimizer") == "Optimizer: adam, rmsprop."
    assert short_meaning(config, "num_minibatches") == "Updates per iteration."
    assert meaning(config, "num_minibatches").startswith("Updates per iteration. Each has")


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
