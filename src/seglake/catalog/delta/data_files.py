"""Write and read the catalog's data files, which are Parquet files, without delta-rs.

A file's name has the CRC-32C of its bytes, which every read checks. Parquet's own page checksums
do not cover the schema and the page headers, where one changed bit can hide a column. Files are
read whole, because pyarrow's dataset threads over delta-rs's file system can abort the process at
its exit.
"""

from __future__ import annotations

import bisect
import json
import re
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

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
_PAST = "past-"  # prefix of the names of files that have only past segments
_NAMES: Mapping[Kind, str] = {"source": "path", "run": "run_id"}  # rows are found by these columns
_LONG = 1024  # characters; a column with a longer name has no statistics
_FEW = 256  # rows; a smaller file has no name filter
_SMALL = 65_536  # bytes; a file up to this size is read without its name filter

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@dataclass(frozen=True, order=True, slots=True)
class DataFile:
    """A data file of the catalog table, or of a tagged version.

    `path` is relative to `folder`, which is the folder of the tag, or "" for the table's folder.
    `bounds` has the smallest and largest value of the integer columns with statistics. `names` has
    the first and last value of the text columns with statistics.
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
        """Return whether, by its statistics, the file may contain at least one of several rows.

        `columns` has the values of these rows: column name → one value for each row.
        """
        bounded = [(columns[name], *self.bounds[name]) for name in columns.keys() & self.bounds]
        fits = [(low <= values) & (values <= high) for values, low, high in bounded]
        return not fits or bool(np.logical_and.reduce(fits).any())

    def may_name(self, column: str, values: Sequence[str]) -> bool:
        """Return whether a text column of the file may have one of the ascending `values`.

        Statistics count only for files that Seglake wrote, because other programs may shorten long
        text in statistics.
        """
        if column not in self.names or not _CHECKSUM.fullmatch(self.path):
            return bool(values)
        first, last = self.names[column]
        at = bisect.bisect_left(values, first)
        return at < len(values) and values[at] <= last

    @property
    def is_past(self) -> bool:
        """Return whether each segment in the file has a later segment in its log partition."""
        name = self.path.rpartition("/")[2]
        return self.kind == "segment" and name.startswith(_PAST) and bool(_CHECKSUM.fullmatch(name))

    @property
    def partition(self) -> dict[str, str]:
        """Return the values of the partition columns."""
        return {"kind": self.kind, "topic": self.topic}


def write_file(
    store: Store, folder: str, kind: Kind, topic: str, table: pa.Table, past: bool = False
) -> WrittenFile:
    """Write rows of one kind and topic as a data file below `folder`.

    Set `past` if the rows are segments that are not the last of their log partition.
    """
    partition = {"kind": kind, "topic": topic}
    name = f"{_PAST if past else ''}{uuid.uuid4()}"
    if kind not in _NAMES or len(table) < _FEW:
        return write_parquet(store, folder, name, partition, table)
    names: list[Any] = table[_NAMES[kind]].to_pylist()
    return write_parquet(store, folder, name, partition, table, name_filter(hashes(names)))


def write_parquet(
    store: Store,
    folder: str,
    name: str,
    partition: dict[str, str],
    table: pa.Table,
    front: bytes = b"",
) -> WrittenFile:
    """Write a Parquet file `<partition>/<name>-<CRC-32C>.parquet` below `folder`.

    `front` is written at PLACE, before the rows. A small file consists mostly of its footer. To
    keep the footer small, it has no Parquet statistics, and has Arrow's schema only if the table
    has metadata. Readers use the statistics in the Delta log.
    """
    sink, many = pa.BufferOutputStream(), len(table) >= _FEW
    how: dict[str, Any] = {"write_statistics": many, "store_schema": bool(table.schema.metadata)}
    if not front:
        # By default it compresses with Snappy. One row is read three times as fast as with Zstd.
        pq.write_table(table, sink, **how)
    else:
        with pq.ParquetWriter(sink, table.schema, **how) as writer:
            # The writer has written the first PLACE bytes.
            sink.write(front)
            writer.write_table(table)
    data = sink.getvalue()
    place = "".join(f"{column}={value}/" for column, value in partition.items())
    path = f"{place}{name}-{crc32c.crc32c(data):08x}.parquet"
    store.put(f"{folder}/{path}", data)
    return WrittenFile(path, data.size, partition, _stats(table))


def read_files(store: Store, folder: str, files: Sequence[DataFile]) -> list[pa.Table]:
    """Return the rows of each file, with all columns of its kind.

    Raises MissingObject if a file does not exist, and CorruptData if it is damaged or has a null
    where a value is required.
    """

    def read(file: DataFile) -> pa.Table:
        key = f"{file.folder or folder}/{file.path}"
        return check_required(file.kind, read_parquet(store, key, FILE_SCHEMAS[file.kind]), key)

    return read_at_once(store, read, files)


def may_have(store: Store, folder: str, file: DataFile, column: str, asked: Hashes) -> bool:
    """Return whether a file may have a name in `column` with one of the hashes `asked`.

    Reads the file's name filter. A small file is not read, and the result is True. Raises
    MissingObject and StoreError.
    """
    if column not in file.names or file.rows < _FEW or file.size_bytes <= _SMALL:
        return True
    end = min(PLACE + filter_size(file.rows), file.size_bytes)
    found = load_filter(store.read(f"{file.folder or folder}/{file.path}", PLACE, end), file.rows)
    return found is None or has_any(found, asked)


def read_at_once(
    store: Store, read: Callable[[_Item], _Result], items: Sequence[_Item]
) -> list[_Result]:
    """Call `read` for every item, and return the results in order.

    Calls run concurrently if the store is remote.
    """
    if len(items) < 2 or not store.remote:
        return list(map(read, items))
    with ThreadPoolExecutor(min(REQUESTS, len(items))) as readers:
        return list(readers.map(read, items))


def read_parquet(store: Store, key: str, schema: pa.Schema) -> pa.Table:
    """Read a whole Parquet file, with the columns, order and types of `schema`.

    A missing column is filled with nulls. A name without a checksum comes from another program, so
    its file is read unchecked. Raises MissingObject, StoreError and CorruptData.
    """
    content = store.read_all(key)
    named = _CHECKSUM.fullmatch(key)
    if named and crc32c.crc32c(content) != int(named[1], 16):
        raise CorruptData("the file's checksum differs from the checksum in its name", file=key)
    try:
        table = pq.ParquetFile(pa.BufferReader(pa.py_buffer(content))).read(use_threads=False)
        return table if table.schema.equals(schema) else _conform(table, schema)
    # The store is not used here, so an OSError is about the content.
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptData(f"this is not the expected Parquet file: {error}", file=key) from error


def read_metadata(store: Store, key: str, size: int) -> Mapping[bytes, bytes]:
    """Return the key-value metadata of a Parquet file of `size` bytes. Reads only its end.

    The bytes are read without a checksum. Raises MissingObject, StoreError, and CorruptData if the
    end is not a Parquet footer.
    """
    end = pa.py_buffer(store.read(key, max(size - _SMALL, 0), size))
    length = int.from_bytes(end[-8:-4], "little") + 8
    if length > end.size:
        end = pa.py_buffer(store.read(key, max(size - length, 0), size))
    try:
        return pq.read_metadata(pa.BufferReader(end)).metadata or {}
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptData(f"the Parquet footer is damaged: {error}", file=key) from error


def _conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    present = set(table.column_names)
    columns = [
        table.column(field.name) if field.name in present else pa.nulls(len(table), field.type)
        for field in schema
    ]
    return pa.table(columns, names=schema.names).cast(schema)


def _stats(table: pa.Table) -> str:
    """Return Delta's statistics (JSON) of the integer columns and of columns of plain names."""
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
    """Return whether all text is short printable ASCII, because delta-rs misreads other text."""
    printable = pc.all(pc.match_substring_regex(column, r"\A[ -~]*\z")).as_py()
    longest = pc.max(pc.utf8_length(column)).as_py()
    return printable is not False and (longest is None or longest <= _LONG)


# ---------------- name filter
# A name filter is at a fixed position in a data file: after the first four bytes, where Parquet
# readers ignore it. One small read of it can rule a file out, so that its rows need not be read. A
# hash is the CRC-32C of a name. Two names may have one hash, so a filter can rule names out, but
# not prove that they are in the file. Numbers are little-endian:
#
#     8 bytes: a mark
#     4 bytes: the number of rows
#     4 bytes: the CRC-32C of everything else
#     4 bytes for each row: the hash of its name, in ascending order

PLACE = 4  # position in the file
_MARK = b"SEGNAMES"
_HEAD = 16

Hashes = npt.NDArray[np.uint32]


def hashes(names: Iterable[str]) -> Hashes:
    """Return the hash of each name, in ascending order."""
    found = np.fromiter((crc32c.crc32c(name.encode()) for name in names), np.uint32)
    return np.sort(found)


def filter_size(rows: int) -> int:
    """Return the size in bytes of the name filter of a file with `rows` rows."""
    return _HEAD + 4 * rows


def name_filter(found: Hashes) -> bytes:
    """Encode a name filter from the ascending hashes of the names in all rows."""
    return _head(found) + found.astype("<u4").tobytes()


def load_filter(data: Buffer, rows: int) -> Hashes | None:
    """Decode a name filter. Return None if `data` is not a valid filter for `rows` rows."""
    view = memoryview(data).cast("B")
    if len(view) != filter_size(rows):
        return None
    found = np.frombuffer(view[_HEAD:], "<u4")
    return found if bytes(view[:_HEAD]) == _head(found) else None


def has_any(found: Hashes, asked: Hashes) -> bool:
    """Return whether one of the hashes `asked` is among the ascending hashes `found`."""
    return bool((found.searchsorted(asked) < found.searchsorted(asked, "right")).any())


def _head(found: Hashes) -> bytes:
    count = len(found).to_bytes(4, "little")
    crc = crc32c.crc32c(found.astype("<u4").tobytes(), crc32c.crc32c(_MARK + count))
    return _MARK + count + crc.to_bytes(4, "little")
