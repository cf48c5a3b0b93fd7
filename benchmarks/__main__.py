"""``python -m benchmarks NAME ...`` runs a study; without a name the studies are listed."""

from __future__ import annotations

import sys
from importlib import import_module

STUDIES = {
    "against_sb3": "learning in worlds of others with defaults alone, beside Stable-Baselines3",
    "bit_flip": "hindsight experience replay, and DQN without it",
    "pictures": "others' worlds drawn for the docs",
}
"""Modules of this package that have a ``main``, and what they measure."""


def main(words: list[str]) -> int:
    """Run the study that the first word names with the others; returns the exit status."""
    if not words or words[0] not in STUDIES:
        print("\n".join(f"python -m benchmarks {name}: {what}" for name, what in STUDIES.items()))
        return 0 if not words or words[0] in ("-h", "--help") else 2
    return import_module(f"benchmarks.{words[0]}").main(words[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
