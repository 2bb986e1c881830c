"""Data files of the catalog: Parquet, written and read without delta-rs.

A file's name holds the CRC-32C of its bytes, which every read checks. Parquet's own page checksums
leave out the schema and the page headers, where one changed bit can make a column vanish. Files are
read whole: pyarrow's dataset threads over delta-rs's file system can abort the process at exit.
"""

from __future__ import annotations

import bisect
import json
import re
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from seglake.catalog.delta.actions import Bounds, Names, WrittenFile
from seglake.catalog.schema import FILE_SCHEMAS, Kind, check_required
from seglake.errors import CorruptData
from seglake.limits import REQUESTS
from seglake.store import Store

if TYPE_CHECKING:
    from typing_extensions import Buffer

_CHECKSUM = re.compile(r".*-([0-9a-f]{8})\.parquet")
_PAST = "past-"  # so begins the name of a file of past segments
_NAMES: Mapping[Kind, str] = {"source": "path", "run": "run_id"}  # rows are found by these columns
_LONG = 1024  # characters of a name that no statistics have
_FEW = 256  # rows of a file that has no filter of names
_SMALL = 65_536  # bytes of a file that is read whole at once

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@dataclass(frozen=True, order=True, slots=True)
class DataFile:
    """A data file of the catalog table; `path` is relative to the table's folder.

    `bounds` has the smallest and largest value of the integer columns with statistics, `names` the
    first and last one of the columns of text. `folder` is "", or a folder outside the table that
    `path` is relative to: that of a tagged version.
    """

    path: str
    kind: Kind
    topic: str
    size_bytes: int
    rows: int
    bounds: Bounds = field(default_factory=dict, compare=False)
    names: Names = field(default_factory=dict, compare=False)
    folder: str = field(default="", compare=False)

    def may_hold(self, columns: Mapping[str, npt.NDArray[np.int64]]) -> bool:
        """Whether the file can have any of some rows; `columns` has their values, by column."""
        bounded = [(columns[name], *self.bounds[name]) for name in columns.keys() & self.bounds]
        fits = [(low <= values) & (values <= high) for values, low, high in bounded]
        return not fits or bool(np.logical_and.reduce(fits).any())

    def may_name(self, column: str, values: Sequence[str]) -> bool:
        """Whether a column of the file can have one of some values, given in ascending order.

        Only statistics of files that Seglake wrote are trusted: others may shorten long text.
        """
        if column not in self.names or not _CHECKSUM.fullmatch(self.path):
            return bool(values)
        first, last = self.names[column]
        at = bisect.bisect_left(values, first)
        return at < len(values) and values[at] <= last

    @property
    def is_past(self) -> bool:
        """Whether no segment in the file is the last of its log partition."""
        name = self.path.rpartition("/")[2]
        return self.kind == "segment" and name.startswith(_PAST) and bool(_CHECKSUM.fullmatch(name))

    @property
    def partition(self) -> dict[str, str]:
        """The values of the partition columns."""
        return {"kind": self.kind, "topic": self.topic}


def write_file(
    store: Store, folder: str, kind: Kind, topic: str, table: pa.Table, past: bool = False
) -> WrittenFile:
    """Write rows of one kind and topic as a data file below `folder`.

    `past` is true of segments of which none is the last of its log partition.
    """
    partition = {"kind": kind, "topic": topic}
    name = f"{_PAST if past else ''}{uuid.uuid4()}"
    return write_parquet(store, folder, name, partition, table, _names(kind, table))


def _names(kind: Kind, table: pa.Table) -> NameFilter | None:
    """The names by which rows of a kind are found, if there are enough rows."""
    if kind not in _NAMES or len(table) < _FEW:
        return None
    names: list[Any] = table[_NAMES[kind]].to_pylist()
    return NameFilter.of(names)


def write_parquet(
    store: Store,
    folder: str,
    name: str,
    partition: dict[str, str],
    table: pa.Table,
    names: NameFilter | None = None,
) -> WrittenFile:
    """Write a Parquet file below `folder`: <partition>/<name>-<CRC-32C>.parquet.

    `names` stand in front of its rows. A file of few rows is mostly footer: it has neither Arrow's
    schema, unless the table has metadata, nor Parquet's statistics, which nobody asks who has those
    of the Delta log.
    """
    sink, many = pa.BufferOutputStream(), len(table) >= _FEW
    described = table.schema.metadata is not None
    how: dict[str, Any] = {"write_statistics": many, "store_schema": described}
    if names is None:
        pq.write_table(table, sink, **how)  # snappy: one row is read three times as fast as zstd
    else:
        with pq.ParquetWriter(sink, table.schema, **how) as writer:  # it has written up to PLACE
            sink.write(names.dump())
            writer.write_table(table)
    data = sink.getvalue()
    place = "".join(f"{column}={value}/" for column, value in partition.items())
    path = f"{place}{name}-{crc32c.crc32c(data):08x}.parquet"
    store.put(f"{folder}/{path}", data)
    return WrittenFile(path, data.size, partition, _stats(table))


def read_files(store: Store, folder: str, files: Sequence[DataFile]) -> list[pa.Table]:
    """The rows of every file, with all columns of its kind.

    Raises MissingObject if a file does not exist, and CorruptData if it is damaged or lacks values.
    """

    def read(file: DataFile) -> pa.Table:
        key = f"{file.folder or folder}/{file.path}"
        return check_required(file.kind, read_parquet(store, key, FILE_SCHEMAS[file.kind]), key)

    return read_at_once(store, read, files)


def may_have(store: Store, folder: str, file: DataFile, column: str, asked: Hashes) -> bool:
    """Whether a file can have names with these hashes; asks its filter if that is less to read.

    Raises MissingObject and StoreError.
    """
    if column not in file.names or file.rows < _FEW or file.size_bytes <= _SMALL:
        return True
    end = min(PLACE + NameFilter.size(file.rows), file.size_bytes)
    head = store.read(f"{file.folder or folder}/{file.path}", PLACE, end)
    found = NameFilter.load(head, file.rows)
    return found is None or found.may_have(asked)


def read_at_once(
    store: Store, read: Callable[[_Item], _Result], items: Sequence[_Item]
) -> list[_Result]:
    """`read(item)` for every item, in order; in parallel where a read waits for a network."""
    if len(items) < 2 or not store.remote:
        return list(map(read, items))
    with ThreadPoolExecutor(min(REQUESTS, len(items))) as readers:
        return list(readers.map(read, items))


def read_parquet(store: Store, key: str, schema: pa.Schema) -> pa.Table:
    """The whole file, with the columns of `schema`, however another writer ordered or typed them.

    A column that the file lacks is null. A name without a checksum is another writer's, whose file
    is read unchecked. Raises MissingObject, StoreError and CorruptData.
    """
    content = store.read_all(key)
    named = _CHECKSUM.fullmatch(key)
    if named and crc32c.crc32c(content) != int(named[1], 16):
        raise CorruptData("the checksum of the file is not the one in its name", file=key)
    try:
        table = pq.ParquetFile(pa.BufferReader(pa.py_buffer(content))).read(use_threads=False)
        return table if table.schema.equals(schema) else _conform(table, schema)
    except (pa.ArrowException, OSError, ValueError) as error:  # of Parquet, not of the store
        raise CorruptData(f"this is not the Parquet expected: {error}", file=key) from error


def read_metadata(store: Store, key: str, size: int) -> Mapping[bytes, bytes]:
    """The metadata that a Parquet file of this size has beside its schema; reads only its end.

    Unchecked. Raises MissingObject, StoreError, and CorruptData if the end is not Parquet's.
    """
    end = pa.py_buffer(store.read(key, max(size - _SMALL, 0), size))
    length = int.from_bytes(end[-8:-4], "little") + 8
    if length > end.size:
        end = pa.py_buffer(store.read(key, max(size - length, 0), size))
    try:
        return pq.read_metadata(pa.BufferReader(end)).metadata or {}
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptData(f"this is not the end of Parquet: {error}", file=key) from error


def _conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    present = set(table.column_names)
    columns = [
        table.column(field.name) if field.name in present else pa.nulls(len(table), field.type)
        for field in schema
    ]
    return pa.table(columns, names=schema.names).cast(schema)


def _stats(table: pa.Table) -> str:
    """Delta's statistics: of the integer columns, and of the names by which rows are found.

    A column with text that others may shorten or read differently is left out (`_is_plain`).
    """
    columns = {
        name: column
        for name, column in zip(table.column_names, table.columns, strict=True)
        if pa.types.is_integer(column.type) or (name in _NAMES.values() and _is_plain(column))
    }
    filled = {name: column for name, column in columns.items() if column.null_count < len(table)}
    return json.dumps(
        {
            "numRecords": len(table),
            "minValues": {name: pc.min(column).as_py() for name, column in filled.items()},
            "maxValues": {name: pc.max(column).as_py() for name, column in filled.items()},
            "nullCount": {name: column.null_count for name, column in columns.items()},
        }
    )


def _is_plain(column: Any) -> bool:
    """Whether all text is short and of printable ASCII: delta-rs reads escapes of others wrong."""
    printable = pc.all(pc.match_substring_regex(column, r"\A[ -~]*\z")).as_py()
    longest = pc.max(pc.utf8_length(column)).as_py()
    return printable is not False and (longest is None or longest <= _LONG)


# ---------------- name filter
# Which names the rows of a data file may have: hashes at a fixed place in the file.
#
# They follow the four bytes with which Parquet begins, and no reader of Parquet looks at them.
# One read of them says that a file has none of some names, so that its rows need not be read. A
# hash is the CRC-32C of a name: another name may share it, so hashes never say that a name is
# there.
#
#     8 bytes: a mark · 4: the number of rows · 4: the CRC-32C of all the rest · 4 for each row:
#     the
#     hash of its name, in ascending order; numbers are little-endian

PLACE = 4  # in the file
_MARK = b"SEGNAMES"
_HEAD = 16

Hashes = npt.NDArray[np.uint32]


def hashes(names: Iterable[str]) -> Hashes:
    """The hash of each name, in ascending order."""
    found = np.fromiter((crc32c.crc32c(name.encode()) for name in names), np.uint32)
    return np.sort(found)


class NameFilter(NamedTuple):
    """The hashes of the names in a file, in ascending order, one for each row."""

    hashes: Hashes

    @staticmethod
    def of(names: Iterable[str]) -> NameFilter:
        """The filter of a file whose rows have these names."""
        return NameFilter(hashes(names))

    @staticmethod
    def size(rows: int) -> int:
        """The bytes of the filter of a file with so many rows."""
        return _HEAD + 4 * rows

    @staticmethod
    def load(data: Buffer, rows: int) -> NameFilter | None:
        """The filter of a file with so many rows; None if the bytes are none, or damaged."""
        view = memoryview(data).cast("B")
        found = np.frombuffer(view[_HEAD:], "<u4") if len(view) == NameFilter.size(rows) else None
        if found is None or bytes(view[:_HEAD]) != _head(found):
            return None
        return NameFilter(found)

    def dump(self) -> bytes:
        """The bytes of the filter."""
        return _head(self.hashes) + self.hashes.astype("<u4").tobytes()

    def may_have(self, asked: Hashes) -> bool:
        """Whether a row may have one of the names with these hashes."""
        places = np.searchsorted(self.hashes, asked)
        inside = places < len(self.hashes)
        return bool(np.any(self.hashes[places[inside]] == asked[inside]))


def _head(found: Hashes) -> bytes:
    count = len(found).to_bytes(4, "little")
    crc = crc32c.crc32c(found.astype("<u4").tobytes(), crc32c.crc32c(_MARK + count))
    return _MARK + count + crc.to_bytes(4, "little")
