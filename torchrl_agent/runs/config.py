"""The configuration of a run, as it is stored."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from torchrl_agent.experiment import Experiment
from torchrl_agent.run_names import CONFIG
from torchrl_agent.training.checkpoint import write_text
from torchrl_agent.trust import check, record


def write_config(experiment: Experiment, folder: Path) -> None:
    """Write ``config.yaml``, and a record that it is trusted if it needs one: whoever trains has trusted it already."""
    path, text = folder / CONFIG, experiment.to_yaml()
    write_text(path, text)
    plain = dataclasses.asdict(experiment)
    if any(check.in_words(plain)) or any(check.in_targets(plain)):
        record.record(text, path)
