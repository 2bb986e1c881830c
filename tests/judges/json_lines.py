"""JSON lines as Python's json reads them, against the JSON scanner."""

import json
import re
from typing import Any

from seglake.format.records import Spans
from seglake.text.json_fields import FieldNames
from seglake.text.newlines import split_lines
from seglake.write.rows.json_rows import JsonRows
from seglake.write.rows.rows import Reason
from tests.makers.files import chunk

NAMES = ("a", "b", "a.b", "a.b.c", "é", "")


class Number(str):
    """A number as it is written."""


def no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def parse(line: bytes) -> Any:
    """The object on a line, or None if it is not valid JSON or no object."""
    try:
        value = json.loads(
            line.decode(), parse_int=Number, parse_float=Number, parse_constant=no_constant
        )
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def lookup(value: Any, name: str) -> Any:
    """The key so named, or else the rest of the name in the object at its first part; or None."""
    if name in value:
        return value[name]
    first, _, rest = name.partition(".")
    below = value.get(first) if rest else None
    return lookup(below, rest) if isinstance(below, dict) else None


def shown(value: Any) -> bytes | None:
    """How a scalar comes out: strings as they are, others as they are written."""
    if value is None or isinstance(value, (dict, list)):
        return None
    if isinstance(value, bool):
        return b"true" if value else b"false"
    return re.sub("[\ud800-\udfff]", "\ufffd", str(value)).encode()


def scan(data: bytes) -> JsonRows:
    text = chunk(data)
    starts, lengths, numbers, count = split_lines(text.data, text.start, text.end)
    return JsonRows(Spans(text.data, starts, lengths), numbers, count, FieldNames(NAMES))


def check(lines: list[bytes]) -> None:
    """Every line, as one chunk, against the model."""
    rows = scan(b"\n".join(lines))
    kept = [re.sub(b"^(\xef\xbb\xbf)+|\r$", b"", line) for line in lines]
    kept = [line for line in kept if line]
    assert rows.raw.tolist() == kept
    columns = {name: (rows.field(name).tolist(), rows.json(name).tolist()) for name in NAMES}
    for number, line in enumerate(kept):
        value = parse(line)
        assert (rows.reasons[number] == Reason.NONE) == (value is not None), line
        for name, (fields, texts) in columns.items():
            wanted = None if value is None else lookup(value, name)
            if isinstance(wanted, (dict, list)):
                assert parse_any(fields[number]) == wanted
            else:
                assert fields[number] == shown(wanted), (line, name)
            assert parse_any(texts[number]) == wanted


def parse_any(text: bytes | None) -> Any:
    return None if text is None else json.loads(text, parse_int=Number, parse_float=Number)
