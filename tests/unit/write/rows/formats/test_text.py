"""Fields by a pattern, against Python's re."""

import re
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from tests.makers.files import read_bytes

PATTERN = r"(?P<word>[a-zé]+)(?: (?P<number>\d+))?;"
lines = st.lists(st.text("aé1 ;\0\r", max_size=8) | st.binary(max_size=4), max_size=10)


@given(lines)
@example(["ab 1;x", "ab;", "1ab;", b"a\xff;", "  ab;", "\r"])
def test_groups_as_found_by_re(items: list[str | bytes]) -> None:
    packed = [item if isinstance(item, bytes) else item.encode() for item in items]
    found = read_bytes(
        b"\n".join(packed),
        "text",
        input={"pattern": PATTERN, "compression": "none"},
        key={"fields": ["word"]},
        headers={"fields": ["number"]},
    )
    rows, rejects = [], []
    for line in b"\n".join(packed).removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        raw = line.removesuffix(b"\r")
        try:
            match = re.match(PATTERN, raw.decode())
        except UnicodeDecodeError:
            rejects.append((raw, "invalid UTF-8"))
            continue
        if match:
            number = match["number"]
            rows.append((raw, match["word"].encode(), number and number.encode()))
        elif raw:
            rejects.append((raw, "not parseable"))
    assert [(row.value, row.key, row.headers[0][1]) for row in found.rows] == rows
    assert [(reject.raw, reject.reason) for reject in found.rejects] == rejects


def test_without_a_pattern_any_bytes_are_a_record() -> None:
    assert [row.value for row in read_bytes(b"\xff\xfe\n\x00", "text").rows] == [
        b"\xff\xfe",
        b"\x00",
    ]


def test_values_from_groups() -> None:
    tables: dict[str, Any] = {"input": {"pattern": PATTERN}, "value": {"from": "columns"}}
    found = read_bytes('é 12; and "more"\nab;'.encode(), "text", **tables)
    assert [row.value for row in found.rows] == [
        '{"word":"é","number":"12"}'.encode(),
        b'{"word":"ab","number":null}',
    ]
    value = {"from": "field", "field": "number"}
    assert [
        row.value for row in read_bytes(b"a 1;", "text", **{**tables, "value": value}).rows
    ] == [b"1"]
