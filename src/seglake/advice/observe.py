"""Check the rows of a chunk for problems, such as another encoding or unreadable times.

A finding must not contain values of rows, because reports keep findings, and an erasure does not
search reports. `conclude` converts the findings of all chunks to the findings of a run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seglake.advice.finding import Finding
from seglake.advice.json_shapes import BEGINS_WITH_AN_ARRAY, events_of, has_constants
from seglake.config import Input, Pipeline
from seglake.format.records import Flags, Int64s, Spans
from seglake.text.spans import to_arrow
from seglake.text.utf8 import invalid_utf8
from seglake.times.candidates import candidate_formats, date_orders, without_fraction
from seglake.times.grammar import TimeFormat
from seglake.times.readers import Times, read_times
from seglake.times.time_kernels import AMBIGUOUS, NONEXISTENT, READ
from seglake.times.zones import is_near_a_change

PLAUSIBLE_MS = range(100_000_000_000, 4_102_444_800_000)  # 1973 to 2099
PARQUET_MARK = b"PAR1"
_UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_EXAMINED = 20  # limit of unparseable rows that are examined in one chunk
_FORMATS = 3  # limit of time formats that are tried in one chunk
_TIME_IN_EVENT = (
    r"\n\W?(?:\d{4}[-/.]\d{2}[-/.]\d{2}[T ]\d{2}:\d{2}"
    r"|\d{1,2}[-/.]\d{1,2}[-/.]\d{4},? \d{1,2}:\d{2}"
    r"|[A-Z][a-z]{2} [ \d]\d \d{2}:\d{2}:\d{2}|\d{2}/[A-Z][a-z]{2}/\d{4}:\d{2}:\d{2})"
)


class ObservedRows(Protocol):
    """The properties of a chunk's rows that `observe` uses."""

    @property
    def numbers(self) -> Int64s:
        """Return the line number of each row in the chunk, from 0."""

    @property
    def line_count(self) -> int:
        """Return the number of lines in the chunk."""

    @property
    def raw(self) -> Spans:
        """Return the bytes of each row in the file."""

    def take_raw(self, rows: Int64s) -> Spans:
        """Return the raw bytes of the rows at these positions."""


class ObservedChunk(NamedTuple):
    """The rows of a chunk, and the results of reading them. Arrays have one item for each row.

    `unparseable` and `not_utf8` mark rows that were rejected for these reasons. `good` marks rows
    that were not rejected. `unread_times` has the texts of times that cannot be read. `timestamps`
    are in ms. `local` marks good rows whose time has no zone in its text. `read_again` reads
    the times of all rows in another format.
    """

    rows: ObservedRows
    path: str
    is_first: bool  # whether it is the first chunk of its file
    unparseable: Flags
    not_utf8: Flags
    good: Flags
    unread_times: Spans | None
    timestamps: Int64s
    local: Flags
    read_again: Callable[[TimeFormat], Times]


def observe(chunk: ObservedChunk, pipeline: Pipeline) -> list[Finding]:
    """Return the findings about the encoding, format, times and zones of a chunk's rows."""
    found = [*_encoding_findings(chunk, pipeline)]
    if pipeline.input.format == "jsonl":
        # The first lines of a file are checked only if each line is an event.
        lines = chunk if pipeline.input.records is None else chunk._replace(is_first=False)
        found += _json_findings(lines, found_before=bool(found))
    if documents := getattr(chunk.rows, "documents", 0):
        found.append(Finding("documents", count=documents))
    if pipeline.input.format == "text":
        found += _pattern_findings(chunk, pipeline.input.multiline_start_pattern)
    if pipeline.input.format in {"csv", "text"}:
        found += _character_findings(chunk, pipeline.input)
    return [*found, *_format_findings(chunk, pipeline), *_zone_findings(chunk, pipeline)]


# ---------------------------------------------------------------- rows


def _encoding_findings(chunk: ObservedChunk, pipeline: Pipeline) -> Iterator[Finding]:
    settings = pipeline.input
    if settings.kind.columnar or settings.recoded or not len(chunk.rows.numbers):
        return
    first = _first(chunk.rows) if chunk.is_first else b""
    wrong = chunk.not_utf8
    if first.startswith(PARQUET_MARK) and invalid_utf8(*chunk.rows.raw).any():
        yield Finding("is-parquet", chunk.path, count=1)
    elif first[:2] in _UTF_16_MARKS:
        yield Finding("is-utf-16", chunk.path, count=1)
    elif wrong.any() or (
        settings.format != "jsonl" and (invalid_utf8(*chunk.rows.raw) & chunk.good).any()
    ):
        yield Finding("not-utf-8", chunk.path, count=1)


def _json_findings(chunk: ObservedChunk, *, found_before: bool) -> Iterator[Finding]:
    wrong = np.flatnonzero(chunk.unparseable)
    events, rows = None, len(chunk.unparseable)
    first_row = _first(chunk.rows) if chunk.is_first and rows else b""
    if first_row and (chunk.unparseable[0] or BEGINS_WITH_AN_ARRAY.match(first_row)):
        first = chunk.rows.take_raw(np.arange(min(rows, _EXAMINED))).tolist()
        events = events_of(b"\n".join(raw or b"" for raw in first).decode("utf-8", "replace"))
    if events is not None:
        yield Finding("json-documents", chunk.path, {"records": events.records}, 1)
    some = chunk.rows.take_raw(wrong[:_EXAMINED]).tolist()
    if any(has_constants(raw or b"") for raw in some):
        yield Finding("nan-constants")
    elif (
        chunk.is_first
        and events is None
        and not found_before
        and len(wrong) == len(chunk.unparseable) > 0
        and _first(chunk.rows).lstrip()[:1] != b"{"
    ):
        yield Finding("not-json-lines", chunk.path, {"rows": len(wrong)}, 1)


def _pattern_findings(chunk: ObservedChunk, start: str | None) -> Iterator[Finding]:
    """Yield findings about text that does not match `input.pattern` or the pattern `start`."""
    rows = chunk.rows
    if chunk.is_first and rows.line_count and len(rows.numbers):
        if start is not None and len(rows.numbers) == 1:
            line = re.split(rb"[\r\n]", _first(rows), maxsplit=1)[0]
            begins = pc.match_substring_regex(pa.array([line], pa.large_binary()), f"^(?:{start})")
            if not begins[0].as_py():
                yield Finding("no-event-start", chunk.path, {"lines": rows.line_count}, 1)
                return
        if chunk.unparseable.all():
            yield Finding("no-match-at-start", chunk.path, {"rows": len(rows.numbers)}, 1)
    if start is not None:
        # A program may change the format of its lines. Then all lines in the new format would
        # continue the last event in the old format.
        several = np.flatnonzero(np.diff(rows.numbers, append=rows.line_count) > 1)
        texts = to_arrow(rows.take_raw(several))
        lines = pc.sum(pc.count_substring_regex(texts, _TIME_IN_EVENT)).as_py()
        if lines:  # None without texts
            yield Finding("continued-times", count=int(lines))


def _character_findings(chunk: ObservedChunk, settings: Input) -> Iterator[Finding]:
    """Yield findings that count unreadable rows with escaped quotes, and unreadable comments.

    Another setting would read or skip these rows.
    """
    wrong = np.flatnonzero(chunk.unparseable)
    if not len(wrong):
        return
    texts = to_arrow(chunk.rows.take_raw(wrong), pa.large_binary())
    escaped = settings.format == "csv" and settings.escape is None
    for name, given, expression in (
        ("escaped-quotes", not escaped, rf"\\{settings.quote}"),
        ("comments", settings.comment is not None, "^#"),
    ):
        count = 0 if given else pc.sum(pc.match_substring_regex(texts, expression)).as_py()
        if count:
            yield Finding(name, chunk.path, count=count)


def _first(rows: ObservedRows) -> bytes:
    (raw,) = rows.take_raw(np.zeros(1, np.int64)).tolist()
    return raw or b""


# ---------------------------------------------------------------- times


def _format_findings(chunk: ObservedChunk, pipeline: Pipeline) -> Iterator[Finding]:
    """Yield findings that count the unread times that another format reads.

    A format is inferred from the first unread time, then from the first time that this format
    cannot read, and so on. If days and months may be swapped, both formats are counted, and the
    format that reads more times determines the times that are left.
    """
    left, form = chunk.unread_times, pipeline.timestamp.time_format
    counts = dict[str, int]()
    while left is not None and len(left) and len(counts) < _FORMATS:
        (raw,) = left.take(np.zeros(1, np.int64)).tolist()
        text = (raw or b"").decode("utf-8", "replace").strip()
        first = left.take(np.zeros(1, np.int64))
        likeliest = without_fraction(form.text or "")  # the text may only differ in the fraction
        forms = [likeliest, likeliest.replace("%S", "%S.%f"), *candidate_formats(text)]
        fits = (each for each in forms if each not in {form.text, ""})
        found = next((each for each in fits if _reads(first, form._replace(text=each)).all()), None)
        if found is None:
            break
        reads = {each: _reads(left, form._replace(text=each)) for each in date_orders(found)}
        for each, read in reads.items():
            if each != form.text:
                counts.setdefault(each, int(read.sum()))
        left = left.take(np.flatnonzero(~max(reads.values(), key=lambda read: int(read.sum()))))
    for each, count in counts.items():
        yield Finding("times-in-format", facts={"format": each}, count=count)


def _reads(values: Spans, form: TimeFormat) -> Flags:
    """Return, for each value, whether `form` reads it as a plausible time (in `PLAUSIBLE_MS`)."""
    ms, codes, _ = read_times(values, form)
    plausible: Flags = (codes == READ) & (ms >= PLAUSIBLE_MS.start) & (ms < PLAUSIBLE_MS.stop)
    return plausible


def _zone_findings(chunk: ObservedChunk, pipeline: Pipeline) -> Iterator[Finding]:
    """Yield findings that count times without a zone, ambiguous times and skipped times.

    At a change of the zone's offset, clocks show some local times twice, or skip them.
    """
    settings = pipeline.timestamp
    if chunk.local.any() and "zone" not in settings.model_fields_set:
        yield Finding("no-zone-in-times", count=int(chunk.local.sum()))
    form = settings.time_format
    if not settings.names or not is_near_a_change(chunk.timestamps, form.zone):
        return
    codes = chunk.read_again(form._replace(ambiguous="reject", nonexistent="reject")).codes
    for name, way, code in (
        ("ambiguous-times", form.ambiguous, AMBIGUOUS),
        ("nonexistent-times", form.nonexistent, NONEXISTENT),
    ):
        if way != "reject" and (count := int((codes == code).sum())):
            yield Finding(name, settings.zone, {"way": way}, count)
