"""The manager that configs/town.yaml describes, switched on."""

from copy import deepcopy
from dataclasses import replace
from functools import cache

from torchrl_agent.experiment import Experiment


@cache
def _manager():
    return Experiment.load("town", "device=cpu").model.manager


def town_manager(**changes):
    return replace(deepcopy(_manager()), enabled=True, **changes)
