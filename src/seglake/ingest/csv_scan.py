"""CSV (RFC 4180) with a header line: records, their raw bytes, and the columns that are wanted.

A record ends at LF outside quotes; one CR before it is not part of it. A quote counts as one only at
the beginning of a field. A record whose quotes are wrong is rejected with its first line, and reading
goes on at the next line, so that one stray quote does not swallow a file. Empty lines are no records.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import numpy.typing as npt
from numba import njit

from seglake.config import Pipeline, Timestamp
from seglake.errors import InputError
from seglake.format.records import NULL, Bytes, Int32s, Int64s, Spans
from seglake.ingest.bytescan import PADDING, WIDTH, byte_at, lowest_bit, pair_mask
from seglake.ingest.codecs import SourceFile, Stream, open_parts
from seglake.ingest.columns import Codes, from_ends, json_objects, quoted
from seglake.ingest.lines import REJECTED_BYTES, Chunk, Window, count_newlines, first_newline
from seglake.ingest.timestamps import Times, read_times

_HEADER_BYTES = 1 << 20  # the longest header line
_THREADS = 16
_BAD_QUOTES = -1
_NOT_ENDED = -2

Table = npt.NDArray[np.int64]
Header = tuple[str, ...]


@njit(cache=True, nogil=True)
def _next(base: int, position: int, end: int, byte: int) -> int:
    """The next LF or `byte` before `end`, or `end`."""
    while position < end:
        mask = pair_mask(base, position, byte)
        if mask:
            return min(position + lowest_bit(mask), end)
        position += WIDTH
    return end


@njit(cache=True, nogil=True)
def _closing_quote(base: int, position: int, end: int, quote: int) -> tuple[int, int, int]:
    """From behind an opening quote: the closing one (`end`: none), doubled quotes, line feeds."""
    doubled = feeds = 0
    while True:
        position = _next(base, position, end, quote)
        if position == end:
            return end, doubled, feeds
        if byte_at(base, position) != quote:
            feeds += 1
            position += 1
        elif position + 1 < end and byte_at(base, position + 1) == quote:
            doubled += 1
            position += 2
        else:
            return position, doubled, feeds


@njit(cache=True, nogil=True)
def _record(
    base: int, position: int, end: int, marks: Int64s, slots: Int64s, spans: Table
) -> tuple[int, int, int]:
    """Read one record: the LF (or `end`) behind it, its count of columns, line feeds inside it.

    `marks` is (delimiter, quote, whether quoted fields may hold line feeds). Of column c that has a
    slot, spans[slot] becomes (start, length, doubled quotes). Instead of a position, _BAD_QUOTES or
    _NOT_ENDED (inside quotes at `end`).
    """
    delimiter, quote = marks[0], marks[1]
    column = feeds = 0
    while True:
        doubled = 0
        start = position
        if position < end and byte_at(base, position) == quote:
            start += 1
            stop, doubled, inside = _closing_quote(base, start, end, quote)
            feeds += inside
            if inside and not marks[2]:
                return _BAD_QUOTES, column, feeds
            if stop == end:
                return _NOT_ENDED, column, feeds
            position = stop + 1
            after = byte_at(base, position) if position < end else 0x0A
            if after == 0x0D and (position + 1 >= end or byte_at(base, position + 1) == 0x0A):
                position = min(position + 1, end)
                after = 0x0A
            if after != delimiter and after != 0x0A:
                return _BAD_QUOTES, column, feeds
        else:
            position = _next(base, position, end, delimiter)
            stop = position
            if (stop == end or byte_at(base, stop) == 0x0A) and stop > start:
                stop -= byte_at(base, stop - 1) == 0x0D
        slot = slots[column] if column < len(slots) else -1
        if slot >= 0:
            spans[slot, 0], spans[slot, 1], spans[slot, 2] = start, stop - start, doubled
        column += 1
        if position == end or byte_at(base, position) == 0x0A:
            return position, column, feeds
        position += 1


@njit(cache=True, nogil=True)
def _scan_records(
    data: Bytes, position: int, end: int, final: bool, marks: Int64s, slots: Int64s, wanted: int
) -> tuple[Int64s, Int64s, Int64s, Codes, npt.NDArray[np.int64], int, int]:
    """The records in data[position:end]: starts, lengths, line numbers, reasons and spans.

    Then where the records end, and the count of lines before that. Without `final` a record that
    reaches `end` is left for the next call.
    """
    base = data.ctypes.data
    most = count_newlines(data, position, end) + 1
    starts, lengths = np.empty(most, np.int64), np.empty(most, np.int64)
    numbers, reasons = np.empty(most, np.int64), np.zeros(most, np.int8)
    spans = np.zeros((most, wanted, 3), np.int64)
    row = number = 0
    while position < end:
        stop, columns, feeds = _record(base, position, end, marks, slots, spans[row])
        reason = 0 if columns == len(slots) else 1
        if stop < 0:
            if stop == _NOT_ENDED and not final:
                break
            reason, feeds = 1, 0
            stop = first_newline(data, position, end)
        if stop == end and not final:
            break
        length = stop - position
        length -= length > 0 and byte_at(base, stop - 1) == 0x0D
        if length > 0:
            starts[row], lengths[row], numbers[row] = position, length, number
            reasons[row] = reason
            if reason:
                spans[row] = 0
            row += 1
        number += feeds + 1
        position = min(stop + 1, end)
    return starts[:row], lengths[:row], numbers[:row], reasons[:row], spans[:row], position, number


@njit(cache=True, nogil=True)
def _undouble(
    data: Bytes, starts: Int64s, lengths: Int32s, doubled: Int64s, quote: int
) -> tuple[Bytes, Int64s]:
    """The items back to back, with one quote for two where `doubled` is not 0; and their ends."""
    total = 0
    for row in range(len(starts)):
        total += max(lengths[row], 0) - doubled[row]
    out, ends = np.empty(total + PADDING, np.uint8), np.empty(len(starts), np.int64)
    base, size = data.ctypes.data, 0
    for row in range(len(starts)):
        position, end = starts[row], starts[row] + max(lengths[row], 0)
        while position < end:
            out[size] = byte_at(base, position)
            position += 1 + (doubled[row] > 0 and out[size] == quote)
            size += 1
        ends[row] = size
    return out, ends


class Layout:
    """The columns of a CSV file and those that are wanted, numbered as slots.

    Raises:
        InputError: a wanted column is not in the header.
    """

    def __init__(self, path: str, header: Sequence[str], pipeline: Pipeline) -> None:
        every = pipeline.value_source == "columns" and not pipeline.value.columns
        names = list(dict.fromkeys([*pipeline.fields(), *(header if every else ())]))
        missing = [name for name in names if name not in header]
        if missing:
            raise InputError(
                f"{path}: schema changed: no column {', '.join(missing)} in the header "
                f"({', '.join(header)}); correct the file or the settings"
            )
        self.header, self.slots = list(header), {name: k for k, name in enumerate(names)}
        self.by_column = np.array([self.slots.get(name, -1) for name in header], np.int64)
        text = pipeline.input
        self.marks = np.array([ord(text.delimiter), ord(text.quote), text.multiline], np.int64)


class CsvRows:
    """The records in data[begin:end] of a padded buffer; `end` is moved back to where they end.

    `lines_before` lines of the file, its header, stand before them and are counted with them.
    Without `final` a record that reaches the end is left out.
    """

    def __init__(
        self, window: Window, end: int, final: bool, layout: Layout, lines_before: int
    ) -> None:
        found = _scan_records(
            window.data, window.begin, end, final, layout.marks, layout.by_column, len(layout.slots)
        )
        starts, lengths, numbers, self.reasons, self._spans, self.end, count = found
        self.numbers, self.line_count = numbers + lines_before, count + lines_before
        self.raw = Spans(window.data, starts, lengths.astype(np.int32))
        self._layout = layout

    def field(self, name: str) -> Spans:
        """Without quotes; null if empty."""
        start, length, doubled = self._spans[:, self._layout.slots[name]].T
        spans = Spans(self.raw.data, start.copy(), length.astype(np.int32))
        if doubled.any():
            quote = int(self._layout.marks[1])
            spans = from_ends(*_undouble(*spans, np.ascontiguousarray(doubled), quote))
        return Spans(spans.data, spans.starts, np.where(length == 0, np.int32(NULL), spans.lengths))

    def times(self, settings: Timestamp) -> Times:
        return read_times(self.field(str(settings.field)), settings)

    def objects(self, names: Sequence[str]) -> Spans:
        """All values are JSON strings, or null if empty; no names: every column."""
        names = names or self._layout.header
        return json_objects(names, [quoted(self.field(n)) for n in names], len(self.numbers))


def csv_chunks(
    stream: Stream, path: str, pipeline: Pipeline, limit: int, header: Header | None
) -> Iterator[CsvRows | Chunk]:
    """The records that begin in the first `limit` bytes of `stream`; or a Chunk that is too long.

    With a `header` the stream begins inside a line that is not wanted; else with the header itself.
    """
    window = Window(stream, pipeline.task.chunk_bytes, limit)
    skipping, lines_before = header is not None, 0
    layout = Layout(path, header, pipeline) if header else None
    while not window.done and window.fill():
        if skipping:
            skipping = not window.skip_line()
            if skipping or window.done:
                continue
        if layout is None:
            layout, lines_before = Layout(path, _take_header(window, path, pipeline), pipeline), 1
        multiline = pipeline.input.multiline
        end, final = (window.filled, window.final) if multiline else (window.line_end(), True)
        rows = CsvRows(window, end, final, layout, lines_before)
        if rows.end > window.begin:
            yield rows
            window.begin, lines_before = rows.end, 0
        elif window.full:
            stop = first_newline(window.data, 0, min(window.filled, REJECTED_BYTES))
            yield Chunk(window.data, 0, stop, True)
            skipping = True


def read_header(file: SourceFile, pipeline: Pipeline) -> Header | None:
    """The names in the header line of a CSV file; None if the file is empty."""
    for path, stream in open_parts(file, pipeline):
        window = Window(stream, _HEADER_BYTES, _HEADER_BYTES)
        if window.fill():
            return _take_header(window, path, pipeline)
    return None


def check_headers(files: Sequence[SourceFile], pipeline: Pipeline) -> None:
    """InputError unless all files that are not empty have the header of the first such file."""
    with ThreadPoolExecutor(_THREADS) as pool:
        headers = list(pool.map(partial(read_header, pipeline=pipeline), files))
    known = [(file.path, header) for file, header in zip(files, headers, strict=True) if header]
    for path, header in known[1:]:
        same_header(known[0][0], known[0][1], path, header)


def same_header(first_path: str, first: Header, path: str, header: Header) -> None:
    """InputError if two files of one run differ in their headers."""
    if header != first:
        changed = [name for name in (*first, *header) if (name in first) != (name in header)]
        raise InputError(
            f"{path}: schema changed: its header differs from that of {first_path} "
            f"({', '.join(changed) or 'order of columns'}); ingest such files by another pipeline"
        )


def _take_header(window: Window, path: str, pipeline: Pipeline) -> Header:
    """Use the first line of the window, which is the header."""
    window.skip_mark()
    begin = window.begin
    if not window.skip_line() and not window.final and window.full:
        raise InputError(f"{path}: no line ends in the first {window.filled} bytes; is it CSV?")
    try:
        line = window.data[begin : window.begin].tobytes().decode()
    except UnicodeDecodeError:
        raise InputError(f"{path}: the header is not UTF-8; convert the file") from None
    text = pipeline.input
    return tuple(next(csv.reader([line], delimiter=text.delimiter, quotechar=text.quote), []))
