"""The JSON scanner against Python's json: what is valid, and what each field holds."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from seglake.write.rows.rows import Reason
from tests.judges.json_lines import Number, check, parse, scan
from tests.makers.files import read_bytes

KEYS = st.sampled_from(["a", "b", "c", "a.b", "b.c", "a.b.c", "é", "", "x" * 40])

numbers = st.from_regex(
    r"-?(0|[1-9][0-9]{0,40})(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,3})?", fullmatch=True
)
strings = st.text(st.characters(codec="utf-8"), max_size=70) | st.sampled_from(
    ["\\", '"', "\u2028"]
)
scalars = st.none() | st.booleans() | strings | numbers.map(Number) | st.integers()
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4)
)
blanks = st.sampled_from(["", " ", "\t", "\r", "  \t "])


@st.composite
def documents(draw: st.DrawFn) -> bytes:
    """An object in one of the many ways to write it: blanks, escapes, repeated keys."""
    ascii_only = draw(st.booleans())

    def write(value: Any) -> str:
        blank = draw(blanks)
        if isinstance(value, Number):
            return f"{blank}{value!s}{blank}"
        if isinstance(value, list):
            return f"{blank}[{','.join(write(item) for item in value) or blank}]{blank}"
        if isinstance(value, dict):
            items = list(value.items()) * draw(st.integers(1, 2))
            pairs = (f"{blank}{key(name)}{blank}:{write(item)}" for name, item in items)
            return f"{blank}{{{','.join(pairs) or blank}}}{blank}"
        return blank + json.dumps(value, ensure_ascii=ascii_only) + blank

    def key(name: str) -> str:
        if name and draw(st.integers(0, 5)) == 0:
            return f'"\\u{ord(name[0]):04x}{name[1:]}"'
        return json.dumps(name, ensure_ascii=ascii_only)

    return write(draw(st.dictionaries(KEYS, values, max_size=5))).encode()


@example([b'{"a":{"b.c":1}}', b'{"a":{"b.c":1,"b":{"c":2}}}', b'{"a":{"b.c":1},"a":{"b":3}}'])
@given(st.lists(documents(), max_size=4))
def test_valid_documents(lines: list[bytes]) -> None:
    assert all(parse(line) is not None for line in lines)
    check(lines)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A valid document with a few bytes changed, lost or added."""
    line = bytearray(draw(documents()))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(line)))
        byte = draw(
            st.sampled_from(
                list(b'{}[],:"\\/ \t\r0123456789.+-eEtrufalsn\x00\x1f\x7f\x80\xc3\xe2\xff')
            )
        )
        match draw(st.integers(0, 2)):
            case 0:
                line[at:at] = bytes([byte])
            case 1:
                del line[at : at + draw(st.integers(1, 3))]
            case _:
                line[at : at + 1] = bytes([byte])
    return bytes(line)


@given(st.lists(damaged(), min_size=1, max_size=4))
def test_damaged_documents(lines: list[bytes]) -> None:
    check(lines)


STRUCTURE = ["{", "}", "[", "]", ",", ":", " ", "{}", "[]", '{"a":', '"b":', '"a"', '"']
SCALARS = ["1", "-", "01", "1.", ".5", "1e", "true", "nul", "NaN", "null", "é"]
STRINGS = ['"\\u12"', '"\\ud800"', '"\\q"', '"\t"']
tokens = st.sampled_from([*STRUCTURE, *SCALARS, *STRINGS])


@given(st.lists(tokens, max_size=8).map("".join))
@example('{"a":1,}')
@example('{"a" 1}')
@example('{"a":[1,]}')
@example('{"a":[,]}')
@example('{"a":1}}')
@example('{"a":[1}')
@example('{"a":{]}')
@example("{,}")
@example('{"a":1} {"a":2}')
@example('{"a":"\\ud83d\\ude00","b":"\\ud83d\\u0041","é":"\\ude00\\ud83d"}')
@example('{"a":{"b":1},"a":{}}')
@example('{"a":{"b":1},"a.b":null}')
@example('{"a.b":1,"a":{"b":2}}')
@example('{"a":5,"a.b":{"c":1}}')
@example('[{"a":1}]')
@example('\ufeff{"a":1}')
def test_tokens_in_any_order(line: str) -> None:
    check([line.encode(), b'{"a":1}', line.encode()])


@given(st.binary(max_size=60).filter(lambda line: b"\n" not in line))
def test_any_bytes_inside_a_string(inside: bytes) -> None:
    check([b'{"a":"' + inside + b'"}', b'{"' + inside + b'":1}', inside])


@pytest.mark.parametrize("depth", [1, 511, 512, 513, 100_000])
def test_depth_is_bounded(depth: int) -> None:
    line = b'{"a":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}" if depth > 1 else b"{}"
    assert (scan(line).reasons[0] == Reason.NONE) == (depth <= 512)


def test_bytes_that_are_not_utf8_have_their_own_reason() -> None:
    rows = scan(
        b'{"a":"\xff"}\n{"a":"\xc3"}\n{"a":"\xed\xa0\x80"}\n{"a":"\xf4\x90\x80\x80"}\n{"a":\xff}'
    )
    assert rows.reasons.tolist() == [Reason.INVALID_UTF8] * 4 + [Reason.NOT_PARSEABLE]


def test_tokens_end_with_the_line_although_bytes_follow() -> None:
    check(
        [
            b'{"a":"',
            b'{"a":tru',
            b"e}",
            b'{"a":1',
            b"2}",
            b'{"a":"\xe2\x82',
            b'\xac"}',
            b'{"a":1}\x00',
        ]
    )


@pytest.mark.parametrize("form", ["iso8601", "epoch_s"])
def test_dates_of_mongodb_are_times_in_any_format(form: str) -> None:
    dates = [
        '{"$date":"2026-01-31T12:00:00.123Z"}',
        '{"$date": 1769860800123}',
        '{"$date":{"$numberLong":"1769860800123"}}',
        '"2026-01-31T12:00:00.123Z"',
        "1769860800.123",
        '{"$date":null}',
        '{"$date":{}}',
        '{"date":1}',
        "{}",
        "[]",
    ]
    data = "".join(f'{{"t":{date}}}\n' for date in dates).encode()
    found = read_bytes(data, timestamp={"field": "t", "format": form})
    assert [row.timestamp for row in found.rows] == [1769860800123] * 4
    other = 4 if form == "iso8601" else 3  # the other format of texts that are no objects
    assert [reject.line for reject in found.rejects] == [other, 5, 6, 7, 8, 9]
