"""Read CSV (RFC 4180) with a header line.

A CSV record ends at an LF outside quotes; one CR preceding the LF belongs to the line end. Quotes
are special only at the beginning of a field. If the quotes of a record are wrong, its first line is
rejected and reading continues at the next line, so that one stray quote does not swallow a file.
Empty lines are skipped. A record with more or fewer fields than the header is rejected.
"""

import csv
import json
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from seglake.config import Input, Pipeline
from seglake.errors import InputError
from seglake.format.records import Spans
from seglake.limits import REQUESTS
from seglake.text.csv_kernels import scan_records
from seglake.text.newlines import first_newline
from seglake.text.value_fields import texts_of
from seglake.write.input.binaries import NO_TEXT, binary_remark, is_binary
from seglake.write.input.codecs import HEAD_BYTES
from seglake.write.input.content import InputStore
from seglake.write.input.files import SourceFile, Split
from seglake.write.rows.lines import (
    REJECTED_BYTES,
    ChunkBounds,
    LineBuffer,
    LineChunk,
    LineRows,
    SplitStream,
    TooLongRow,
    streams_of,
)
from seglake.write.rows.rows import Format, Rows, nearest

_DELIMITERS = (",", ";", "\t", "|")
_HEADER_BYTES = 1 << 20  # the longest header line
_IS_JSONL = (
    "it has JSON lines: set input.format = 'jsonl', or leave it out with input.exclude where the "
    "other files are CSV"
)

_REMEDY = "correct the settings, the file or input.delimiter"
_OF_ONE_FILE = "correct the file, or leave it out with input.exclude"

Header = tuple[str, ...]


class Csv(Format):
    """CSV records, with a header line."""

    def check(self, files: Sequence[SourceFile], store: InputStore, pipeline: Pipeline) -> None:
        """Raise InputError unless all files that are not empty have equal headers."""
        read = partial(read_header, store=store, settings=pipeline.input)
        with ThreadPoolExecutor(REQUESTS) as pool:
            headers = zip(files, pool.map(read, files), strict=True)
            headed = [_Headed(file, header) for file, header in headers if header]
        for other in headed[1:]:
            if other.header != headed[0].header:
                raise InputError(_difference(headed[0], other, pipeline))

    def value_settings(
        self, files: Sequence[SourceFile], store: InputStore, pipeline: Pipeline
    ) -> dict[str, Any]:
        """Return the columns of the first file with a header, and how records are written.

        Duplicate column names are ignored. Raises InputError.
        """
        text = pipeline.input
        headers = (read_header(file, store, text) for file in files)
        header = next(filter(None, headers), ())
        columns = [name if header.count(name) == 1 else "" for name in header]
        if not any(columns):
            return {}
        return {
            "value.format": "csv", "value.columns": columns,
            "value.delimiter": text.delimiter, "value.quote": text.quote,
        }  # fmt: skip

    def can_split(self, file: SourceFile, store: InputStore, pipeline: Pipeline) -> bool:
        """Return whether records are lines, and the file can be cut like a file of lines."""
        return not pipeline.input.multiline and store.can_be_cut(file)

    def read(
        self, split: Split, store: InputStore, pipeline: Pipeline
    ) -> Iterator[tuple[str, Rows]]:
        """Yield the records of a split; see `Format.read`."""
        for part in streams_of(split, store):
            header = read_header(split.file, store, pipeline.input) if part.partial else None
            for rows in _rows_of(part, header, pipeline):
                yield part.path, rows


class Layout:
    """The columns of a CSV file. The columns that the pipeline uses are numbered as slots.

    Raises:
        InputError: A used column is missing in the header, or occurs twice.
    """

    def __init__(self, path: str, header: Sequence[str], pipeline: Pipeline) -> None:
        every = header if pipeline.wants_every_column else ()
        names = list(dict.fromkeys([*pipeline.fields(), *every]))
        if missing := _missing(header, pipeline):
            raise InputError(_no_column(path, missing, header, pipeline))
        twice = [name for name in names if list(header).count(name) > 1]
        if twice:
            raise InputError(
                f"{path}: the header has {', '.join(twice)} more than once; rename all but one"
            )
        self.header, self.slots = list(header), {name: slot for slot, name in enumerate(names)}
        self.by_column = np.array([self.slots.get(name, -1) for name in header], np.int64)
        self.bounds = ChunkBounds.of(names, path, pipeline)
        text = pipeline.input
        self.marks = np.array([ord(text.delimiter), ord(text.quote), text.multiline], np.int64)


class _Headed(NamedTuple):
    """A file, and its header."""

    file: SourceFile
    header: Header


def _difference(first: _Headed, other: _Headed, pipeline: Pipeline) -> str:
    """Return the message for two files whose headers differ, with the fault of one if any."""
    pairs = (first, other), (other, first)
    wrong = (_fault(one.file.path, one.header, right.header, pipeline) for one, right in pairs)
    return next(filter(None, wrong), "") or _change(first, other)


def _fault(path: str, header: Header, other: Header, pipeline: Pipeline) -> str:
    """Return the message for a wrong delimiter or a missing column; "" if the header is right."""
    if meant := _delimiter_of(header, other, pipeline.input):
        return (
            f"{path}: its header is one column, {header[0]!r}: it has the delimiter "
            f"{json.dumps(meant)}, and others have {json.dumps(pipeline.input.delimiter)}: "
            f"{_OF_ONE_FILE}, and ingest it by a pipeline of its own"
        )
    missing = _missing(header, pipeline)
    remedy = _REMEDY if _missing(other, pipeline) else _OF_ONE_FILE
    return _no_column(path, missing, header, pipeline, remedy) if missing else ""


def _change(first: _Headed, other: _Headed) -> str:
    """Return the message for two headers that both have the columns in the settings."""
    names = (*first.header, *other.header)
    differing = [name for name in names if (name in first.header) != (name in other.header)]
    return (
        f"{other.file.path}: schema changed: its header differs from that of {first.file.path} "
        f"({', '.join(differing) or 'order of columns'}); ingest such files by another pipeline"
    )


def _missing(header: Sequence[str], pipeline: Pipeline) -> list[str]:
    """Return the columns that the settings name and the header does not have."""
    return [name for name in pipeline.fields() if name not in header]


def _no_column(
    path: str,
    missing: Sequence[str],
    header: Sequence[str],
    pipeline: Pipeline,
    remedy: str = _REMEDY,
) -> str:
    """Return the message for columns that are missing in a header."""
    text = f"{path}: no column {', '.join(map(repr, missing))} in the header"
    if meant := _delimiter_of(header, pipeline.fields(), pipeline.input):
        count = len(_cut(header[0], meant, pipeline.input))
        return (
            f"{text}, which is one column, {header[0]!r}: with input.delimiter = "
            f"{json.dumps(meant)} it has {count}"
        )
    encoding = pipeline.input.encoding
    if "".join(header[:1]).encode(encoding, "ignore").startswith(BOM_UTF8):
        return (
            f"{path}: begins with the mark of UTF-8, and input.encoding is {encoding!r}: set "
            "'utf-8', in a pipeline of its own if other files are in another one"
        )
    if not any(header):
        return f"{path}: its first line, which is the header, is empty: remove that line"
    return f"{text}; {nearest(missing[0], header, 'it')}; {remedy}"


def _delimiter_of(header: Sequence[str], names: Iterable[str], settings: Input) -> str | None:
    """Return the delimiter that splits a one-column header so that a column is in `names`."""
    for other in _DELIMITERS if len(header) == 1 else ():
        meant = _cut(header[0], other, settings)
        if len(meant) > 1 and not {*meant}.isdisjoint(names):
            return other
    return None


def _cut(line: str, delimiter: str, settings: Input) -> list[str]:
    return next(csv.reader([line], delimiter=delimiter, quotechar=settings.quote), [])


class CsvRows(LineRows):
    """The CSV records in data[begin:end] of a line buffer, up to the layout's bounds.

    After construction, `end` is the end of the last record, and `more_follow` is True if other
    records begin there. `lines_before` counts header lines preceding the records. Unless `final`, a
    record that reaches the argument `end` is omitted.
    """

    def __init__(
        self, buffer: LineBuffer, end: int, final: bool, layout: Layout, lines_before: int = 0
    ) -> None:
        rows, size = layout.bounds
        scanned = scan_records(
            buffer.data,
            buffer.begin,
            end,
            final,
            layout.marks,
            layout.by_column,
            len(layout.slots),
            rows,
            buffer.begin + size,
        )
        starts, lengths, numbers, self.reasons, self._spans, *ends = scanned
        self.end, count, more_follow = ends
        self.more_follow = bool(more_follow)
        self.numbers, self.line_count = numbers + lines_before, count + lines_before
        self.raw = Spans(buffer.data, starts, lengths.astype(np.int32))
        self._layout, self.all_names = layout, layout.header

    def field(self, name: str) -> Spans:
        """Return the values without their quotes; null if empty."""
        slot = self._layout.slots[name]
        return texts_of(self.raw, self._spans[:, slot], int(self._layout.marks[1]))


def _rows_of(part: SplitStream, header: Header | None, pipeline: Pipeline) -> Iterator[Rows]:
    """Yield the CSV records that begin in the first `part.limit` bytes of a stream.

    Without `header`, the stream begins with its header. Otherwise it begins inside the last line
    of the previous split.
    """
    buffer = LineBuffer(part.stream, pipeline.task.chunk_bytes, part.limit)
    skipping = header is not None
    layout = Layout(part.path, header, pipeline) if header else None
    while not buffer.done and buffer.fill():
        if skipping:
            skipping = not buffer.skip_line()
            if skipping or buffer.done:
                continue
        if layout is None:
            layout = Layout(part.path, _take_header(buffer, part.path, pipeline.input), pipeline)
            yield CsvRows(buffer, buffer.begin, True, layout, lines_before=1)
            if buffer.done:
                continue
        multiline = pipeline.input.multiline
        end, final = (buffer.filled, buffer.final) if multiline else (buffer.line_end(), True)
        begin, more_follow = buffer.begin, True
        while more_follow:
            rows = CsvRows(buffer, end, final, layout)
            if rows.end > buffer.begin:
                yield rows
            buffer.begin, more_follow = rows.end, rows.more_follow
        if buffer.begin == begin and buffer.full:
            stop = first_newline(buffer.data, 0, min(buffer.filled, REJECTED_BYTES))
            yield TooLongRow(LineChunk(buffer.data, 0, stop, True))
            skipping = True


def read_header(file: SourceFile, store: InputStore, settings: Input) -> Header | None:
    """Return the names in the header line of a CSV file, or None if the file is empty."""
    for path, stream in store.texts(file):
        # The limit of 0 makes the buffer read in small steps, because most headers are short.
        buffer = LineBuffer(stream, _HEADER_BYTES, 0)
        if buffer.fill():
            return _take_header(buffer, path, settings)
    return None


def _take_header(buffer: LineBuffer, path: str, settings: Input) -> Header:
    """Consume the first line of the stream, and return the names in it."""
    while not (buffer.has_line or buffer.final or buffer.full):
        buffer.fill()
    buffer.skip_mark()
    begin = buffer.begin
    if remark := binary_remark(
        buffer.data[begin : min(begin + HEAD_BYTES, buffer.filled)].tobytes()
    ):
        raise InputError(f"{path}: {remark}")
    if not buffer.skip_line() and not buffer.final:
        raise InputError(f"{path}: no line ends in the first {buffer.filled} bytes; is it CSV?")
    try:
        line = buffer.data[begin : buffer.begin].tobytes().decode()
    except UnicodeDecodeError:
        raise InputError(
            f"{path}: the header is not in {settings.encoding}: set input.encoding to what the "
            "file is in"
        ) from None
    if _is_object(line):
        raise InputError(f"{path}: {_IS_JSONL}")
    if "\r" in line.rstrip("\r\n"):
        if is_binary(line.encode()):
            raise InputError(f"{path}: {NO_TEXT}")
        raise InputError(
            f"{path}: lines end with CR, which does not end a line of CSV here: end them with LF, "
            "as `tr '\\r' '\\n' < FILE` does"
        )
    text = csv.reader([line], delimiter=settings.delimiter, quotechar=settings.quote)
    try:
        return tuple(next(text, []))
    except csv.Error as problem:
        raise InputError(f"{path}: the header cannot be read: {problem}; correct it") from None


def _is_object(line: str) -> bool:
    """Return whether a line is a JSON object, which is not a header."""
    try:
        return line.lstrip().startswith("{") and isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False
