"""Sphinx's roles in docstrings, such as ``:class:`~envs.ArenaEnv```, as plain code: mkdocstrings does not read them."""

from __future__ import annotations

import re
from typing import Any

import griffe

ROLE = re.compile(r":(?:class|meth|func|attr|data|mod|exc|obj):`(~?)([^`]+)`")


def plain(text: str) -> str:
    """``text`` with each role as its name in code; with a tilde, as in Sphinx, the last part of it."""
    return ROLE.sub(lambda found: f"`{found[2].rpartition('.')[2] if found[1] else found[2]}`", text)


class Roles(griffe.Extension):
    """Rewrites the docstring of everything that is loaded."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of one object."""
        if obj.docstring is not None:
            obj.docstring.value = plain(obj.docstring.value)
