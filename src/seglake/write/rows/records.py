"""Convert rows to records and rejects, chunk by chunk.

`extract` finds the timestamp, key, value, headers and log partition of each row of a chunk.
Every row of the input becomes one record, or one reject with a reason. A row is a line that is not
empty, a CSV record other than the header, or a row of a Parquet file or a DataFrame.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from seglake.advice.conclude import AbsentFields
from seglake.advice.finding import Finding
from seglake.advice.observe import ObservedChunk, observe
from seglake.config import Pipeline
from seglake.format.batch import OVERHEAD
from seglake.format.records import Flags, Headers, Int32s, Int64s, Records, Spans
from seglake.limits import ALL_TIMES
from seglake.text.spans import (
    choose,
    constant,
    decimal_text,
    interleave,
    is_one_of,
    join_fields,
    unsigned_integers,
    where_null,
)
from seglake.text.utf8 import invalid_utf8
from seglake.times.time_kernels import AMBIGUOUS, NONEXISTENT, OUT_OF_RANGE, READ, UNREADABLE
from seglake.write.input.content import InputStore
from seglake.write.input.encodings import with_bytes
from seglake.write.input.files import Split
from seglake.write.rows.formats.registry import FORMATS
from seglake.write.rows.lines import REJECTED_BYTES
from seglake.write.rows.rows import Codes, Reason, Rows, read_row_times, time_texts

SOURCE_FILE, SOURCE_LINE = b"seglake.source.file", b"seglake.source.line"
_RECORD_BYTES = OVERHEAD + 21  # 21 is Kafka's DefaultRecord.MAX_RECORD_OVERHEAD
_OFFSET_DIGITS, _MOST_OFFSETS = 18, 10**18
_LENGTH_BYTES = 5  # the longest varint in front of a key, a value or a part of a header
_OUTSIDE = (Reason.TIMESTAMP_OUT_OF_RANGE, Reason.TIMESTAMP_BEFORE_1970)
UNREAD_TIMES = (Reason.TIMESTAMP_UNREADABLE, *_OUTSIDE)
_CREATE_TIME, _LOG_APPEND_TIME = (b"0", b"CreateTime"), (b"1", b"LogAppendTime")


@dataclass(frozen=True)
class RejectedRows:
    """Rows that could not become records, with the reason for each row."""

    lines: Int64s  # 0-based line numbers in the split
    reasons: Codes  # values of `Reason`
    raw: Spans  # the first 64 KiB of each row: UTF-8, or the bytes of a file in another encoding
    path: str = ""  # path of the file, or of an archive's member
    path_line: int = 0  # line of the split at which the member begins

    def __len__(self) -> int:
        return len(self.lines)


class RowLimits(NamedTuple):
    """Limits of event times and offsets for the rows of a run.

    `event_times` has the smallest and the largest allowed event time in ms, both inclusive. If
    records keep their offsets, `first_offsets` has one offset for each log partition, and rows with
    a smaller offset are skipped. Otherwise `first_offsets` is None.
    """

    event_times: tuple[int, int] = ALL_TIMES
    first_offsets: tuple[int, ...] | None = None


class BrokerFields(NamedTuple):
    """The offset that each record keeps, and a flag: its timestamp is a broker's append time."""

    offsets: Int64s
    stamped: Flags

    def take(self, rows: Int64s) -> "BrokerFields":
        """Return the offsets and flags at the positions `rows`."""
        return BrokerFields(self.offsets[rows], self.stamped[rows])


@dataclass(frozen=True)
class ExtractedChunk:
    """The records and rejects of one chunk of a split.

    - `partitions` has the log partition of each record, or is None without `topic.partition_field`.
    - `line_count` includes empty lines and headers.
    - `absent` has the fields that no row has.
    - `broker_fields` has the offsets, or is None without `topic.offset_field`.
    - `skipped` counts the rows that are neither records nor rejects, because the log already has
      their offset.
    - `findings` are observations about the rows.
    - `comment_lines` counts the lines that begin with `input.comment`.
    """

    records: Records
    partitions: Int32s | None
    line_count: int
    rejects: RejectedRows
    absent: AbsentFields
    broker_fields: BrokerFields | None = None
    skipped: int = 0
    findings: Sequence[Finding] = ()
    comment_lines: int = 0

    @property
    def row_count(self) -> int:
        """Return the number of rows: records, rejects and skipped rows."""
        return len(self.records) + len(self.rejects) + self.skipped

    @property
    def memory_bytes(self) -> int:
        """Return the size of the chunk's buffers in bytes. A shared buffer counts once."""
        records, rejects = self.records, self.rejects
        spans = [records.keys, records.values, rejects.raw]
        spans += [records.headers.values] if records.headers else []
        return sum({id(each.data): len(each.data) for each in spans}.values())


Chunks = Iterator[ExtractedChunk]


def read_rows(
    split: Split, store: InputStore, pipeline: Pipeline
) -> Iterator[tuple[str, Rows, int, int]]:
    """Yield (path, rows, first line, path line) for each chunk of a split, in order.

    The path is the path of the file or of an archive's member. The chunk begins at its first line,
    and the member at the path line. Both are lines of the split, from 0. Raises what `read_split`
    raises.
    """
    first_line = path_line = 0
    current = split.file.path
    for path, rows in FORMATS[pipeline.input.format].read(split, store, pipeline):
        if path != current:
            current, path_line = path, first_line
        line_count = rows.line_count
        yield path, rows, first_line, path_line
        first_line += line_count


def read_split(split: Split, store: InputStore, pipeline: Pipeline, limits: RowLimits) -> Chunks:
    """Yield the records and rejects of a split, chunk by chunk, in the order of the file.

    Memory is a few times `chunk_bytes`, whatever the size of the file. The result depends only on
    the bytes of the file, the split, the settings and the limits.

    Raises:
        InputError: The file cannot be read, is damaged, or has no field with a required name.
    """
    for path, rows, first_line, path_line in read_rows(split, store, pipeline):
        yield extract(rows, pipeline, limits, path, first_line, path_line)


def extract(
    rows: Rows, pipeline: Pipeline, limits: RowLimits, path: str, first: int, path_line: int = 0
) -> ExtractedChunk:
    """Return the records and the rejects of a chunk, both in the order of the rows.

    Args:
        rows: The rows of the chunk.
        pipeline: The settings.
        limits: The limits for times and offsets.
        path: The path for errors and source headers.
        first: The line of the split (from 0) at which the chunk begins.
        path_line: The line of the split (from 0) at which an archive's member begins. Line numbers
            in source headers count from there.
    """
    lines = rows.numbers + first
    reasons = np.zeros(len(lines), np.int8)
    timestamps, local = _timestamps(rows, pipeline, limits.event_times, reasons)
    keys = _keys(rows, pipeline, reasons)
    partitions = _partitions(rows, pipeline, reasons)
    broker_fields = _broker_fields(rows, pipeline, reasons)
    values = _values(rows, pipeline)
    if pipeline.value_source == "columns":
        _reject(reasons, invalid_utf8(*values), Reason.INVALID_UTF8)
    records = Records(timestamps, keys, values, _header_arrays(rows, pipeline, reasons))
    names, columns = _headers(rows, pipeline, path, lines - path_line)
    too_large = _sizes(records, names, columns) > pipeline.topic.max_message_bytes
    _reject(reasons, too_large, Reason.TOO_LARGE)
    unread = rows.reasons != Reason.NONE
    reasons[unread] = rows.reasons[unread]
    if pipeline.input.recoded:
        # A truncated row may end inside a character, which is not an error of the encoding.
        cut = np.isin(rows.reasons, [Reason.TOO_LARGE, Reason.EVENT_TOO_LONG])
        reasons[invalid_utf8(*rows.raw) & ~cut] = Reason.NOT_IN_ENCODING
    skipped = _rows_in_log(broker_fields, partitions, limits.first_offsets)
    reasons[skipped] = Reason.NONE
    good = reasons == Reason.NONE
    good[skipped] = False
    if not good.all():
        chosen = np.flatnonzero(good)
        arrays = None if records.headers is None else records.headers.take(chosen)
        records = Records(timestamps[chosen], keys.take(chosen), values.take(chosen), arrays)
        columns = [column.take(chosen) for column in columns]
        partitions = None if partitions is None else partitions[chosen]
        broker_fields = None if broker_fields is None else broker_fields.take(chosen)
    if names:
        name_spans = Spans.from_list(list(names)).take(np.tile(np.arange(len(names)), len(records)))
        firsts = np.arange(len(records) + 1, dtype=np.int64) * len(names)
        headers = Headers(firsts, name_spans, interleave(columns))
        records = Records(records.timestamps, records.keys, records.values, headers)
    bad = np.flatnonzero(reasons)
    raw = _raw_rejects(rows, bad, reasons[bad], pipeline.input.encoding)
    rejects = RejectedRows(lines[bad], reasons[bad], raw, path, path_line)
    observed = _observed(rows, pipeline, reasons, timestamps, local, path, is_first=first == 0)
    return ExtractedChunk(
        records,
        partitions,
        rows.line_count,
        rejects,
        rows.absent(pipeline.fields()),
        broker_fields,
        len(skipped),
        observe(observed, pipeline),
        rows.comment_lines,
    )


def _observed(
    rows: Rows,
    pipeline: Pipeline,
    reasons: Codes,
    timestamps: Int64s,
    local: Flags,
    path: str,
    *,
    is_first: bool,
) -> ObservedChunk:
    """Create the input of `observe` for a chunk."""
    settings = pipeline.timestamp
    unparseable, not_utf8 = reasons == Reason.NOT_PARSEABLE, reasons == Reason.INVALID_UTF8
    good, wrong = reasons == Reason.NONE, np.flatnonzero(np.isin(reasons, UNREAD_TIMES))
    unread = time_texts(rows, settings).take(wrong) if len(wrong) and settings.names else None
    again = partial(read_row_times, rows, settings)
    return ObservedChunk(
        rows, path, is_first, unparseable, not_utf8, good, unread, timestamps, local & good, again
    )


def _reject(reasons: Codes, where: npt.NDArray[np.bool_], reason: Reason) -> None:
    """Set the reason of the rows in `where`, unless a row has a reason with a smaller code."""
    reasons[where & ((reasons == Reason.NONE) | (reasons > reason))] = reason


def _timestamps(
    rows: Rows, pipeline: Pipeline, allowed: tuple[int, int], reasons: Codes
) -> tuple[Int64s, Flags]:
    """Return (timestamps in ms, which times had no zone in their text).

    Rows whose time cannot be used are rejected in `reasons`. Without a time field, all timestamps
    are -1.
    """
    settings = pipeline.timestamp
    if not settings.names:
        return np.full(len(reasons), -1, np.int64), np.zeros(len(reasons), np.bool_)
    from_broker = pipeline.topic.offset_field is not None  # a broker has accepted the times
    form = settings.time_format._replace(any_year=from_broker)
    ms, codes, local = read_row_times(rows, settings, form)
    if allowed != ALL_TIMES and not from_broker:
        _reject(reasons, (codes == READ) & (ms < allowed[0]), Reason.TIMESTAMP_TOO_OLD)
        _reject(reasons, (codes == READ) & (ms > allowed[1]), Reason.TIMESTAMP_TOO_NEW)
    if (codes == READ).all():
        return ms, local
    unreadable = codes == UNREADABLE
    if unreadable.any():
        missing = time_texts(rows, settings).lengths < 0
        _reject(reasons, unreadable & missing, Reason.TIMESTAMP_MISSING)
    _reject(reasons, unreadable, Reason.TIMESTAMP_UNREADABLE)
    outside = codes == OUT_OF_RANGE
    _reject(reasons, outside & (ms < 0), Reason.TIMESTAMP_BEFORE_1970)
    _reject(reasons, outside & (ms >= 0), Reason.TIMESTAMP_OUT_OF_RANGE)
    _reject(reasons, codes == AMBIGUOUS, Reason.TIMESTAMP_AMBIGUOUS)
    _reject(reasons, codes == NONEXISTENT, Reason.TIMESTAMP_NONEXISTENT)
    return ms, local


def _keys(rows: Rows, pipeline: Pipeline, reasons: Codes) -> Spans:
    if not pipeline.key.fields:
        return Spans.nulls(len(reasons))
    fields = [reduce(choose, map(rows.field, names)) for names in pipeline.key.choices]
    keys = join_fields(fields, pipeline.key.separator.encode())
    if pipeline.key.required:
        _reject(reasons, keys.lengths < 0, Reason.KEY_MISSING)
    return keys


def _partitions(rows: Rows, pipeline: Pipeline, reasons: Codes) -> Int32s | None:
    name = pipeline.topic.partition_field
    if name is None:
        return None
    numbers = unsigned_integers(*rows.field(name), pipeline.topic.partitions)
    partitions = numbers.astype(np.int32)
    _reject(reasons, partitions < 0, Reason.PARTITION_OUT_OF_RANGE)
    return partitions


def _broker_fields(rows: Rows, pipeline: Pipeline, reasons: Codes) -> BrokerFields | None:
    """Return the offsets that the records keep, or None without `topic.offset_field`.

    An unreadable offset is -1, and its row is rejected.
    """
    name, kind = pipeline.topic.offset_field, pipeline.timestamp.type_field
    if name is None:
        return None
    texts = rows.field(name)
    offsets = unsigned_integers(*where_null(texts, texts.lengths > _OFFSET_DIGITS), _MOST_OFFSETS)
    _reject(reasons, offsets < 0, Reason.OFFSET_UNREADABLE)
    if kind is None:
        by_topic = pipeline.topic.message_timestamp_type == "LogAppendTime"
        return BrokerFields(offsets, np.full(len(offsets), by_topic))
    kinds = rows.field(kind)
    event, append = (is_one_of(kinds, texts) for texts in (_CREATE_TIME, _LOG_APPEND_TIME))
    _reject(reasons, ~(event | append), Reason.TIMESTAMP_TYPE_UNREADABLE)
    return BrokerFields(offsets, append)


def _rows_in_log(
    fields: BrokerFields | None, partitions: Int32s | None, first_offsets: tuple[int, ...] | None
) -> Int64s:
    """Return the positions of rows whose offset is already in the log."""
    if fields is None or partitions is None or first_offsets is None:
        return np.empty(0, np.int64)
    ends = np.array(first_offsets, np.int64)[partitions]
    return np.flatnonzero((fields.offsets >= 0) & (partitions >= 0) & (fields.offsets < ends))


def _values(rows: Rows, pipeline: Pipeline) -> Spans:
    match pipeline.value_source:
        case "line":
            return rows.raw
        case "field":
            return rows.field(str(pipeline.value.field))
        case _:
            return rows.objects(pipeline.value.columns)


def _header_arrays(rows: Rows, pipeline: Pipeline, reasons: Codes) -> Headers | None:
    """Return the record headers in `headers.array_field`, or None if it is not set."""
    name = pipeline.headers.array_field
    if name is None:
        return None
    headers, unreadable = rows.headers(name)
    _reject(reasons, unreadable, Reason.HEADERS_UNREADABLE)
    return headers


def _headers(
    rows: Rows, pipeline: Pipeline, path: str, lines: Int64s
) -> tuple[list[bytes], list[Spans]]:
    """Return the names of the headers that each record gets, and a column of values for each."""
    names = [name.encode() for name in pipeline.headers.fields]
    columns = [rows.field(name) for name in pipeline.headers.fields]
    if pipeline.headers.source:
        names += [SOURCE_FILE, SOURCE_LINE]
        columns += [constant(path.encode(), len(lines)), decimal_text(lines + 1)]
    return names, columns


def _sizes(records: Records, names: list[bytes], columns: list[Spans]) -> Int64s:
    """Return, for each record, an upper bound for the bytes of a batch with only this record.

    The batch is not compressed.
    """
    spans = [records.keys, records.values, *columns]
    sizes = np.full(len(records), _RECORD_BYTES + _LENGTH_BYTES * len(spans), np.int64)
    for span in spans:
        sizes += np.maximum(span.lengths, 0)
    if records.headers is not None:
        firsts, *parts = records.headers
        items = sum(_LENGTH_BYTES + np.maximum(part.lengths, 0) for part in parts)
        sizes += np.diff(np.append(0, np.cumsum(items))[firsts])
    return sizes + sum(_LENGTH_BYTES + len(name) for name in names)


def _raw_rejects(rows: Rows, bad: Int64s, reasons: Codes, encoding: str) -> Spans:
    """Return the first 64 KiB of each row at the positions `bad`, in the file's own encoding."""
    raw = rows.take_raw(bad) if len(bad) else Spans.nulls(0)
    if len(undecoded := np.flatnonzero(reasons == Reason.NOT_IN_ENCODING)):
        raw = with_bytes(raw, undecoded, encoding)
    return Spans(raw.data, raw.starts, np.minimum(raw.lengths, REJECTED_BYTES))
