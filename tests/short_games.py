"""Games of the Arena and the Town that end soon, where guides and notebooks show whole episodes: with thousands of
steps each, they would be most of what those take.
"""

import dataclasses

from envs.arena.rules import RULES
from envs.town import levels

STEPS = 30


def shorten(set_item=dict.__setitem__, set_attribute=setattr) -> None:
    """In this process; a test hands over the functions of ``monkeypatch``, which undo it."""
    read = levels._read_level
    set_item(RULES, "classic", dataclasses.replace(RULES["classic"], max_steps=STEPS))
    set_attribute(levels, "_read_level", lambda *place: {**read(*place), "max_steps": STEPS})
