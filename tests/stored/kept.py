"""JSON that a diff can show: a line for each item of the outer levels."""

import json
from pathlib import Path
from typing import Any

STORED = Path(__file__).parent


def compact(told: Any, depth: int = 2) -> str:
    """JSON with a line for each item of the outer levels."""
    return _lines(told, depth, "") + "\n"


def _lines(value: Any, depth: int, margin: str) -> str:
    if not depth or not isinstance(value, dict) or not value:
        if depth and isinstance(value, list) and value:
            items = [f"{margin} {_line(each)}" for each in value]
            return "[\n" + ",\n".join(items) + f"\n{margin}]"
        return _line(value)
    items = [f"{margin} {json.dumps(str(name))}: {_lines(each, depth - 1, margin + ' ')}"
             for name, each in value.items()]  # fmt: skip
    return "{\n" + ",\n".join(items) + f"\n{margin}}}"


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
