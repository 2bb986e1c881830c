"""CSV (RFC 4180) with a header line: records, their raw bytes, and the columns that are wanted.

A record ends at LF outside quotes; one CR before it is not part of it. A quote counts as one only
at the beginning of a field. A record whose quotes are wrong is rejected with its first line, and
reading goes on at the next line, so that one stray quote does not swallow a file. Empty lines are
no records. A record with another number of fields than the header has is rejected.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

from seglake.config import Pipeline
from seglake.errors import InputError
from seglake.format.records import NULL, Spans
from seglake.limits import REQUESTS
from seglake.text.spans import from_ends, json_objects, quoted
from seglake.times.directives import TimeFormat
from seglake.times.readers import Times, read_times
from seglake.write.input.streams import SourceFile, Stream, open_parts
from seglake.write.rows.csv_kernels import scan_records, undouble
from seglake.write.rows.line_chunks import REJECTED_BYTES, Chunk, Lines, Window, first_newline

_HEADER_BYTES = 1 << 20  # the longest header line

Header = tuple[str, ...]


class Layout:
    """The columns of a CSV file and those that are wanted, numbered as slots.

    Raises:
        InputError: a wanted column is not in the header, or twice.
    """

    def __init__(self, path: str, header: Sequence[str], pipeline: Pipeline) -> None:
        every = header if pipeline.wants_every_column else ()
        names = list(dict.fromkeys([*pipeline.fields(), *every]))
        missing = [name for name in names if name not in header]
        if missing:
            raise InputError(
                f"{path}: schema changed: no column {', '.join(missing)} in the header "
                f"({', '.join(header)}); correct the file or the settings"
            )
        twice = [name for name in names if list(header).count(name) > 1]
        if twice:
            raise InputError(
                f"{path}: the header has {', '.join(twice)} more than once; rename all but one"
            )
        self.header, self.slots = list(header), {name: k for k, name in enumerate(names)}
        self.by_column = np.array([self.slots.get(name, -1) for name in header], np.int64)
        text = pipeline.input
        self.marks = np.array([ord(text.delimiter), ord(text.quote), text.multiline], np.int64)


class CsvRows(Lines):
    """The records in data[begin:end] of a padded buffer; `end` is moved back to where they end.

    `lines_before` lines of the file, its header, are counted with them.
    Without `final` a record that reaches the end is left out.
    """

    def __init__(
        self, window: Window, end: int, final: bool, layout: Layout, lines_before: int = 0
    ) -> None:
        found = scan_records(
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
            spans = from_ends(*undouble(*spans, np.ascontiguousarray(doubled), quote))
        return Spans(spans.data, spans.starts, np.where(length == 0, np.int32(NULL), spans.lengths))

    def times(self, name: str, form: TimeFormat) -> Times:
        """The values of a field as times."""
        return read_times(self.field(name), form)

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
    skipping = header is not None
    layout = Layout(path, header, pipeline) if header else None
    while not window.done and window.fill():
        if skipping:
            skipping = not window.skip_line()
            if skipping or window.done:
                continue
        if layout is None:
            layout = Layout(path, _take_header(window, path, pipeline), pipeline)
            yield CsvRows(window, window.begin, True, layout, lines_before=1)
            if window.done:
                continue
        multiline = pipeline.input.multiline
        end, final = (window.filled, window.final) if multiline else (window.line_end(), True)
        rows = CsvRows(window, end, final, layout)
        if rows.end > window.begin:
            yield rows
            window.begin = rows.end
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
    with ThreadPoolExecutor(REQUESTS) as pool:
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
    while not (window.has_line or window.final or window.full):
        window.fill()
    window.skip_mark()
    begin = window.begin
    if not window.skip_line() and not window.final:
        raise InputError(f"{path}: no line ends in the first {window.filled} bytes; is it CSV?")
    try:
        line = window.data[begin : window.begin].tobytes().decode()
    except UnicodeDecodeError:
        raise InputError(f"{path}: the header is not UTF-8; convert the file") from None
    text = pipeline.input
    try:
        return tuple(next(csv.reader([line], delimiter=text.delimiter, quotechar=text.quote), []))
    except csv.Error as problem:
        raise InputError(f"{path}: the header cannot be read: {problem}; correct it") from None
