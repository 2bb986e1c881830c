"""Derive a topic's value format, which states how fields are found in values, from its settings.

A value format is one line of JSON, or "" for values that are JSON objects. Topics with equal lines
find the same fields. So a key index stores the line with which it was built, and is only used for a
search with this line.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

ValueFormat = str
JSON: ValueFormat = ""
OWN_SETTINGS: Mapping[str, Mapping[str, Any]] = {  # of each format, with their defaults
    "json": {},
    "csv": {"value.columns": (), "value.delimiter": ",", "value.quote": '"', "value.escape": None},
    "text": {"value.pattern": None},
}


def value_format_of(settings: Mapping[str, Any]) -> ValueFormat:
    """Return the value format of a topic with these settings."""
    name = settings.get("value.format", "json")
    if name == "json":
        return JSON
    own = OWN_SETTINGS.get(name, {})
    parts = {key.removeprefix("value."): settings.get(key, own[key]) for key in own}
    # Older key indexes have a line without the settings that were added later.
    return line_of({"format": name, **{k: v for k, v in parts.items() if v is not None}})


def line_of(parts: Mapping[str, Any]) -> ValueFormat:
    """Format these parts as a value format, one line of ASCII. `json.loads` is the inverse."""
    return json.dumps(parts, sort_keys=True, separators=(",", ":"))
