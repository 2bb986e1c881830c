"""Define the rows of the catalog table, with one frozen class per kind, and their Arrow schemas.

All kinds share one table, which is partitioned by `kind` and `topic`. Its schema is the union of
their columns, all nullable. Times are BIGINT milliseconds since the epoch. A data file has only the
columns of its kind, as Delta allows. The two partition columns are in its path.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from operator import attrgetter
from types import NoneType
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar, get_args, get_type_hints

import pyarrow as pa

from seglake.errors import CorruptData
from seglake.format.index import RECORD_KEYS, IndexPolicy, Subjects, subjects_from_json, subjects_of
from seglake.format.value_format import ValueFormat, value_format_of
from seglake.layout import ALL_SUFFIXES, LINK, WHOLE_LAKE, SegmentFile, Suffix, segment_key
from seglake.times.intervals import Interval

Kind = Literal["segment", "run", "source", "topic", "partition", "maintenance", "tag", "table"]
RunState = Literal["committed", "undone", "replaced"]
TagState = Literal["tagged", "deleted"]
TableState = Literal["published", "forgotten"]

_SAMPLE = 10  # items of a list that a report in a row keeps


class SegmentId(NamedTuple):
    """The identity of a segment row. It is unique in the history of the lake.

    The attempt `attempt_id` wrote the log, and `index_attempt_id` wrote the index files.
    """

    topic: str
    partition: int
    base_offset: int
    attempt_id: str
    index_attempt_id: str

    def key(self, suffix: Suffix) -> str:
        """Return the object key of one of the segment's files."""
        owner = self.attempt_id if suffix == "log" else self.index_attempt_id
        file = SegmentFile(self.topic, self.partition, owner, self.base_offset, suffix)
        return segment_key(file)


class WithSegmentId:
    """Base of the classes that have the fields of a `SegmentId`."""

    __slots__ = ()

    @property
    def id(self) -> SegmentId:
        """Return the identity of the segment's row."""
        return SegmentId(*attrgetter(*SegmentId._fields)(self))

    def key(self: Any, suffix: Suffix) -> str:
        """Return the object key of one of the segment's files.

        For a log outside the lake, this is the key of its link.
        """
        if suffix != "log" or not self.external:
            return SegmentId.key(self, suffix)
        link = SegmentFile(self.topic, self.partition, self.attempt_id, self.base_offset, LINK)
        return segment_key(link)


@dataclass(frozen=True, kw_only=True, slots=True)
class SegmentRow(WithSegmentId):
    """A live segment. It covers base_offset to end_offset (exclusive), and may have gaps.

    `min_timestamp`, `max_timestamp` and `created_at_ms` are milliseconds since the epoch. Columns
    with `_bytes` are file sizes, and columns with `_crc32c` are checksums of whole files.
    `max_lateness_ms` is the largest time by which a record is older than an earlier record.
    `index_interval_kind` is always bytes. `index_attempt_id` differs from `attempt_id` if the index
    files were rebuilt. `external` is the URI of a log that is stored outside the lake.
    `keyindex_bytes` and its checksum are None for a segment without a key index. `keyindex_of` has
    the subjects of the key index as JSON, or None if it covers only record keys.
    """

    KIND: ClassVar[Kind] = "segment"
    topic: str
    partition: int
    base_offset: int
    end_offset: int
    record_count: int
    min_timestamp: int
    max_timestamp: int
    offset_of_max_timestamp: int
    max_lateness_ms: int
    timestamp_type: str
    codec: str
    log_bytes: int
    index_bytes: int
    timeindex_bytes: int
    zonemap_bytes: int
    log_crc32c: int
    index_crc32c: int
    timeindex_crc32c: int
    zonemap_crc32c: int
    index_interval_kind: str = "bytes"
    index_interval: int
    attempt_id: str
    index_attempt_id: str = ""  # by default, `attempt_id`
    created_at_ms: int
    external: str | None = None
    keyindex_bytes: int | None = None
    keyindex_crc32c: int | None = None
    keyindex_of: str | None = None

    def __post_init__(self) -> None:
        """Set `index_attempt_id` to `attempt_id` by default."""
        if not self.index_attempt_id:
            object.__setattr__(self, "index_attempt_id", self.attempt_id)

    @property
    def index_policy(self) -> IndexPolicy:
        """Return the policy by which the segment was indexed."""
        subjects = () if self.keyindex_bytes is None else subjects_in(self.keyindex_of)
        return IndexPolicy(self.index_interval, subjects)

    @property
    def suffixes(self) -> tuple[Suffix, ...]:
        """Return the suffixes of the segment's files. The log is the first."""
        return tuple(each for each in ALL_SUFFIXES if getattr(self, f"{each}_bytes") is not None)

    def size(self, suffix: Suffix) -> int:
        """Return the size of one of the segment's files in bytes, or 0 if there is no such file."""
        return getattr(self, f"{suffix}_bytes") or 0

    @property
    def index_files_bytes(self) -> int:
        """Return the total size of the segment's index files in bytes."""
        return sum(map(self.size, ALL_SUFFIXES[1:]))


def subjects_in(keyindex_of: str | None) -> Subjects:
    """Return the subjects of a key index from the column `keyindex_of`. Raises CorruptData."""
    if not keyindex_of:
        return (RECORD_KEYS,)
    try:
        return subjects_from_json(keyindex_of)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptData(f"keyindex_of in a segment row is {keyindex_of[:80]!r}") from error


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRow:
    """A run that was committed. Its key is (topic, pipeline, run_id).

    Rows are never removed. The row of a key with the highest `sequence` is the current one. `state`
    is "committed" until the run is undone or replaced. `offset_ranges` are the offsets of the run's
    records, as JSON: {partition: [[start, end], …]}, ends exclusive. The interval, start inclusive
    and end exclusive, is the range of time that the run declares to cover. `interval_records` is
    the number of the run's records in the interval. It is None if the run declares no interval or
    read no input, or if its topic has LogAppendTime. `report` is JSON.
    """

    KIND: ClassVar[Kind] = "run"
    topic: str
    pipeline: str
    run_id: str
    attempt_id: str
    fingerprint: str
    interval_start_ms: int | None = None
    interval_end_ms: int | None = None
    interval_records: int | None = None
    records: int = 0
    quarantined: int = 0
    input_files: int = 0
    input_rows: int = 0
    input_bytes: int = 0
    output_bytes: int = 0
    started_at_ms: int
    finished_at_ms: int
    report: str = "{}"
    sequence: int = 0
    state: RunState = "committed"
    offset_ranges: str = "{}"

    @property
    def covered(self) -> Interval | None:
        """Return the interval that the run covers, or None if it declares no interval.

        Also return None if the run has records, but no record in the interval.
        """
        if self.interval_start_ms is None or self.interval_end_ms is None:
            return None
        if self.records and self.interval_records == 0:
            return None
        return self.interval_start_ms, self.interval_end_ms


def report_as_json(report: Mapping[str, Any], lists: Sequence[str]) -> str:
    """Return a report as JSON for a row, with at most ten items of each list in `lists`.

    Every command that loads the rows of a topic reads the report, so its size must not grow with
    the input or with damage. If items of the list `files` are omitted, `files_more` is their
    number.
    """
    shortened = {**report, **{name: report[name][:_SAMPLE] for name in lists}}
    more = {f"{name}_more": len(report[name]) - _SAMPLE for name in lists}
    return json.dumps(
        shortened | {name: n for name, n in more.items() if n > 0}, ensure_ascii=False
    )


def committed_runs(rows: Iterable[RunRow]) -> list[RunRow]:
    """Return the current rows of the runs that were not undone or replaced."""
    newest = {(row.pipeline, row.run_id): row for row in sorted(rows, key=lambda r: r.sequence)}
    return [row for row in newest.values() if row.state == "committed"]


@dataclass(frozen=True, kw_only=True, slots=True)
class MaintenanceRow:
    """A commit of maintenance, with the command's name (`operation`) and its `report` as JSON."""

    KIND: ClassVar[Kind] = "maintenance"
    topic: str
    operation: str
    attempt_id: str
    started_at_ms: int
    finished_at_ms: int
    report: str = "{}"


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceRow:
    """An input file that was ingested into a topic. `rows` is the number of its input rows."""

    KIND: ClassVar[Kind] = "source"
    topic: str
    path: str
    size_bytes: int
    modified_ms: int
    etag: str | None = None
    rows: int
    attempt_id: str


@lru_cache(256)  # each search needs the value format
def _value_format_of(settings: str) -> ValueFormat:
    return value_format_of(json.loads(settings))


@dataclass(frozen=True, kw_only=True, slots=True)
class TopicRow:
    """The settings of a topic. The row with the highest `sequence` is the current one.

    `partitions` is the number of log partitions, which may only grow. `settings` is JSON with
    Kafka's names.
    """

    KIND: ClassVar[Kind] = "topic"
    topic: str
    sequence: int
    partitions: int
    partitioner: str
    timestamp_type: str
    settings: str = "{}"

    @property
    def index_subjects(self) -> Subjects:
        """Return the subjects that new key indexes cover, from the `index.*` settings."""
        return subjects_of(json.loads(self.settings))

    @property
    def value_format(self) -> ValueFormat:
        """Return the value format of the topic, from the `value.*` settings."""
        return _value_format_of(self.settings)


@dataclass(frozen=True, kw_only=True, slots=True)
class PartitionRow:
    """The bounds of a log partition. The row with the highest `sequence` is the current one.

    Every operation that removes records writes such a row. The offsets of all later records are at
    least `next_offset`. `last_append_time_ms` is the largest append time of all records, including
    deleted records, or None for CreateTime. `cleaned_offset` is the offset below which compaction
    has cleaned the log, or None if compaction never ran. `leader_epoch` is the largest leader epoch
    in imported record batches, or None without an import.
    """

    KIND: ClassVar[Kind] = "partition"
    topic: str
    partition: int
    sequence: int
    log_start_offset: int
    next_offset: int
    last_append_time_ms: int | None = None
    cleaned_offset: int | None = None
    leader_epoch: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class TagRow:
    """A tag. The row of a name with the highest `sequence` is the current one.

    The attempt `attempt_id` wrote the object with the rows of the version. The object has
    `object_bytes` bytes and the checksum `object_crc32c`. From the time `until_ms` on, a vacuum
    deletes the tag. If `until_ms` is None, no vacuum deletes it.
    """

    KIND: ClassVar[Kind] = "tag"
    topic: str = WHOLE_LAKE
    name: str
    sequence: int
    state: TagState = "tagged"
    version: int
    attempt_id: str
    object_bytes: int
    object_crc32c: int
    created_at_ms: int
    until_ms: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class TableRow:
    """A published table of a topic. The row of a path with the highest `sequence` is current.

    `path` is relative to the lake's root, or is a URI for a table outside the lake. `settings` is
    JSON with the columns of the table.
    """

    KIND: ClassVar[Kind] = "table"
    topic: str
    path: str
    sequence: int
    state: TableState = "published"
    settings: str


Row = SegmentRow | RunRow | SourceRow | TopicRow | PartitionRow | MaintenanceRow | TagRow | TableRow
AnyRow = TypeVar("AnyRow", bound=Row)

PARTITION_COLUMNS = ["kind", "topic"]
_INT32 = frozenset({"partition", "partitions"})


def _field(name: str, hint: object) -> pa.Field[Any]:
    if hint in (str, RunState, TagState, TableState) or str in get_args(hint):
        return pa.field(name, pa.string())
    return pa.field(name, pa.int32() if name in _INT32 else pa.int64())


def _columns(row_type: type[Row]) -> dict[str, pa.Field[Any]]:
    hints = get_type_hints(row_type)
    return {field.name: _field(field.name, hints[field.name]) for field in fields(row_type)}


def _required(row_type: type[Row]) -> list[str]:
    hints = get_type_hints(row_type)
    named = [field.name for field in fields(row_type) if field.name != "topic"]  # it is in the path
    return [name for name in named if NoneType not in get_args(hints[name])]


_REQUIRED = {row_type.KIND: _required(row_type) for row_type in get_args(Row)}
_KIND_COLUMNS = {row_type.KIND: _columns(row_type) for row_type in get_args(Row)}
FILE_SCHEMAS: dict[Kind, pa.Schema] = {
    kind: pa.schema([field for name, field in columns.items() if name != "topic"])
    for kind, columns in _KIND_COLUMNS.items()
}
_all_columns = {"kind": pa.field("kind", pa.string())}
for _kind_columns in _KIND_COLUMNS.values():
    _all_columns |= _kind_columns
TABLE_SCHEMA = pa.schema(list(_all_columns.values()))


def file_table(rows: Sequence[Row]) -> pa.Table:
    """Return the content of a data file with `rows`, which must all have one kind and one topic.

    The columns `kind` and `topic` are omitted, because they are in the path of the file.
    """
    schema = FILE_SCHEMAS[rows[0].KIND]
    columns = [
        pa.array([getattr(row, name) for row in rows], kind)
        for name, kind in zip(schema.names, schema.types, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def check_required(kind: Kind, table: pa.Table, file: str) -> pa.Table:
    """Return `table`, the content of a data file. Raises CorruptData if a required value is null.

    The error names `file`.
    """
    for name in _REQUIRED[kind]:
        if table.column(name).null_count:
            raise CorruptData(f"{name} is null in a {kind} row", file=file)
    return table


def rows_of(row_type: type[AnyRow], topic: str, table: pa.Table) -> list[AnyRow]:
    """Return the rows in `table`, which is the content of data files of one kind and one topic."""
    schema = FILE_SCHEMAS[row_type.KIND]
    columns = [table.column(name).to_pylist() for name in schema.names]
    return [
        row_type(topic=topic, **dict(zip(schema.names, values, strict=True)))
        for values in zip(*columns, strict=True)
    ]
