"""What the guides show works."""

from __future__ import annotations

import re
from pathlib import Path

from envs import TownEnv
from torchrl_agent.experiment import CONFIGS

DOCS = CONFIGS.parent / "docs"


def block(path: Path, language: str) -> str:
    """The first block of code in a language."""
    found = re.search(rf"```{language}\n(.*?)```", path.read_text(), re.DOTALL)
    assert found is not None
    return found[1]


def test_the_towns_first_lines_run():
    code = block(DOCS / "town.md", "python").replace("1024", "8").replace(", compile=True", "")
    names: dict = {}
    exec(code, names)
    assert names["root"]["next", "agents", "reward"].shape == (8, 4, 1)


def test_the_students_own_town_can_be_lived_in(tmp_path):
    path = tmp_path / "my_town.yaml"
    path.write_text(block(DOCS / "town.md", "yaml"))
    env = TownEnv(2, level=path)
    assert env.rules.kinds[-1] == "CoffeeShop"
    assert env.rules.deployed == ["Bed", "Job", "HomeMeal", "CoffeeShop"]
    assert env.rollout(5).shape == (2, 5)


def test_an_agent_with_memory_plays_as_the_guide_says():
    names: dict = {}
    exec(block(DOCS / "agent.md", "python").replace("64", "4"), names)
    assert names["played"]["agents", "hidden"].shape == (4, 20, 1, 1, 128)
