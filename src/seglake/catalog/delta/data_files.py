"""Data files of the catalog: Parquet in, Parquet out, without a dataset or a table reader.

A file is named by the CRC-32C of its bytes, which every read checks: Parquet's own page checksums
leave out the schema and the page headers, where one changed bit can make a column vanish.

Files are read whole and decoded from memory: pyarrow's dataset threads over delta-rs's file system
can abort the process at exit.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from seglake.catalog.rows import FILE_SCHEMAS, DataFile, Kind, check_required
from seglake.catalog.version.segment_columns import ATTEMPT, DETAILS, Attempts, Segments
from seglake.catalog.version.snapshot import TIMESTAMP_TYPES
from seglake.errors import CorruptData
from seglake.format import compression
from seglake.layout import SUFFIXES
from seglake.limits import REQUESTS
from seglake.store import Store

_CHECKSUM = re.compile(r".*-([0-9a-f]{8})\.parquet")

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class Written(NamedTuple):
    """A data file that was written and is not committed yet; `stats` is Delta's JSON."""

    file: DataFile
    stats: str


def write_file(store: Store, folder: str, kind: Kind, topic: str, table: pa.Table) -> Written:
    """Write a data file below `folder` under a name of its own."""
    name = f"kind={kind}/topic={topic}/{uuid.uuid4()}"
    path, size, stats = write_parquet(store, folder, name, table)
    return Written(DataFile(path, kind, topic, size, len(table)), stats)


def write_parquet(store: Store, folder: str, name: str, table: pa.Table) -> tuple[str, int, str]:
    """Write a Parquet file whose path in `folder` is `name`, its checksum and a suffix.

    Returns the path, the size in bytes and Delta's JSON of statistics.
    """
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)  # snappy: one row is read three times as fast as with zstd
    data = sink.getvalue()
    path = f"{name}-{crc32c.crc32c(data):08x}.parquet"
    store.put(f"{folder}/{path}", data)
    return path, data.size, _stats(table)


def read_files(store: Store, folder: str, files: Sequence[DataFile]) -> list[pa.Table]:
    """The rows of every file, with all columns of its kind.

    Raises MissingObject if a file is gone, and CorruptData if it is damaged or lacks values.
    """

    def read(file: DataFile) -> pa.Table:
        key = f"{folder}/{file.path}"
        return check_required(file.kind, read_parquet(store, key, FILE_SCHEMAS[file.kind]), key)

    return read_at_once(store, read, files)


def read_at_once(
    store: Store, read: Callable[[_Item], _Result], items: Sequence[_Item]
) -> list[_Result]:
    """What `read` gives for every item, in order; many at once where reading means waiting."""
    if len(items) < 2 or "://" not in store.uri:  # a local read does not wait
        return list(map(read, items))
    with ThreadPoolExecutor(min(REQUESTS, len(items))) as readers:
        return list(readers.map(read, items))


def read_parquet(store: Store, key: str, schema: pa.Schema) -> pa.Table:
    """The whole file; columns that another writer ordered, widened or left out are put right.

    Another writer's file has no checksum in its name, and is read without.
    """
    content = store.read_all(key)
    told = _CHECKSUM.fullmatch(key)
    if told and crc32c.crc32c(content) != int(told[1], 16):
        raise CorruptData("the file is not what was written: its checksum is another", file=key)
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
    """Delta's statistics, for the integer columns: Delta would have long strings shortened."""
    columns = {
        name: column
        for name, column in zip(table.column_names, table.columns, strict=True)
        if pa.types.is_integer(column.type)
    }
    known = {name: column for name, column in columns.items() if column.null_count < len(table)}
    return json.dumps(
        {
            "numRecords": len(table),
            "minValues": {name: pc.min(column).as_py() for name, column in known.items()},
            "maxValues": {name: pc.max(column).as_py() for name, column in known.items()},
            "nullCount": {name: column.null_count for name, column in columns.items()},
        }
    )


def segments_by_partition(tables: Iterable[pa.Table]) -> dict[int, Segments]:
    """The segment rows of one topic as columns, for each log partition."""
    table = pa.concat_tables(tables)
    partitions = _numbers(table, "partition")
    order = np.lexsort((_numbers(table, "base_offset"), partitions))
    segments = _segments(table).take(order)
    numbers, firsts = np.unique(partitions[order], return_index=True)
    ends = [*firsts.tolist(), len(order)][1:]
    return {
        number: segments.take(slice(first, end))
        for number, first, end in zip(numbers.tolist(), firsts.tolist(), ends, strict=True)
    }


def _segments(table: pa.Table) -> Segments:
    base = _numbers(table, "base_offset")
    of_max = _numbers(table, "offset_of_max_timestamp")
    details = np.zeros(len(table), DETAILS)
    details["record_count"] = _numbers(table, "record_count")
    details["relative_offset_of_max"] = np.where(of_max < 0, -1, of_max - base)
    for position, suffix in enumerate(SUFFIXES):
        details["sizes"][:, position] = _numbers(table, f"{suffix}_bytes")
    details["attempts"], attempts = _attempts(table)
    details["codec"] = _codes(table, "codec", compression.NAMES)
    details["timestamp_type"] = _codes(table, "timestamp_type", TIMESTAMP_TYPES)
    ends, smallest, largest = (
        _numbers(table, name) for name in ("end_offset", "min_timestamp", "max_timestamp")
    )
    return Segments(base, ends, smallest, largest, details, attempts)


def _numbers(table: pa.Table, name: str) -> npt.NDArray[Any]:
    column = table.column(name)
    if column.null_count:
        raise CorruptData(f"{name} is null in a segment row")
    return column.to_numpy()


def _codes(table: pa.Table, name: str, names: Sequence[str]) -> npt.NDArray[Any]:
    codes = pc.index_in(table.column(name), pa.array(names))
    if codes.null_count:
        raise CorruptData(f"a {name} in a segment row is none of {', '.join(names)}")
    return codes.to_numpy()


def _attempts(table: pa.Table) -> tuple[npt.NDArray[np.int32], Attempts]:
    """For each segment the attempts of its log and of its index files, and the UUIDs they name."""
    logs = table.column("attempt_id")
    indexes = pc.coalesce(table.column("index_attempt_id"), logs)  # null in older rows
    both = pa.chunked_array([*logs.chunks, *indexes.chunks], pa.string()).combine_chunks()
    coded: Any = both.dictionary_encode()
    try:
        found = b"".join(uuid.UUID(name).bytes for name in coded.dictionary.to_pylist())
    except ValueError as error:
        raise CorruptData("an attempt id in a segment row is not a UUID") from error
    if both.null_count:
        raise CorruptData("attempt_id is null in a segment row")
    return coded.indices.to_numpy().reshape(2, -1).T, Attempts(np.frombuffer(found, ATTEMPT).copy())
