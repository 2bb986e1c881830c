"""What is said of lines that are taken as text, or not at all: why they are no CSV and no JSON."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress

from seglake.shown import counted
from seglake.write.draft.headers import DELIMITERS, has_names, is_header
from seglake.write.draft.heads import Head
from seglake.write.rows.objects import is_object

_MOST = 0.9  # of the rows of CSV have as many cells as its header
_ABOVE = 20  # lines at most stand above a header
_ROWS = 3  # at least make a table below one
_NAMED = 10  # columns
_SEQUENCE = "\x1e"  # stands before each text of RFC 7464
_A_CLOCK = re.compile(r"\d{2}:\d{2}:\d{2}(?:[.,]\d+)?")
_A_DATE = re.compile(
    r"\b(?:\d{4}([-/.]) ?\d{1,2}\1 ?\d{1,2}|\d{1,2}([-/.])\d{1,2}\2(?:19|20)\d{2}|\d{2}([-/])\d{2}"
    r"|\d{1,2}[-/. ][A-Z][a-z]{2}|[A-Z][a-z]{2} +\d{1,2})\b"
)


def of_header(heads: Sequence[Head], names: Sequence[str]) -> Iterator[str]:
    """A sentence if the header of CSV lacks names at its end, and a whole one stands below it."""
    if not names[-1].strip():
        yield from _table_below(heads)


def of_lines(heads: Sequence[Head]) -> Iterator[str]:
    """What is said of lines in which no format but that of text is found."""
    yield from _no_csv(heads)
    yield from _table_below(heads)


def of_objects(lines: Sequence[str]) -> Iterator[str]:
    """A sentence if at least half of the lines have a JSON object behind other text."""
    cuts = [line.partition("{") for line in lines]
    before = [first for first, brace, rest in cuts if first.strip(" ") and is_object(brace + rest)]
    if 2 * len(before) < len(lines) or not before:
        return
    what = f"{len(before):,} of {counted(len(lines), 'sampled line')} have a JSON object"
    if {*before} == {_SEQUENCE}:
        yield (
            f"{what} behind a byte 0x1E: `tr -d '\\036' < FILE` takes it away, and they are read "
            "as JSON"
        )
    else:
        yield (
            f"{what} behind other text, such as {before[0]!r}, so its fields are none here: "
            "`sed 's/^[^{]*//' < FILE` leaves the objects alone"
        )


def _no_csv(heads: Sequence[Head]) -> Iterator[str]:
    """Why files that look like CSV are not taken for it: the first row that is of another width.

    They do if their name says so, or if the first line is a header, and half of the rows have as
    many fields; a log with commas has none.
    """
    head = next(each for each in heads if each.lines)
    delimiter = max(DELIMITERS, key=head.lines[0].count)
    rows, numbers = list[list[str]](), list[int]()
    reader = csv.reader(head.lines, delimiter=delimiter)
    with suppress(csv.Error):  # as at a field of more than 128 KiB
        for row in reader:
            rows.append(row)
            numbers.append(head.numbers[reader.line_num - 1])
    width = len(rows[0]) if rows else 0
    uneven = [at for at, row in enumerate(rows) if len(row) != width]
    named = re.search(r"\.[ct]sv\b", head.path.rpartition("/")[2])
    half = 2 * len(uneven) <= len(rows)
    if uneven and width > 1 and (named or (half and is_header(rows[0], rows[1:]))):
        line, fields = numbers[uneven[0]], len(rows[uneven[0]])
        yield (
            f"not taken as CSV: line {line:,} of {head.path} has {fields:,} fields, and the first "
            f"one {width:,}; another number: {len(uneven):,} of {counted(len(rows), 'sampled row')}"
        )


def of_clocks(lines: Sequence[str]) -> Iterator[str]:
    """A sentence if most lines have a time of day, but no date, or none that is known."""
    clocks, dates = (
        [match[0] for line in lines if (match := form.search(line))] for form in (_A_CLOCK, _A_DATE)
    )
    if 2 * len(clocks) < len(lines):
        return
    begin = f"they have times of day, such as {clocks[0]!r}, and"
    if 2 * len(dates) >= len(lines):
        yield (
            f"{begin} what may be dates, such as {dates[0]!r}: if they belong together, let the "
            "group of input.pattern have both, and timestamp.format what stands between them"
        )
    else:
        yield (
            f"{begin} no date that is known: write it in front of each, or leave timestamp.field "
            "out, and records get the time of the run"
        )


def header_alone(lines: Sequence[str]) -> Iterator[str]:
    """A sentence if the only line of the files could be the header of CSV."""
    if len(lines) == 1 and any(each in lines[0] for each in DELIMITERS):
        yield "there is one line alone, as a header of CSV without rows: add rows, or other files"


def _table_below(heads: Sequence[Head]) -> Iterator[str]:
    """A sentence if CSV with a header stands below some other lines."""
    head = next(each for each in heads if each.lines)
    for at in range(1, min(_ABOVE, len(head.lines) - _ROWS) + 1):
        names = next(filter(None, (_names_at(head.lines[at:], each) for each in DELIMITERS)), None)
        if names is not None:
            line, more = head.numbers[at], ", …" if len(names) > _NAMED else ""
            yield (
                f"from line {line:,} of {head.path} on the lines look like CSV with the columns "
                f"{', '.join(names[:_NAMED])}{more}: for input.format = 'csv' take what stands "
                f"above away, as `tail -n +{line} < FILE` does"
            )
            return


def _names_at(lines: Sequence[str], delimiter: str) -> list[str] | None:
    """The names in the first of some lines, if these are CSV with a header."""
    if delimiter not in lines[0]:
        return None
    try:
        rows = list(csv.reader(lines, delimiter=delimiter))
    except csv.Error:
        return None
    even = Counter(map(len, rows))[len(rows[0])]
    return rows[0] if has_names(rows[0]) and even >= _MOST * len(rows) else None
