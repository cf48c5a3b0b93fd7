"""Labs: trained agents with one fault each. Whoever reads on reads the answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torchrl_agent.core.run_names import find_run
from torchrl_agent.experiment import Experiment
from torchrl_agent.explain import reward_unit
from torchrl_agent.explain.reference import find_reference
from torchrl_agent.labs.faults import FAULTS
from torchrl_agent.labs.repairs import repair
from torchrl_agent.models.agent import Agent
from torchrl_agent.replay import RecordConfig
from torchrl_agent.replay.recorder import record_agent
from torchrl_agent.runs.load import load_agent

AHEAD = 6
"""Number of steps for which other actions are played on in a page."""
NEAR = 2
"""Largest distance of a right step from the first one at which a fault shows."""

Repairs = dict[str, tuple[str, str]]
"""By letter: what is done, in words, and the line of :func:`~torchrl_agent.labs.repairs.repair`."""


@dataclass(frozen=True)
class Lab:
    """An agent with one fault, and repairs of which one is right.

    Args:
        run: the healthy agent.
        fault: a line of :mod:`torchrl_agent.labs.faults`.
        repairs: what a student can choose from.
        right: letter of the right one.
        world: number of the evaluation world whose game is shown.
        shows: first step of that game at which the fault shows (``first_steps`` of benchmarks/labs.py).
        steps: longest game that is shown.
    """

    run: str
    fault: str
    repairs: Repairs
    right: str
    world: int
    shows: int
    steps: int = 72

    @property
    def module(self) -> str:
        """Module that has the fault."""
        return FAULTS[self.fault.split()[0]].module

    def agent(self, *changes: str) -> tuple[Experiment, Agent]:
        """Return the healthy agent, or with changes: the fault, and repairs after it."""
        experiment, agent = load_agent(self.run, "cpu")
        for change in changes:
            repair(agent.eval(), experiment, find_run(self.run), change)
        return experiment, agent.eval()


EYES: Repairs = {
    "A": ("mirror what perception sees along x: left becomes right", "mirrored x"),
    "B": ("mirror what perception sees along y: up becomes down", "mirrored y"),
}
DREAMS: Repairs = {
    **EYES,
    "C": ("exchange up and down in what the world model reads", "actions up down"),
    "D": ("exchange left and right in what the world model reads", "actions left right"),
    "E": ("exchange interact and wait in what the world model reads", "actions interact wait"),
}
LEARNING: Repairs = {
    **DREAMS,
    "E": ("let the world model learn anew from a scripted player, upon the same perception", "retrain world_model"),
}
READER: Repairs = {
    **EYES,
    "C": (
        "exchange the needs social and fitness in what the social model says of others",
        "others_need social fitness",
    ),
    "D": ("exchange left and right in what the social model says that others do next", "others_action left right"),
    "E": ("exchange the looks happy and sad in what the social model reads of others", "cues looks_happy looks_sad"),
}
GOALS: Repairs = {
    **EYES,
    "C": ("make it far less likely that the manager chooses to rest", "goal rest -20"),
    "D": ("make it far less likely that the manager chooses to eat", "goal eat -20"),
    "E": ("make it far less likely that the manager chooses to earn", "goal earn -20"),
}

LABS = {
    1: Lab("shipped:payday", "mirrored y", DREAMS, "B", world=0, shows=3),
    2: Lab("shipped:payday", "hourless", LEARNING, "E", world=5, shows=5),
    3: Lab("shipped:tonight", "cues looks_happy looks_sad", READER, "E", world=3, shows=24),
    4: Lab("shipped:market_day", "goal earn 20", GOALS, "E", world=5, shows=2),
}
"""Labs by number: lost, wrong physics, misread, obsessed."""


def find_lab(number: int) -> Lab:
    """Return a lab.

    Raises:
        ValueError: there is none of that number.
    """
    if number not in LABS:
        raise ValueError(f"there is no lab {number}: choose one of {', '.join(map(str, LABS))}.")
    return LABS[number]


def record_lab(number: int) -> dict[str, Any]:
    """Return the record of the game of an agent with a fault, without a diagnosis."""
    lab = find_lab(number)
    experiment, agent = lab.agent(lab.fault)
    run = find_run(lab.run)
    config = RecordConfig(lab.world, ahead=AHEAD, steps=lab.steps)
    record = record_agent(f"lab {number}", experiment, agent, config, reward_unit(experiment, run), find_reference(run))
    for here in record["episodes"][-1]["thoughts"]:
        for thought in here:
            if thought is not None:
                thought["surprises"] = []
    return record
