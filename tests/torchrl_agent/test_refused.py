"""Configurations that do not fit together are refused in one sentence, those of ``refused.yaml`` word by word."""

import shlex
from pathlib import Path

import pytest
import yaml

from torchrl_agent.experiment import Experiment

REFUSED = yaml.safe_load(Path(__file__).with_name("refused.yaml").read_text(encoding="utf-8"))


@pytest.mark.slow
@pytest.mark.parametrize("part", REFUSED)
def test_what_does_not_fit_is_refused_in_a_sentence(part):
    for row in REFUSED[part]:
        config, *overrides = shlex.split(row["train"])
        with pytest.raises(ValueError) as error:
            Experiment.load(config, *overrides).make_learner()
        assert str(error.value) == row["says"]
