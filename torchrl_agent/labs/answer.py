"""Answers to labs: the sheet that a student fills in, and its check by playing the repaired agent."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf

from torchrl_agent.core.checkpoint import write_text
from torchrl_agent.core.text import check_known, did_you_mean
from torchrl_agent.experiment.config_files import read_text
from torchrl_agent.experiment.judging import evaluate
from torchrl_agent.labs.lab import LABS, NEAR, Lab, find_lab

MODULES = ("perception", "world model", "social model", "policy")
FIELDS = ("lab", "module", "step", "repair")


@dataclass(frozen=True)
class Answer:
    """Answer of a student: the module with the fault, the first step at which it shows, and the letter of a repair."""

    lab: int
    module: str
    step: int
    repair: str


def sheet(number: int) -> str:
    """Return the questions of a lab, as a YAML file whose keys a student fills in."""
    lab = find_lab(number)
    repairs = "\n".join(f"#   {letter}  {words}" for letter, (words, _) in lab.repairs.items())
    return (
        f"# Lab {number}. One module of this agent has a fault. Open the page, and find it.\n"
        f"lab: {number}\n\n"
        f"# Which module has the fault: {', '.join(MODULES)}?\n"
        "module:\n\n"
        "# At which step does it first show: the first step at which it acts as the healthy agent would not?\n"
        "step:\n\n"
        "# Which repair brings the agent back?\n"
        f"{repairs}\n"
        "repair:\n"
    )


def read_answer(path: Path) -> Answer:
    """Read a filled-in sheet.

    Raises:
        ValueError: it cannot be read, or an answer is missing or none of the choices.
    """
    try:
        found = OmegaConf.to_container(OmegaConf.create(read_text(path)))
    except yaml.YAMLError:
        raise ValueError(f"{path} is no YAML: write each answer behind its key, such as 'step: 12'.") from None
    if not isinstance(found, dict):
        raise ValueError(f"{path} is no sheet of a lab: fill in the one that 'torchrl-agent lab NUMBER' wrote.")
    check_known(map(str, found), FIELDS, str(path))
    missing = [name for name in FIELDS if found.get(name) is None]
    if missing:
        raise ValueError(f"{path} has no {missing[0]}: write your answer behind '{missing[0]}:'.")
    return _checked(found, path)


def _checked(found: dict[Any, Any], path: Path) -> Answer:
    for name in ("lab", "step"):
        if isinstance(found[name], bool) or not isinstance(found[name], int) or found[name] < 0:
            raise ValueError(f"{path} has {name}: {found[name]!r}: give a number from 0.")
    module, letter = (str(found[name]).strip() for name in ("module", "repair"))
    module, letter, repairs = module.lower().replace("_", " "), letter.upper(), find_lab(found["lab"]).repairs
    if module not in MODULES:
        raise ValueError(f"{path} has module: {module!r}{did_you_mean(module, MODULES)}: use {', '.join(MODULES)}.")
    if letter not in repairs:
        raise ValueError(f"{path} has repair: {letter!r}: use one of {', '.join(repairs)}.")
    return Answer(found["lab"], module, found["step"], letter)


def write_sheet(number: int, path: Path) -> Path:
    """Write the questions, unless there is a sheet already, which may have answers in it."""
    if not path.exists():
        write_text(path, sheet(number))
    return path


def check(answer: Answer, episodes: int) -> dict[str, Any]:
    """Play the healthy agent, that with the fault, and that with the fault and the repair after it.

    Returns:
        ``returns`` by state, ``share`` of the healthy return that the repaired agent has, and whether ``module``,
        ``step`` and ``repair`` are right.
    """
    lab = find_lab(answer.lab)
    _, change = lab.repairs[answer.repair]
    returns = {
        state: played(lab, changes, episodes)
        for state, changes in {"healthy": (), "faulty": (lab.fault,), "repaired": (lab.fault, change)}.items()
    }
    return {
        "lab": answer.lab,
        "episodes": episodes,
        "returns": returns,
        "share": returns["repaired"] / returns["healthy"],
        "module": answer.module == lab.module,
        "step": abs(answer.step - lab.shows) <= NEAR,
        "repair": answer.repair == lab.right,
    }


def played(lab: Lab, changes: tuple[str, ...], episodes: int) -> float:
    """Return the mean return of a lab's agent with changes."""
    return float(evaluate(*lab.agent(*changes), episodes)["return_mean"])


def sentences(answer: Answer, result: dict[str, Any]) -> list[str]:
    """Return the result of a check in words; the right answers are not among them."""
    lab, returns = LABS[answer.lab], result["returns"]
    words, _ = lab.repairs[answer.repair]
    lost = 1 - returns["faulty"] / returns["healthy"]
    return [
        f"module: {answer.module} {_verdict(result['module'], 'the fault is elsewhere')}",
        f"step: {answer.step} {_verdict(result['step'], f'it does not first show within {NEAR} steps of this one')}",
        f"repair: {answer.repair}, {words}, {_verdict(result['repair'], 'it does not bring the agent back')}",
        f"return of {result['episodes']} games: {returns['healthy']:.1f} healthy, {returns['faulty']:.1f} with the "
        f"fault ({lost:.0%} lost), {returns['repaired']:.1f} repaired ({result['share']:.0%} of the healthy one)",
    ]


def _verdict(right: bool, otherwise: str) -> str:
    return "is right" if right else f"is wrong: {otherwise}"
