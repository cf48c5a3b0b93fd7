"""``torchrl-agent explain``: show beliefs, predictions and choice of an agent in one step of an evaluation episode."""

from __future__ import annotations

import argparse
from pathlib import Path

from torchrl_agent.cli.arguments import add_agent, add_json, add_overrides, add_without, run_of
from torchrl_agent.core.text import to_json
from torchrl_agent.explain import as_dict, explain, write_page
from torchrl_agent.explain.diagnosis import diagnose
from torchrl_agent.explain.page import as_text


def add_explain(parser: argparse.ArgumentParser) -> None:
    """Add an agent and a step of an episode."""
    add_agent(parser)
    add_overrides(parser)
    parser.add_argument("--step", type=int, default=10, help="step of the episode, from 0 (10)")
    parser.add_argument("--world", type=int, default=0, help="number of the evaluation world (0)")
    parser.add_argument("--agent", type=int, default=0, help="number of the agent in its world (0)")
    add_without(parser)
    parser.add_argument("--output", help="also write the page, with pictures, as one .html file")
    add_json(parser)


def run_explain(parsed: argparse.Namespace) -> None:
    """Explain the step, and print the page."""
    where = (run_of(parsed), parsed.step, parsed.world, parsed.agent, parsed.device, parsed.checkpoint)
    thought = explain(*where, overrides=parsed.overrides, silent=parsed.without)
    diagnosis = diagnose(thought)
    print(as_text(thought, diagnosis))
    if parsed.output is not None:
        print(f"\n{write_page(thought, Path(parsed.output))}")
    if parsed.json:
        print(to_json(as_dict(thought, diagnosis)))
