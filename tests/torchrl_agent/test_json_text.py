"""JSON without infinity and NaN, by one function."""

import json
import math
import re
from pathlib import Path

import torchrl_agent
from torchrl_agent.core.checkpoint import write_json
from torchrl_agent.core.text import to_json


def refuse(constant):
    raise AssertionError(f"{constant} is no JSON")


def test_what_is_not_finite_is_null_wherever_it_stands(tmp_path):
    value = {"a": math.nan, "b": [math.inf, (1.5, -math.inf)], "c": {"d": {"e": math.nan}}, "f": True, "g": "NaN"}
    expected = {"a": None, "b": [None, [1.5, None]], "c": {"d": {"e": None}}, "f": True, "g": "NaN"}
    assert json.loads(to_json(value), parse_constant=refuse) == expected
    write_json(tmp_path / "a.json", value)
    assert json.loads((tmp_path / "a.json").read_text(), parse_constant=refuse) == expected


def test_nothing_else_writes_json():
    package = Path(torchrl_agent.__file__).parent
    plain = {
        "text.py",
        "compose.py",
        "model_card.py",
        "report.py",
        "checkpoint.py",
        "record.py",
        "game.py",
    }
    found = {path.name for path in package.rglob("*.py") if re.search(r"\bjson\.dumps?\(", path.read_text())}
    assert found <= plain  # whose JSON is a name, a hash, a word of a page, or finite
