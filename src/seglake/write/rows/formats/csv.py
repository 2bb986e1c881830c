"""Read CSV (RFC 4180) with a header line.

A CSV record ends at an LF outside quotes. If there is a CR in front of the LF, it belongs to the
line end. A quote is special only at the beginning of a field. If the quotes of a record are wrong,
its first line is rejected and reading continues at the next line, so that one wrong quote does not
spoil the rest of the file. Empty lines are skipped. A record with more or fewer fields than the
header is rejected.

With `input.comment`, a comment `#Fields:` (W3C logs) or `#fields` (Zeek) names the columns of the
lines after it, instead of a header. Another such comment later in the file changes the columns, so
a file with comments is one split.
"""

import csv
import json
import re
from codecs import BOM_UTF8
from collections.abc import Generator, Iterable, Iterator, Sequence
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
from seglake.text.spans import null_if
from seglake.text.value_fields import csv_marks, texts_of
from seglake.write.input.binaries import describe_binary
from seglake.write.input.codecs import HEAD_BYTES
from seglake.write.input.content import InputStore
from seglake.write.input.files import SourceFile, Split
from seglake.write.rows.lines import (
    REJECTED_BYTES,
    ChunkBounds,
    LineBuffer,
    LineChunk,
    SplitStream,
    TooLongRow,
    open_streams,
)
from seglake.write.rows.rows import Format, RowChunks, Rows, similar_names_hint

DELIMITERS = (",", ";", "\t", "|")
_HEADER_BYTES = 1 << 20  # the longest header line
_IS_JSONL = (
    "the file has JSON lines. Set input.format = 'jsonl', or leave out the file with "
    "input.exclude if the others are CSV"
)

Header = tuple[str, ...]
_FIELDS = re.compile(rb".fields(?::|\t)(.*)", re.IGNORECASE)  # as in `csv_kernels`


class Csv(Format):
    """The input format "csv": CSV records after a header line."""

    def check(self, files: Sequence[SourceFile], store: InputStore, pipeline: Pipeline) -> None:
        """Raise InputError unless all files that are not empty have equal headers.

        If a comment names the columns of a file, the file only needs the columns that the pipeline
        uses.
        """
        read = partial(read_header, store=store, settings=pipeline.input)
        with ThreadPoolExecutor(REQUESTS) as pool:
            headed = [first for first in pool.map(read, files) if first]
        for other in headed:
            problem = _no_column(other.path, other.names, pipeline)
            if other.in_comment and problem:
                raise InputError(problem)
            if not other.in_comment and other.names != headed[0].names:
                raise InputError(_difference(headed[0], other, pipeline))

    def value_settings(
        self, files: Sequence[SourceFile], store: InputStore, pipeline: Pipeline
    ) -> dict[str, Any]:
        """Return `value.*` settings with the columns of the first header, and the CSV dialect.

        Duplicate column names are ignored. Return {} if a comment names the columns, because they
        may change in a file. Raises InputError.
        """
        text = pipeline.input
        headers = (read_header(file, store, text) for file in files)
        first = next(filter(None, headers), None)
        header = first.names if first and not first.in_comment else ()
        columns = [name if header.count(name) == 1 else "" for name in header]
        if not any(columns):
            return {}
        return {
            "value.format": "csv", "value.columns": columns, "value.delimiter": text.delimiter,
            "value.quote": text.quote, "value.escape": text.escape,
        }  # fmt: skip

    def can_split(self, file: SourceFile, store: InputStore, pipeline: Pipeline) -> bool:
        """Return whether each record is one line and the file can be read in independent parts."""
        text = pipeline.input
        whole = text.multiline or text.comment or text.skip_lines
        return not whole and store.can_be_cut(file)

    def read(self, split: Split, store: InputStore, pipeline: Pipeline) -> RowChunks:
        """Yield the records of a split; see `Format.read`."""
        for part in open_streams(split, store):
            first = read_header(split.file, store, pipeline.input) if part.partial else None
            for rows in _rows_of(part, first and first.names, pipeline):
                yield part.path, rows


class Layout:
    """The columns of a CSV file. The columns that the pipeline uses have numbers (slots) from 0.

    If `may_lack`, a column that is missing in the header is null. Otherwise it is an error.

    Raises:
        InputError: The header has a used column several times, or does not have it.
    """

    def __init__(
        self, path: str, header: Sequence[str], pipeline: Pipeline, *, may_lack: bool = False
    ) -> None:
        every = header if pipeline.wants_every_column else ()
        names = list(dict.fromkeys([*pipeline.fields(), *every]))
        if not may_lack and (problem := _no_column(path, header, pipeline)):
            raise InputError(problem)
        twice = [name for name in names if list(header).count(name) > 1]
        if twice:
            raise InputError(
                f"{path} has {', '.join(twice)} more than once in its header. Rename all but one"
            )
        self.header, self.slots = list(header), {name: slot for slot, name in enumerate(names)}
        self.by_column = np.array([self.slots.get(name, -1) for name in header], np.int64)
        self.bounds = ChunkBounds.for_file(names, path, pipeline)
        text = pipeline.input
        self.null_values = text.null_values
        dialect = text.delimiter, text.quote, text.escape, text.comment
        self.marks = csv_marks(*dialect, multiline=text.multiline)


class FileHeader(NamedTuple):
    """The names of a CSV file's columns. If `in_comment`, a comment contains them."""

    path: str
    names: Header
    in_comment: bool


def _difference(first: FileHeader, other: FileHeader, pipeline: Pipeline) -> str:
    """Return the error message for two files with different headers.

    If one of them has a missing column, the message is about this mistake.
    """
    for one in (first, other):
        if problem := _no_column(one.path, one.names, pipeline):
            return problem
    names = (*first.names, *other.names)
    differing = [name for name in names if (name in first.names) != (name in other.names)]
    return (
        f"the schema changed: the headers of {other.path} and {first.path} differ "
        f"({', '.join(differing) or 'order of columns'}). Ingest them with separate pipelines"
    )


def _no_column(path: str, header: Sequence[str], pipeline: Pipeline) -> str:
    """Return the message for columns that the pipeline uses and a header does not have, else "".

    The message has the likely cause.
    """
    missing = [name for name in pipeline.fields() if name not in header]
    if not missing:
        return ""
    text = f"{path} has no column {', '.join(map(repr, missing))} in its header"
    for other in DELIMITERS if len(header) == 1 else ():
        meant = _cut(header[0], other, pipeline.input)
        if len(meant) > 1 and not {*meant}.isdisjoint(pipeline.fields()):
            return (
                f"{text}, which is one column, {header[0]!r}. With input.delimiter = "
                f"{json.dumps(other)}, it has {len(meant)}"
            )
    if pipeline.input.comment is None and "".join(header[:1]).startswith("#"):
        return f"{path} begins with '#'. Set input.comment = '#' if such lines are comments"
    return (
        f"{text}. Correct the settings or the file, or leave it out with input.exclude. "
        f"{similar_names_hint(missing[0], header, 'The header')}"
    )


def _cut(line: str, delimiter: str, settings: Input) -> list[str]:
    return next(_parsed([line], settings.model_copy(update={"delimiter": delimiter})), [])


def _parsed(lines: Iterable[str], settings: Input, *, strict: bool = False) -> Iterator[list[str]]:
    quote, escape, delimiter = settings.quote, settings.escape, settings.delimiter
    return csv.reader(lines, delimiter=delimiter, quotechar=quote, escapechar=escape, strict=strict)


class CsvRows(Rows):
    """The CSV records in data[begin:end] of a line buffer, up to the bounds of `layout`.

    After construction, `end` is the end of the last record, and `more_follow` is True if other
    lines begin there. If `are_named`, the first of these lines is a comment that names columns.
    Unless `final`, a record that reaches the argument `end` may be incomplete, and is omitted.
    """

    def __init__(self, buffer: LineBuffer, end: int, final: bool, layout: Layout) -> None:
        rows, size = layout.bounds
        columns, begin = (layout.marks, layout.by_column, len(layout.slots)), buffer.begin
        scanned = scan_records(buffer.data, begin, end, final, *columns, rows, begin + size)
        starts, lengths, self.numbers, self.reasons, self._spans, *ends = scanned
        self.end, self.line_count, self.comment_lines, *flags = ends
        self.more_follow, self.are_named = map(bool, flags)
        self.raw = Spans(buffer.data, starts, lengths.astype(np.int32))
        self._layout, self.all_names = layout, layout.header

    def field(self, name: str) -> Spans:
        """Return the values without quotes. Empty values and `input.null_values` become null."""
        slot, layout = self._layout.slots[name], self._layout
        texts = texts_of(self.raw, self._spans[:, slot], layout.marks)
        return null_if(texts, layout.null_values)


class _NoRows(Rows):
    """A chunk without rows, which only counts lines, such as a header or comments."""

    def __init__(self, line_count: int, comment_lines: int) -> None:
        self.line_count, self.comment_lines = line_count, comment_lines
        self.numbers, self.reasons = np.zeros(0, np.int64), np.zeros(0, np.int8)
        self.raw = Spans.nulls(0)

    def field(self, _name: str) -> Spans:
        """Return an empty column."""
        return Spans.nulls(0)


def _rows_of(part: SplitStream, header: Header | None, pipeline: Pipeline) -> Iterator[Rows]:
    """Yield the CSV records that begin in the first `part.limit` bytes of a stream.

    If `header` is None, the stream begins with its header. Otherwise it begins inside the last line
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
            first = _take_header(buffer, part.path, pipeline.input)
            yield _NoRows(first.line_count, first.comment_lines)
            if first.names is None:
                return
            layout = Layout(part.path, first.names, pipeline)
            if buffer.done:
                continue
        begin = buffer.begin
        layout = yield from _records(buffer, layout, part.path, pipeline)
        if buffer.begin == begin and buffer.full:
            stop = first_newline(buffer.data, 0, min(buffer.filled, REJECTED_BYTES))
            yield TooLongRow(LineChunk(buffer.data, 0, stop, True))
            skipping = True


def _records(
    buffer: LineBuffer, layout: Layout, path: str, pipeline: Pipeline
) -> Generator[Rows, None, Layout]:
    """Consume the records in the buffer, and yield them. Return the layout for the next records.

    The layout changes if a comment names other columns.
    """
    multiline = pipeline.input.multiline
    end, final = (buffer.filled, buffer.final) if multiline else (buffer.line_end(), True)
    more_follow = True
    while more_follow:
        rows = CsvRows(buffer, end, final, layout)
        if rows.end > buffer.begin:
            yield rows
        buffer.begin, more_follow = rows.end, rows.more_follow
        if rows.are_named:
            names = _named_columns(next(_lines(buffer)), pipeline.input)
            layout = Layout(path, names or (), pipeline, may_lack=True)
            buffer.skip_line()
            yield _NoRows(1, 1)
            more_follow = buffer.begin < end
    return layout


class FirstLines(NamedTuple):
    """The lines of a file up to its header, inclusive. `names` is None if there is no header.

    If `in_comment`, a comment names the columns. `line_count` includes `comment_lines`.
    """

    names: Header | None
    in_comment: bool
    line_count: int
    comment_lines: int


def read_header(file: SourceFile, store: InputStore, settings: Input) -> FileHeader | None:
    """Return the header of a CSV file, or None if the file has no header.

    Raises InputError.
    """
    for path, stream in store.texts(file):
        # The limit of 0 makes the buffer read in small steps, because most headers are short.
        buffer = LineBuffer(stream, _HEADER_BYTES, 0)
        if buffer.fill():
            first = _take_header(buffer, path, settings)
            return FileHeader(file.path, first.names, first.in_comment) if first.names else None
    return None


def _take_header(buffer: LineBuffer, path: str, settings: Input) -> FirstLines:
    """Consume the lines of a stream up to its header, inclusive. Raises InputError."""
    lines = _lines(buffer)
    line, line_count, comment_lines, size = next(lines, None), 0, 0, 0
    head = buffer.data[buffer.begin : min(buffer.begin + HEAD_BYTES, buffer.filled)]
    if remark := describe_binary(head.tobytes().removeprefix(BOM_UTF8)):
        raise InputError(f"{path}: {remark}")
    names: Header | None = None
    in_comment = False
    while line is not None and names is None:
        line_count += 1
        size += len(line)
        if line_count > settings.skip_lines:
            in_comment = line.removeprefix(BOM_UTF8)[:1].decode("latin-1") == settings.comment
            comment_lines += in_comment
            if in_comment:
                names = _named_columns(line, settings)
            else:
                names, more = _names(line, lines, path, settings)
                line_count += len(more)
                size += sum(map(len, more))
        line = next(lines, None) if names is None else None
    if names is None and not buffer.final:
        raise InputError(
            f"{path} has no complete header in {buffer.filled:,} bytes. Check that it is CSV"
        )
    if names is None and line_count > comment_lines:
        raise InputError(
            f"{path} has no header after input.skip_lines = {settings.skip_lines}. Lower it, or "
            "leave the file out with input.exclude"
        )
    buffer.begin += size
    return FirstLines(names, in_comment, line_count, comment_lines)


def _lines(buffer: LineBuffer) -> Iterator[bytes]:
    """Yield the next lines without consuming them, as long as they fit in the buffer."""
    at = 0
    while True:
        start = buffer.begin + at
        stop = min(first_newline(buffer.data, start, buffer.filled) + 1, buffer.filled)
        if stop > start and (buffer.final or buffer.data[stop - 1] == ord("\n")):
            at += stop - start
            yield buffer.data[start:stop].tobytes()
        elif buffer.final or buffer.full:
            return
        else:
            buffer.fill()


def _names(
    line: bytes, rest: Iterator[bytes], path: str, settings: Input
) -> tuple[Header, list[bytes]]:
    """Parse a header. Return its names, and the lines that belong to it after the first `line`.

    `rest` yields the next lines. If the quotes are wrong, the header is only the first line.
    """
    text = line.removeprefix(BOM_UTF8).decode(errors="surrogateescape")
    if _is_object(text):
        raise InputError(f"{path}: {_IS_JSONL}")
    more = list[bytes]()

    def texts() -> Iterator[str]:
        yield text
        for each in rest if settings.multiline else ():
            more.append(each)
            yield each.decode(errors="surrogateescape")

    try:
        try:
            names = next(_parsed(texts(), settings, strict=True), [])
        except csv.Error as problem:
            if not settings.multiline and "end of data" in str(problem):
                raise InputError(
                    f"{path} has a quote in its header that is not closed on its line. Set "
                    "input.multiline = true if the header has line breaks, else correct it"
                ) from None
            names, more = next(_parsed([text], settings), []), list[bytes]()
        "".join(names).encode()
    except csv.Error as problem:
        raise InputError(f"the header of {path} cannot be read ({problem}). Correct it") from None
    except UnicodeEncodeError:
        raise InputError(
            f"{path} has a header that is not {settings.encoding}. Set input.encoding to the "
            "file's encoding"
        ) from None
    return tuple(names), more


def _named_columns(line: bytes, settings: Input) -> Header | None:
    """Return the columns in a `#Fields:` comment, or None if `line` is another comment.

    If the delimiter is a tab, any whitespace separates the names, as in files of CloudFront.
    """
    match = _FIELDS.match(line.removeprefix(BOM_UTF8))
    if match is None:
        return None
    text = match[1].decode(errors="replace").strip()
    return tuple(
        text.split() if settings.delimiter.isspace() else next(_parsed([text], settings), [])
    )


def _is_object(line: str) -> bool:
    """Return whether a line is a JSON object, so that it cannot be a header."""
    try:
        return line.lstrip().startswith("{") and isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False
