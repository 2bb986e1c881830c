"""Lines and the JSON objects in them: one a line is wanted."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

_ARRAY_INSIDE = re.compile(r'\s*\{\s*"(\w+)"\s*:\s*\[')
_WANTED = "one JSON object a line is wanted"
A_LINE_OF_EACH = "`jq -c . < FILE` makes a line of each object"


def parsed(line: str) -> Any:
    """What a line of JSON is, which may have NaN though that is none; None if it is none."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def is_object(line: str) -> bool:
    """Whether a line is a JSON object."""
    return isinstance(parsed(line), dict)


def not_one_a_line(lines: Sequence[str]) -> Iterator[str]:
    """What is said of lines whose first has several JSON objects, or the beginning of one."""
    if _holds_several(lines[0]):
        yield f"has several JSON objects in a line; {_WANTED}: {A_LINE_OF_EACH}"
    if _goes_on(lines):
        inside = _ARRAY_INSIDE.match("\n".join(lines[:2]))
        array = inside and f"`jq -c '.{inside[1]}[]' < FILE` makes lines of the array in it, and "
        yield f"is JSON over several lines; {_WANTED}: {array or ''}{A_LINE_OF_EACH}"


def _holds_several(line: str) -> bool:
    """Whether a line is one JSON object after another, as Kinesis Data Firehose delivers them."""
    text = line.strip()
    if not text.startswith("{"):
        return False
    try:
        first, end = json.JSONDecoder().raw_decode(text)
    except (json.JSONDecodeError, RecursionError):
        return False
    return isinstance(first, dict) and text[end:].lstrip().startswith("{")


def _goes_on(lines: Sequence[str]) -> bool:
    """Whether the first line is the beginning of a JSON object that ends in a later one."""
    first = lines[0].strip()
    if not first.startswith("{") or len(lines) == 1 or is_object(lines[1]):
        return False
    try:
        json.JSONDecoder().raw_decode(first)
    except json.JSONDecodeError as error:
        return error.pos >= len(first) or first.endswith(",")  # of which new Pythons complain
    except RecursionError:
        return False
    return False
