"""Lines of JSON that are no event: one object around an array of events, or one with NaN."""

import json
import re
from collections.abc import Mapping
from typing import Any

_BEGINS = re.compile(rb'\s*\{\s*"[A-Za-z_]\w*"\s*:\s*\[\s*\{')  # most lines need no parser
_CONSTANT = re.compile(rb"NaN|Infinity")
NO_CONSTANTS = (
    "NaN or Infinity, which is no JSON, though Python's json.dumps writes it: write null instead"
)
_UNPACKS = {".gz": "gzip -dc", ".bz2": "bzip2 -dc", ".zst": "zstd -dc", ".zstd": "zstd -dc"}


def array_alone(line: bytes) -> str | None:
    """The name of the field of a JSON object that has one alone, an array of objects; else None."""
    if not _BEGINS.match(line):
        return None
    try:
        members = json.loads(line)
    except (ValueError, RecursionError):
        return None
    names = [*arrays_in(members)] if isinstance(members, dict) and len(members) == 1 else []
    return names[0] if names else None


def has_constants(line: bytes) -> bool:
    """Whether a line is an object of JSON but for a NaN or an Infinity, which Python writes."""
    if not _CONSTANT.search(line):
        return False
    constants = list[str]()
    try:
        members = json.loads(line, parse_constant=constants.append)
    except (ValueError, RecursionError):
        return False
    return isinstance(members, dict) and bool(constants)


def arrays_in(members: Mapping[str, Any]) -> list[str]:
    """The names of the fields that are arrays of objects."""
    return [
        name
        for name, value in members.items()
        if isinstance(value, list) and value and all(isinstance(each, dict) for each in value)
    ]


def lines_of(name: str, path: str) -> str:
    """What is wanted instead of an array in a field, and the command that makes it."""
    field = f".{name}" if re.fullmatch(r"[A-Za-z_]\w*", name) else f".[{json.dumps(name)}]"
    unpacks = next((_UNPACKS[end] for end in _UNPACKS if path.endswith(end)), "")
    command = f"{unpacks} FILE | jq -c '{field}[]'" if unpacks else f"jq -c '{field}[]' < FILE"
    return f"one event a line is wanted: `{command}` makes lines of the array in field {name!r}"
