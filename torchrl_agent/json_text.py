"""JSON as the standard has it, which knows no infinity and no NaN."""

from __future__ import annotations

import json
import math
from typing import Any


def to_json(value: Any, indent: int | None = None) -> str:
    """Plain values as JSON; a number that is not finite is null."""
    return json.dumps(_finite(value), indent=indent, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    return [_finite(each) for each in value] if isinstance(value, (list, tuple)) else value
