"""The model card: ``README.md`` of a finished run, which says what was trained, how it was judged and how to use it."""

from __future__ import annotations

import json
import logging
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torchrl_agent.core.checkpoint import read_json, write_text
from torchrl_agent.core.run_names import PREFIX, run_name_of
from torchrl_agent.core.tables import markdown, printable
from torchrl_agent.experiment import Experiment
from torchrl_agent.runs.lineage import PICTURE
from torchrl_agent.runs.members import FOLDER

logger = logging.getLogger(__name__)

_ENDED = {"stopped": "; stopped before its end", "mark": "; ended when it reached its mark"}


def write_model_card(folder: Path, experiment: Experiment, summary: dict[str, Any]) -> None:
    """Write ``README.md`` into a run's folder.

    Args:
        folder: folder of the run; versions and commit are those of its code.json.
        summary: content of summary.json.
    """
    write_text(folder / "README.md", model_card(folder, experiment, summary))


def model_card(folder: Path, experiment: Experiment, summary: dict[str, Any]) -> str:
    """The card's text; see :func:`write_model_card`."""
    of = f", in the best of {summary['film_of']} episodes" if summary.get("film_of", 1) != 1 else ""
    film = f"![The trained policy{of}]({summary['film']})\n\n" if summary.get("film") else ""
    return (
        f"# {_text(folder.resolve().name)}\n\n"
        f"An agent for the world {_inline(experiment.world['_target_'])}, trained by "
        f"{_text(experiment.algorithm_class.name.upper())} with the configuration {_inline(experiment.name)} and seed "
        f"{experiment.seed}.\n\n"
        f"{film}"
        f"## What was trained\n\n{_training(folder, experiment, summary)}\n"
        f"{_population(folder, summary)}"
        f"## How it was judged\n\n{_judgment(experiment, summary)}\n"
        f"## How to use it\n\n{_usage(folder, summary)}\n"
        f"## Limits\n\n{_limits(experiment)}"
    )


def _training(folder: Path, experiment: Experiment, summary: dict[str, Any]) -> str:
    code = _code(folder)
    commit = _inline(code["commit"]) if code.get("commit") else "unknown (not trained from a git checkout)"
    if code.get("changes"):
        commit += " with uncommitted changes, kept in [code.json](code.json)"
    world = {name: value for name, value in experiment.world.items() if name != "_target_"}
    rows = {
        "configuration": f"{_inline(experiment.name)}; [config.yaml](config.yaml) has every setting",
        "world": f"{_inline(experiment.world['_target_'])} {_settings(world)}",
        "seed": experiment.seed,
        "frames": f"{summary['frames']:,} (steps summed over worlds){_ENDED.get(summary.get('ended', ''), '')}",
        "time": f"{summary['seconds']:,.0f} s on {_text(summary['device'])}, since the run began or was last resumed",
        "versions": ", ".join(_text(f"{name} {version}") for name, version in code.get("versions", {}).items())
        or "unknown",
        "commit": commit,
        **_origin(summary),
    }
    return _table("what", "value", rows)


def _origin(summary: dict[str, Any]) -> dict[str, str]:
    """Modules of an exported agent that were trained before it."""
    origin = summary.get("origin", {})
    frozen = [f"{name} (frozen)" if name in origin["frozen"] else name for name in origin.get("pretrained", [])]
    return {"pre-trained modules": _text(", ".join(frozen))} if frozen else {}


def _code(folder: Path) -> dict[str, Any]:
    """Content of a run's code.json; empty if there is none or it is damaged."""
    path = folder / "code.json"
    code = read_json(path)
    whole = isinstance(code, dict) and isinstance(code.get("versions", {}), dict)
    if path.is_file() and not whole:
        logger.warning("%s is damaged: the model card does not tell versions and commit", path)
    return code if whole else {}


def _population(folder: Path, summary: dict[str, Any]) -> str:
    """Section on the present members and their evolution; empty for a run of one agent."""
    if "population" not in summary:
        return ""
    population = summary["population"]
    members = population["members"]
    rows = [[f"[{index}]({FOLDER}/{index:02d})", *map(_figure, each.values())] for index, each in enumerate(members)]
    evolved = ""
    if population["evolution_steps"]:
        copies = " ([lineage.csv](lineage.csv))" if population["replaced"] else ""
        evolved = (
            f" After {population['evolution_steps']} evolution steps ([members.csv](members.csv)), "
            f"{population['replaced']} were replaced by copies or children of others{copies}."
        )
    tree = f"\n![Who descends from whom]({PICTURE})\n" if (folder / PICTURE).is_file() else ""
    return (
        f"## Its members\n\n{len(members)} members learned in one program; the agent is the best of them.{evolved}\n\n"
        f"{_rows(['member', *members[0]], rows)}{tree}\n"
    )


def _judgment(experiment: Experiment, summary: dict[str, Any]) -> str:
    if "evaluation" not in summary:
        return "Not yet: `torchrl-agent evaluate`, below, does it.\n"
    config, figures = experiment.evaluation, summary["evaluation"]
    how = "took its most likely actions" if config.deterministic else "sampled its actions"
    other = f", which differ from those of training in {_settings(config.world)}" if config.world else ""
    rows = {_text(name): _text(_figure(value)) for name, value in figures.items()}
    return (
        f"The final policy {how} in the first episode of each of {figures['episodes']} worlds with seed "
        f"{config.seed}{other}.\n\n{_table('figure', 'value', rows)}"
    )


def _usage(folder: Path, summary: dict[str, Any]) -> str:
    """A snippet and commands; no film of a world that is known not to be drawn."""
    name = _place(folder)
    run = shlex.quote(name)
    commands = [f"torchrl-agent evaluate {run}"]
    if summary.get("film", "untried") is not None:
        commands.append(f"torchrl-agent film {run}")
    more = "" if summary.get("ended") == "stopped" else f" total_frames={2 * summary['frames']}"
    exported = "origin" in summary
    made = "exported" if exported else "trained"
    if not exported:
        commands.append(f"torchrl-agent resume {run}{more}")
    return (
        "```python\n"
        "from torchrl_agent import load\n"
        f"experiment, agent = load({json.dumps(name, ensure_ascii=False)})\n"
        "world = agent.attach(experiment.make_world(evaluation=True, num_envs=4))\n"
        "played = world.rollout(100, agent.policy)\n"
        "```\n\n"
        "```\n"
        + "\n".join(commands)
        + "\n```\n\n"
        + (
            ""
            if name.startswith(PREFIX)
            else f"The path holds where the run was {made} or, if it is a name alone, in the folder above it; give the "
            "present one after moving it.\n"
        )
        + ("It has no optimizer and no worlds to go on with, so it cannot be resumed.\n" if exported else "")
    )


def _place(folder: Path) -> str:
    """Name of the run from the working directory; without the path to a folder elsewhere, which is private."""
    name, here = run_name_of(folder), Path.cwd()
    if name.startswith(PREFIX):
        return name
    whole = here / folder
    return str(whole.relative_to(here)) if whole.is_relative_to(here) else whole.name


def _limits(experiment: Experiment) -> str:
    return (
        f"- One training run with one seed ({experiment.seed}): others may do better or worse. Train several and put "
        "them side by side with `torchrl-agent compare`.\n"
        f"- It has seen {_inline(experiment.world['_target_'])} with the settings above only: nothing is known of "
        "other worlds, rules or observations.\n"
        "- Checkpoints are read by the versions above; others may refuse them.\n"
    )


def _settings(values: dict[str, Any]) -> str:
    return ", ".join(_inline(f"{name}={json.dumps(value, default=str)}") for name, value in values.items())


def _inline(text: Any) -> str:
    """Inline code, whatever the text holds: between more backticks than it has in a row."""
    text = printable(str(text))
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    space = " " if len(fence) > 1 else ""
    return f"{fence}{space}{text}{space}{fence}"


def _text(text: Any) -> str:
    """Text in which Markdown and HTML find no markup."""
    return re.sub(r"([\\`*\[\]<>&#!])", r"\\\1", printable(str(text)))


def _figure(value: Any) -> str:
    return "unknown" if value is None else f"{value:,.4g}" if isinstance(value, float) else str(value)


def _table(left: str, right: str, rows: dict[str, Any]) -> str:
    return _rows([left, right], list(rows.items()))


def _rows(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    return markdown([header, *rows]) + "\n"
