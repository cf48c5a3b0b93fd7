"""The manager that configs/town.yaml describes, switched on."""

from dataclasses import replace

from torchrl_agent.experiment import Experiment


def town_manager(**changes):
    return replace(Experiment.load("town", "device=cpu").model.manager, enabled=True, **changes)
