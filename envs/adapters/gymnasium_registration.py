"""Gymnasium ids of the worlds: ``TorchRLAgent/Arena-v0`` and so on."""

from __future__ import annotations

from collections.abc import Iterable

import gymnasium


def register_worlds(names: Iterable[str]) -> None:
    """Register the worlds for ``gymnasium.make`` and ``gymnasium.make_vec``; those already registered stay as they are.

    Worlds truncate their episodes themselves, so no time limit is added.
    """
    for name in names:
        identifier = f"TorchRLAgent/{name.capitalize()}-v0"
        if identifier not in gymnasium.registry:
            gymnasium.register(
                identifier,
                entry_point="envs.adapters.gymnasium_make:make_single",
                vector_entry_point="envs.adapters.gymnasium_make:make_vector",
                kwargs={"world": name},
            )
