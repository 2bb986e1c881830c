"""Recognise JSON files whose events are not lines but elements of arrays in larger documents."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple

from seglake.config.rules import flat
from seglake.times.candidates import candidate_formats

# A first line that is a valid object is only examined if it begins with an array of objects.
BEGINS_WITH_AN_ARRAY = re.compile(rb'\s*\{\s*"[A-Za-z_]\w*"\s*:\s*\[\s*\{')
_BEGINNING = re.compile(r'\s*(?:\[\s*\{|\{\s*"(\w+)"\s*:\s*\[)')
_CONSTANT = re.compile(rb"NaN|Infinity")
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)
_CLOCK = re.compile("%[HI]|iso|epoch")
_PARSED_LINES = 10


class EventArray(NamedTuple):
    """The location of events in JSON documents, as `input.records` and `input.inherit`.

    If `records` is ".", each document is an event.
    """

    records: str
    inherit: tuple[str, ...] = ()


KNOWN = {  # first member of a document, or None if it is an array → path to its events
    None: EventArray("[]"),
    "Records": EventArray("Records[]"),
    "resourceLogs": EventArray("resourceLogs[].scopeLogs[].logRecords[]", ("resource", "scope")),
    "resourceSpans": EventArray("resourceSpans[].scopeSpans[].spans[]", ("resource", "scope")),
}


def events_of(text: str) -> EventArray | None:
    """Return the path to the events in JSON documents. `text` is the beginning of the file.

    Return None if each line is an event, or if the text is not JSON. The path leads to the first
    array whose objects have times. If several documents have times outside of arrays, the documents
    are the events.
    """
    beginning, text = _BEGINNING.match(text), text.lstrip()
    if beginning is not None and (known := KNOWN.get(beginning[1])):
        return known
    first, end = _first_object(text)
    if first is None:
        return None
    rest = text[end:].lstrip(" \t")
    in_lines = "\n" not in text[:end] and rest[:1] in {"", "\r", "\n"}
    lines = text.split("\n", _PARSED_LINES)[:_PARSED_LINES] if in_lines else []
    documents = [each for line in lines if isinstance(each := parse_json(line), dict)] or [first]
    follow = rest.lstrip()[:1] == "{"
    if not ((in_lines or follow) and any(map(_has_time, documents))):
        for document in documents:
            for path, events in _arrays(document):
                if any(map(_has_time, events)):
                    return EventArray(path)
    path = next((path for path, _ in _arrays(first)), "") if len(first) == 1 else ""
    return EventArray(path or ".") if path or not in_lines else None


def _first_object(text: str) -> tuple[dict[str, Any] | None, int]:
    """Return (the first JSON object in a text, the position of its end), or (None, 0).

    If the text ends inside the object, it is closed after its last complete object or array.
    """
    open_brackets, closing, end = list[str](), "", 0
    line, *others = text.split("\n", 2)
    try:
        document, end = json.JSONDecoder().raw_decode(text)
    except RecursionError:
        return None, 0
    except json.JSONDecodeError:
        if others and not line.rstrip().endswith("[") and isinstance(parse_json(others[0]), dict):
            return None, 0  # only this line is cut off
        for token in _TOKEN.finditer(text):
            if token[0] in {"{", "["}:
                open_brackets.append({"{": "}", "[": "]"}[token[0]])
            elif token[0] in {"}", "]"}:
                open_brackets[-1:] = []
                closing, end = "".join(reversed(open_brackets)), token.end()
        document = parse_json(text[:end] + closing)
    return (document, end) if isinstance(document, dict) else (None, 0)


def _arrays(document: dict[str, Any]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield (path, elements) for each array of objects in a document, outer arrays first.

    An array inside another array is only found if every object of the outer array has it.
    Otherwise, events could be lost.
    """
    found = [("", [document])]
    for path, objects in found:  # the loop appends to this list
        for name in dict.fromkeys(chain.from_iterable(objects)):
            values = [each.get(name) for each in objects]
            if not name or any(each in name for each in ".[]"):
                continue
            if all(isinstance(each, list) for each in values):
                elements = [*chain.from_iterable(filter(None, values))]
                if elements and all(isinstance(each, dict) for each in elements):
                    yield f"{path}{name}[]", elements
                    found.append((f"{path}{name}[].", elements))
            elif "[" not in path and isinstance(values[0], dict):
                found.append((f"{path}{name}.", [values[0]]))


def _has_time(members: Mapping[str, Any]) -> bool:
    texts = (str(value) for _, value in flat(members) if isinstance(value, str | int | float))
    return any(_CLOCK.search(form) for text in texts for form in candidate_formats(text))


def parse_json(line: str) -> Any:
    """Return the value of a JSON text, or None if it is not valid. NaN and Infinity are valid."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


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
