"""Events of several lines: the rows of one pass, however the file is cut; bounds; line numbers."""

import io
import re
import tarfile
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from seglake.write.rows.formats.text import _MOST_LINES
from tests.makers.files import Reject, Result, read_bytes

BOM = b"\xef\xbb\xbf"
START = r"\[|É"


def model(
    data: bytes, max_lines: int, max_bytes: int
) -> tuple[list[tuple[int, bytes]], list[Reject]]:
    """Events with the 0-based numbers of their first lines; events that are too long."""
    events: list[list[tuple[int, int, bytes]]] = []  # the lines of each: number, position, bytes
    edges = list[int]()  # where the first line of each begins, and the end
    at, lines = 0, data.split(b"\n")
    for number, line in enumerate(lines):
        marked = len(re.match(b"(?:\xef\xbb\xbf)*", line)[0])  # type: ignore[index]
        text = line[marked:].removesuffix(b"\r")
        text = b"" if text.startswith(b"#") else text
        if text and (not events or re.match(b"\\[|\xc3\x89", text[:max_bytes])):
            events.append([])
            edges.append(at)
        if events and not (number == len(lines) - 1 and not line):
            events[-1].append((number, at + marked, text))
        at += len(line) + 1
    good, long = [], []
    for event, end in zip(events, [*edges[1:], len(data)], strict=False):
        begin = event[0][1]
        full = [line for line in event[:max_lines] if line[2] and line[1] < begin + max_bytes]
        stop = min(full[-1][1] + len(full[-1][2]), begin + max_bytes)
        if len(event) > max_lines or end - begin > max_bytes:
            long.append(Reject(event[0][0], "event too long", data[begin:stop]))
        else:
            good.append((event[0][0], data[begin:stop]))
    return good, long


def read_events(data: bytes, lines: int = 4, size: int = 31, **task: Any) -> Result:
    bounds = {"multiline_max_lines": lines, "multiline_max_bytes": size}
    settings = {"compression": "none", "multiline_start_pattern": START, "comment": "#", **bounds}
    return read_bytes(data, "text", input=settings, task={"chunk_bytes": 64, **task})


pieces = st.sampled_from(
    [b"\n", b"\n\n", b"\r\n", b"\r", b"\n[", b"\n\xc3\x89", b"a", b" b", b"\n c", b"\x00",
     b"\xff", b"\n[\xff", b"\n" * 40, b"x" * 31, b"\n[" + b"y" * 29, b"z" * 70,
     BOM, b"\n" + BOM + b"[", b"#", b"\n#a"]
)  # fmt: skip
contents = st.lists(pieces, max_size=30).map(b"".join)


@given(contents, st.integers(64, 100), st.integers(1, 90), st.integers(1, 6))
@example(b"[a\n b\n[c", 64, 3, 4)
@example(b" a\n b\n[c", 64, 1, 4)
@example(b"\n\n\n a\n[c\n d", 64, 2, 4)
@example(BOM + b"a\nb\n[c", 64, 2, 4)
@example(b"[" + b"x" * 30 + b"\n[c", 64, 5, 1)
@example(b"[" + b"x" * 29 + b"\n\n c\n[d\n e", 64, 5, 4)
@example(b"[a\n" + b"\n" * 60 + b"b\n[c", 64, 9, 6)
@example(b"[" + b"x" * 200 + b"\n a\n[c\n d\n", 64, 50, 4)
@example(b"[a" + b"\n b" * 9 + b"\n[c", 64, 10, 3)
@example(b"[" + b"x" * 30 + b"\r\n[c", 64, 5, 4)
@example(b"[" + b"y" * 29 + b"\n\n" + b"x" * 31, 64, 1, 3)
@example(b"a\n" + b"[\xff\n b\n" * 9, 70, 11, 4)
def test_every_cut_gives_the_events_of_one_pass(
    data: bytes, chunk_bytes: int, split_bytes: int, max_lines: int
) -> None:
    good, long = model(data, max_lines, 31)
    found = read_events(data, max_lines, chunk_bytes=chunk_bytes, split_bytes=split_bytes)
    assert [row.value for row in found.rows] == [event for _, event in good]
    assert found.rejects == long


@given(contents, st.integers(64, 100))
def test_an_event_has_the_line_of_its_first(data: bytes, chunk_bytes: int) -> None:
    good, _ = model(data, 4, 31)
    settings = {"multiline_start_pattern": START, "multiline_max_lines": 4}
    settings |= {"multiline_max_bytes": 31, "compression": "none", "comment": "#"}
    task = {"chunk_bytes": chunk_bytes}
    found = read_bytes(data, "text", input=settings, task=task, headers={"source": True})
    numbers = [int(dict(row.headers)[b"seglake.source.line"] or b"") for row in found.rows]
    assert numbers == [number + 1 for number, _ in good]


TRACE = """\
kernel: booted
2026-11-20 10:00:00 INFO started
2026-11-20 10:00:01 ERROR no lunch
java.lang.IllegalStateException: hungry

    at Kitchen.cook(Kitchen.java:7)
    at Kitchen.main(Kitchen.java:1)

2026-11-20 10:00:02 INFO stopped
"""


@pytest.mark.parametrize("split_bytes", [1, 7, 50, 97, 10_000])
def test_a_stack_trace_stays_with_its_event(split_bytes: int) -> None:
    found = read_bytes(
        TRACE.encode(),
        "text",
        input={
            "pattern": r"(?P<ts>[-\d]{10} [:\d]{8}) (?P<level>[A-Z]+) (?P<text>(?s:.*))",
            "multiline_start_pattern": r"\d{4}-",
        },
        timestamp={"field": "ts", "format": "%Y-%m-%d %H:%M:%S"},
        key={"fields": ["level"]},
        value={"from": "field", "field": "text"},
        task={"split_bytes": split_bytes},
    )
    assert [(row.timestamp % 60_000, row.key) for row in found.rows] == [
        (0, b"INFO"),
        (1000, b"ERROR"),
        (2000, b"INFO"),
    ]
    assert found.rows[1].value == "\n".join(TRACE.split("\n")[2:7])[26:].encode()
    assert found.rejects == [Reject(0, "not parseable", b"kernel: booted")]


def test_short_lines_are_taken_a_bounded_number_at_once() -> None:
    count = 2 * _MOST_LINES + 1000
    bounds = {"multiline_max_lines": 50_000, "multiline_max_bytes": 2**20}
    settings = {"multiline_start_pattern": r"\[", **bounds}
    data = b"[0\n" + b"x\n" * 49_999 + b"[1\n" + b"y\n" * 50_000 + b"[2\n" * count
    found = read_bytes(data, "text", input=settings)
    assert [row.value for row in found.rows[1:]] == [b"[2"] * count
    assert found.rows[0].value == data[: 50_000 * 2]
    assert found.rejects == [Reject(50_000, "event too long", data[100_001 : 100_001 + 65536])]
    assert found.chunks > 8


def test_rows_of_bounded_parts_keep_their_lines() -> None:
    data = b"[\n \n" * 40_000
    settings = {"multiline_start_pattern": r"\["}
    found = read_bytes(data, "text", input=settings, headers={"source": True})
    numbers = [int(dict(row.headers)[b"seglake.source.line"] or b"") for row in found.rows]
    assert numbers == list(range(1, 80_000, 2))


def test_each_member_of_an_archive_begins_an_event() -> None:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name in ("a", "b"):
            member = tarfile.TarInfo(name)
            member.size = 9
            archive.addfile(member, io.BytesIO(b" x\n[y\n z\n"))
    settings = {"multiline_start_pattern": r"\["}
    found = read_bytes(file.getvalue(), "text", input=settings, headers={"source": True})
    assert [row.value for row in found.rows] == [b" x", b"[y\n z"] * 2
    lines = [dict(row.headers)[b"seglake.source.line"] for row in found.rows]
    assert lines == [b"1", b"2"] * 2
