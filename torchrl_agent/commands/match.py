"""``torchrl-agent match``: two agents against each other."""

from __future__ import annotations

import argparse

from torchrl_agent.commands.arguments import add_json, add_trust
from torchrl_agent.json_text import to_json
from torchrl_agent.judging import WAYS
from torchrl_agent.matches import match


def add_match(parser: argparse.ArgumentParser) -> None:
    """Who plays, and how often."""
    for name in ("one", "other"):
        parser.add_argument(name, metavar=name.upper(), help="a run, a member's folder, or a scripted player's name")
    parser.add_argument("--games", type=int, default=512, help="games, half of them from each seat (512)")
    parser.add_argument("--seed", type=int, help="seed of the worlds")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    add_json(parser)
    add_trust(parser)


def run_match(parsed: argparse.Namespace) -> None:
    """Print the shares of the points."""
    result = match(parsed.one, parsed.other, parsed.games, parsed.device, parsed.seed)
    for way in WAYS:
        found = result[way]
        print(
            f"{way} actions: {parsed.one} takes {found['share']:.3f} ({found['low']:.3f} to {found['high']:.3f}) of "
            f"the points against {parsed.other}: {found['won']} won, {found['drawn']} drawn, {found['lost']} lost"
        )
    if parsed.json:
        print(to_json(result))
