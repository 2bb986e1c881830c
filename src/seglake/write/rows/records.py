"""From a split of the input to records and rejected rows, chunk by chunk.

Every row of the input comes out once: as a record, or as a rejected row with the first reason that
applies, in the order of `Reason`. A row is a line that is not empty, a CSV record (the header is
none), or a row of a Parquet file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from seglake.config import Pipeline
from seglake.format.records import Headers, Int32s, Int64s, Records, Spans
from seglake.text.spans import (
    REASONS,
    Codes,
    Reason,
    constant,
    decimal_text,
    interleave,
    join_key,
    small_integers,
)
from seglake.times.directives import TimeFormat
from seglake.times.kernels import OUT_OF_RANGE, READ, UNREADABLE
from seglake.times.readers import Times
from seglake.write.input.listing import Split
from seglake.write.input.streams import RawFile, Stream, open_parts
from seglake.write.rows.csv import csv_chunks, read_header
from seglake.write.rows.jsonl import JsonRows, Wanted
from seglake.write.rows.line_chunks import REJECTED_BYTES, Chunk, invalid_utf8, line_chunks
from seglake.write.rows.parquet import parquet_rows
from seglake.write.rows.text import LongRow, TextRows

SOURCE_FILE, SOURCE_LINE = b"seglake.source.file", b"seglake.source.line"
_RECORD_BYTES = 61 + 21  # a batch's own bytes, and Kafka's DefaultRecord.MAX_RECORD_OVERHEAD
_LENGTH_BYTES = 5  # the longest varint in front of a key, a value or a part of a header
_WHOLE_FILE = 2**62


class Rows(Protocol):
    """n rows of one chunk, before they are records."""

    @property
    def numbers(self) -> Int64s:
        """Of the rows' lines, 0-based, counted from the beginning of the chunk."""

    @property
    def line_count(self) -> int:
        """Lines of the chunk, with those that are no rows."""

    @property
    def reasons(self) -> Codes:
        """NONE, or why a row cannot be read."""

    @property
    def raw(self) -> Spans:
        """The rows as they stand in the file."""

    def shown(self, rows: Int64s) -> Spans:
        """Some rows, by position, as the quarantine shows them."""

    def field(self, name: str) -> Spans:
        """The values of a field as bytes; null where a row has none."""

    def times(self, name: str, form: TimeFormat) -> Times:
        """The values of a field as times."""

    def objects(self, names: tuple[str, ...]) -> Spans:
        """One JSON object per row, of the fields `names`."""


@dataclass(frozen=True)
class Rejects:
    """Rows that could not become records."""

    lines: Int64s  # 0-based, counted from the first line of the split
    reasons: npt.NDArray[np.str_]
    raw: Spans  # the rows as they stood, at most 64 KiB of each

    def __len__(self) -> int:
        return len(self.lines)


@dataclass(frozen=True)
class Extracted:
    """What one chunk of a split holds.

    `partitions` is the log partition of each record if `topic.partition_field` names it, else None.
    `line_count` counts lines of the file, empty lines and headers included, so that the sum over
    the chunks and splits before is the number of a chunk's first line. `row_count` counts rows.
    """

    records: Records
    partitions: Int32s | None
    line_count: int
    rejects: Rejects

    @property
    def row_count(self) -> int:
        """Rows of the chunk: each is a record or a reject."""
        return len(self.records) + len(self.rejects)


def read_split(split: Split, pipeline: Pipeline) -> Iterator[Extracted]:
    """The rows of a split, in the order of the file.

    Memory is a few times `task.chunk_bytes`, whatever the size of the file. What comes out depends
    on the bytes of the file and the settings only.

    Raises:
        InputError: the file cannot be read, is damaged, or lacks a field that it must have.
    """
    first_line = begins = 0
    name = split.file.path
    for path, rows in _rows(split, pipeline):
        if path != name:
            name, begins = path, first_line
        extracted = extract(rows, pipeline, path, first_line, begins)
        first_line += extracted.line_count
        yield extracted


def _rows(split: Split, pipeline: Pipeline) -> Iterator[tuple[str, Rows]]:
    """The path that rows come from, and the rows, chunk by chunk."""
    if pipeline.input.format == "parquet":
        yield from ((split.file.path, rows) for rows in parquet_rows(split, pipeline))
        return
    wanted, size = Wanted(pipeline.fields()), pipeline.task.chunk_bytes
    for part in _parts(split, pipeline):
        if pipeline.input.format == "csv":
            header = read_header(split.file, pipeline) if part.partial else None
            for found in csv_chunks(part.stream, part.path, pipeline, part.limit, header):
                yield part.path, LongRow(found) if isinstance(found, Chunk) else found
            continue
        for chunk in line_chunks(part.stream, size, part.limit, part.partial):
            if chunk.too_long:
                yield part.path, LongRow(chunk)
            elif pipeline.input.format == "jsonl":
                yield part.path, JsonRows(chunk, wanted)
            else:
                yield part.path, TextRows(chunk, pipeline)


class _Part(NamedTuple):
    """A stream, how many of its bytes belong to the split, and whether it begins inside a line."""

    path: str
    stream: Stream
    limit: int
    partial: bool


def _parts(split: Split, pipeline: Pipeline) -> Iterator[_Part]:
    file = split.file
    if split.start > 0 or split.end < file.size:
        begin = max(split.start - 1, 0)
        raw = RawFile(file, pipeline, begin)
        yield _Part(file.path, raw, split.end - begin, split.start > 0)
    else:
        for path, stream in open_parts(file, pipeline):
            yield _Part(path, stream, _WHOLE_FILE, False)


def extract(
    rows: Rows, pipeline: Pipeline, path: str, first_line: int, begins: int = 0
) -> Extracted:
    """Records of the rows that can be records, in order, and rejects of the others.

    `path` names the source in errors and headers; lines count from `first_line`, those in headers
    from where the source `begins` in its archive.
    """
    lines = rows.numbers + first_line
    reasons = rows.reasons.copy()
    timestamps = _timestamps(rows, pipeline, reasons)
    keys = _keys(rows, pipeline, reasons)
    partitions = _partitions(rows, pipeline, reasons)
    values = _values(rows, pipeline)
    if pipeline.value_source == "columns":
        _note(reasons, invalid_utf8(*values), Reason.INVALID_UTF8)
    records = Records(timestamps, keys, values, None)
    names, columns = _headers(rows, pipeline, path, lines - begins)
    too_large = _sizes(records, names, columns) > pipeline.topic.max_message_bytes
    _note(reasons, too_large, Reason.TOO_LARGE)
    good = reasons == Reason.NONE
    if not good.all():
        kept = np.flatnonzero(good)
        records = Records(timestamps[kept], keys.take(kept), records.values.take(kept), None)
        columns = [column.take(kept) for column in columns]
        partitions = None if partitions is None else partitions[kept]
    if names:
        headers = _interleaved(names, columns, len(records))
        records = Records(records.timestamps, records.keys, records.values, headers)
    return Extracted(records, partitions, rows.line_count, _rejects(rows, reasons, lines))


def _note(reasons: Codes, where: npt.NDArray[np.bool_], reason: Reason) -> None:
    """Give rows that are still fine a reason to be rejected."""
    reasons[where & (reasons == Reason.NONE)] = reason


def _timestamps(rows: Rows, pipeline: Pipeline, reasons: Codes) -> Int64s:
    settings = pipeline.timestamp
    if settings.field is None:
        return np.full(len(reasons), -1, np.int64)
    ms, codes = rows.times(settings.field, settings.time_format)
    if (codes == READ).all():
        return ms
    unreadable = codes == UNREADABLE
    if unreadable.any():
        missing = rows.field(settings.field).lengths < 0
        _note(reasons, unreadable & missing, Reason.TIMESTAMP_MISSING)
    _note(reasons, unreadable, Reason.TIMESTAMP_UNREADABLE)
    _note(reasons, codes == OUT_OF_RANGE, Reason.TIMESTAMP_OUT_OF_RANGE)
    return ms


def _keys(rows: Rows, pipeline: Pipeline, reasons: Codes) -> Spans:
    if not pipeline.key.fields:
        return Spans.nulls(len(reasons))
    fields = [rows.field(name) for name in pipeline.key.fields]
    keys = join_key(fields, pipeline.key.separator.encode())
    if pipeline.key.required:
        _note(reasons, keys.lengths < 0, Reason.KEY_MISSING)
    return keys


def _partitions(rows: Rows, pipeline: Pipeline, reasons: Codes) -> Int32s | None:
    name = pipeline.topic.partition_field
    if name is None:
        return None
    partitions = small_integers(rows.field(name), pipeline.topic.partitions)
    _note(reasons, partitions < 0, Reason.PARTITION_OUT_OF_RANGE)
    return partitions


def _values(rows: Rows, pipeline: Pipeline) -> Spans:
    match pipeline.value_source:
        case "line":
            return rows.raw
        case "field":
            return rows.field(str(pipeline.value.field))
        case _:
            return rows.objects(pipeline.value.columns)


def _headers(
    rows: Rows, pipeline: Pipeline, path: str, lines: Int64s
) -> tuple[list[bytes], list[Spans]]:
    """Names of the headers that every record gets, and their values as columns."""
    names = [name.encode() for name in pipeline.headers.fields]
    columns = [rows.field(name) for name in pipeline.headers.fields]
    if pipeline.headers.source:
        names += [SOURCE_FILE, SOURCE_LINE]
        columns += [constant(path.encode(), len(lines)), decimal_text(lines + 1)]
    return names, columns


def _interleaved(names: list[bytes], columns: list[Spans], count: int) -> Headers:
    """Columns of header values as the headers of `count` records."""
    name_spans = Spans.of(list(names)).take(np.tile(np.arange(len(names)), count))
    firsts = np.arange(count + 1, dtype=np.int64) * len(names)
    return Headers(firsts, name_spans, interleave(columns))


def _sizes(records: Records, names: list[bytes], columns: list[Spans]) -> Int64s:
    """The most bytes that each record needs in a batch of its own, uncompressed."""
    spans = [records.keys, records.values, *columns]
    sizes = np.full(len(records), _RECORD_BYTES + _LENGTH_BYTES * len(spans), np.int64)
    for span in spans:
        sizes += np.maximum(span.lengths, 0)
    return sizes + sum(_LENGTH_BYTES + len(name) for name in names)


def _rejects(rows: Rows, reasons: Codes, lines: Int64s) -> Rejects:
    bad = np.flatnonzero(reasons)
    raw = rows.shown(bad) if len(bad) else Spans.nulls(0)
    capped = Spans(raw.data, raw.starts, np.minimum(raw.lengths, REJECTED_BYTES))
    return Rejects(lines[bad], REASONS[reasons[bad]], capped)
