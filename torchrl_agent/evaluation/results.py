"""Files of results that measuring commands keep, one entry per configuration."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

from torchrl_agent.core.checkpoint import write_json


def put_result(path: Path, result: dict[str, Any]) -> None:
    """Write a result with today's date into a JSON file of results. It replaces the entry with the same ``config`` and
    ``overrides``; keys that people added to that entry (such as figures of others) stay.

    Raises:
        ValueError: the file exists and is no such list.
    """
    try:
        results = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
        names = [(each["config"], each["overrides"]) for each in results]
    except (json.JSONDecodeError, KeyError, TypeError):
        raise ValueError(f"{path} is no list of results: choose another file.") from None
    name, dated = (result["config"], result["overrides"]), {**result, "date": date.today().isoformat()}
    if name in names:
        results[names.index(name)] |= dated
    else:
        results.append(dated)
    write_json(path, results)
