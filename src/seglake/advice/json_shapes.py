"""Recognise JSON files that do not have one event in each line."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from seglake.advice.finding import Finding

# This check is fast, so that only few lines are parsed.
_OBJECT_WITH_AN_ARRAY = re.compile(rb'\s*\{\s*"[A-Za-z_]\w*"\s*:\s*\[\s*\{')
_ARRAY_INSIDE = re.compile(r'\s*\{\s*"(\w+)"\s*:\s*\[')
_ARRAY = re.compile(r"\s*\[\s*(?:[{\[]|$)")
_BEGINNING = re.compile(r'\s*(?:\[\s*\{|\{\s*"(\w+)"\s*:\s*\[)')
_CONSTANT = re.compile(rb"NaN|Infinity")


class EventArray(NamedTuple):
    """Values of `input.records` and `input.inherit`."""

    records: str
    inherit: tuple[str, ...] = ()


_KNOWN = {  # by the first member of a document; None for an array
    None: EventArray("[]"),
    "Records": EventArray("Records[]"),
    "resourceLogs": EventArray("resourceLogs[].scopeLogs[].logRecords[]", ("resource", "scope")),
    "resourceSpans": EventArray("resourceSpans[].scopeSpans[].spans[]", ("resource", "scope")),
}


def known_events(text: str) -> EventArray | None:
    """Return where the events of a text are if it surely begins such a document, else None."""
    beginning = _BEGINNING.match(text)
    return _KNOWN.get(beginning[1]) if beginning else None


def _events_in(member: str) -> str:
    return _KNOWN.get(member, EventArray(f"{member}[]")).records


def parse_json(line: str) -> Any:
    """Return the value of a line of JSON, or None if it is not JSON. NaN is allowed."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def json_shape_finding(lines: Sequence[str], path: str) -> Finding | None:
    """Return a finding if the first lines of a file have another shape than JSON lines."""
    first = lines[0].strip() if lines else ""
    if _ARRAY.match(first):
        return Finding("json-array", path)
    if name := lone_array(first.encode("utf-8", "replace")):
        return Finding("array-in-field", path, {"records": _events_in(name)})
    if not first.startswith("{"):
        return None
    found = None
    try:
        _, end = json.JSONDecoder().raw_decode(first)
        if first[end:].lstrip().startswith("{"):
            found = Finding("several-objects", path)
    except json.JSONDecodeError as error:
        ends_early = error.pos >= len(first) or first.endswith(",")
        if len(lines) > 1 and ends_early and not isinstance(parse_json(lines[1]), dict):
            inside = _ARRAY_INSIDE.match("\n".join(lines[:2]))
            records = _events_in(inside[1] if inside else "Records")
            found = Finding("json-over-lines", path, {"records": records})
    except RecursionError:
        pass
    return found


def lone_array(line: bytes) -> str | None:
    """Return the name of an array of objects that is the only member of a JSON object."""
    if not _OBJECT_WITH_AN_ARRAY.match(line):
        return None
    members = parse_json(line.decode("utf-8", "replace"))
    names = arrays_of_objects(members) if isinstance(members, dict) and len(members) == 1 else []
    return names[0] if names else None


def has_constants(line: bytes) -> bool:
    """Return whether only NaN or Infinity prevents a line from being a JSON object."""
    if not _CONSTANT.search(line):
        return False
    constants = list[str]()
    try:
        members = json.loads(line, parse_constant=constants.append)
    except (ValueError, RecursionError):
        return False
    return isinstance(members, dict) and bool(constants)


def arrays_of_objects(members: Mapping[str, Any]) -> list[str]:
    """Return the names of the members that are arrays of objects."""
    return [
        name
        for name, value in members.items()
        if isinstance(value, list) and value and all(isinstance(each, dict) for each in value)
    ]
