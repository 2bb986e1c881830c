"""Data files of the catalog: Parquet, written and read without delta-rs.

A file's name holds the CRC-32C of its bytes, which every read checks. Parquet's own page checksums
leave out the schema and the page headers, where one changed bit can make a column vanish. Files are
read whole: pyarrow's dataset threads over delta-rs's file system can abort the process at exit.
"""

import json
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

import crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from seglake.catalog.delta.actions import Bounds, WrittenFile
from seglake.catalog.rows import FILE_SCHEMAS, LEFT_OUT, Kind, check_required, upgraded
from seglake.errors import CorruptData
from seglake.limits import REQUESTS
from seglake.store import Store

_CHECKSUM = re.compile(r".*-([0-9a-f]{8})\.parquet")

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@dataclass(frozen=True, order=True, slots=True)
class DataFile:
    """A data file of the catalog table; `path` is relative to the table's folder.

    `bounds` has the smallest and largest value of the integer columns with statistics. `folder` is
    "", or a folder outside the table that `path` is relative to: that of a tagged version.
    """

    path: str
    kind: Kind
    topic: str
    size_bytes: int
    rows: int
    bounds: Bounds = field(default_factory=dict, compare=False)
    folder: str = field(default="", compare=False)

    def may_hold(self, columns: Mapping[str, npt.NDArray[np.int64]]) -> bool:
        """Whether the file can have any of some rows; `columns` has their values, by column."""
        bounded = [(columns[name], *self.bounds[name]) for name in columns.keys() & self.bounds]
        fits = [(low <= values) & (values <= high) for values, low, high in bounded]
        return not fits or bool(np.logical_and.reduce(fits).any())

    @property
    def partition(self) -> dict[str, str]:
        """The values of the partition columns."""
        return {"kind": self.kind, "topic": self.topic}


def write_file(store: Store, folder: str, kind: Kind, topic: str, table: pa.Table) -> WrittenFile:
    """Write rows of one kind and topic as a data file below `folder`."""
    null = [n for n in LEFT_OUT.intersection(table.column_names) if not _has_value(table[n])]
    table = table.drop_columns(null)
    partition = {"kind": kind, "topic": topic}
    return write_parquet(store, folder, str(uuid.uuid4()), partition, table)


def _has_value(column: Any) -> bool:
    return bool(column.null_count < len(column))


def write_parquet(
    store: Store, folder: str, name: str, partition: dict[str, str], table: pa.Table
) -> WrittenFile:
    """Write a Parquet file below `folder`: <partition>/<name>-<CRC-32C>.parquet."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)  # snappy: one row is read three times as fast as with zstd
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
        return check_required(file.kind, read_rows(store, key, file.kind), key)

    return read_at_once(store, read, files)


def read_rows(store: Store, key: str, kind: Kind) -> pa.Table:
    """The rows of one file as those of today; unchecked. Raises as `read_parquet`."""
    return upgraded(kind, read_parquet(store, key, FILE_SCHEMAS[kind]))


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


def _conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    present = set(table.column_names)
    columns = [
        table.column(field.name) if field.name in present else pa.nulls(len(table), field.type)
        for field in schema
    ]
    return pa.table(columns, names=schema.names).cast(schema)


def _stats(table: pa.Table) -> str:
    """Delta's statistics of the integer columns. Delta wants long strings shortened: left out."""
    columns = {
        name: column
        for name, column in zip(table.column_names, table.columns, strict=True)
        if pa.types.is_integer(column.type)
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
