"""Answers of a lake as plain values, through the public API, and its catalog as others read it."""

import hashlib
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyarrow import parquet as pq

import seglake
from tests.stored.events import START

COLUMNS = ["partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers"]
KINDS = ("segment", "run", "source", "topic", "partition")
FOREVER = 2**62
SPELLED = 2  # records of each partition that stand in full in the answers


def digest(value: Any) -> str:
    """SHA-256 of plain values, in hex, shortened."""
    text = json.dumps(value, ensure_ascii=True, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def plain(value: Any) -> Any:
    """The value as JSON has it: a character for each byte."""
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list | tuple) else value


def rows_of(table: pa.Table | pa.RecordBatchReader | seglake.WindowReader) -> list[list[Any]]:
    """The records of a table, each as a list of plain values, times in ms."""
    table = pa.table(table)
    columns = [
        (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()
        for column in table.columns
    ]
    return [plain(row) for row in zip(*columns, strict=True)]


def summed(table: pa.Table | pa.RecordBatchReader | seglake.WindowReader) -> list[Any]:
    """How many records a table has, and their digest."""
    rows = rows_of(table)
    return [len(rows), digest(rows)]


# ------------------------------------------------------------------ the catalog, read by others


def catalog_rows(root: Path) -> dict[str, list[list[Any]]]:
    """The rows of each kind without the columns of other kinds, as pyarrow reads Delta's files."""
    rows: dict[str, list[list[Any]]] = {kind: [] for kind in KINDS}
    for path in DeltaTable(str(root / "catalog/log")).file_uris():
        kind, topic = (part.partition("=")[2] for part in path.split("/")[-3:-1])
        if kind in rows:
            rows[kind] += ([topic, *row] for row in rows_of(pq.ParquetFile(path).read()))
    return {kind: sorted(each, key=json.dumps) for kind, each in rows.items()}


def quarantine_rows(root: Path) -> list[list[Any]]:
    """The rejected rows, with their topics."""
    rows: list[list[Any]] = []
    for path in DeltaTable(str(root / "catalog/quarantine")).file_uris():
        topic = path.split("/")[-2].partition("=")[2]
        rows += ([topic, *row] for row in rows_of(pq.ParquetFile(path).read()))
    return sorted(rows, key=json.dumps)


# ------------------------------------------------------------------ lookups


def of_lake(root: Path) -> dict[str, Any]:
    """Return the answers of a lake that another program can check."""
    lake = seglake.open(str(root))
    return {
        "versions": {v: ends_at(root, v) for v in range(1, lake.version + 1, 5)},
        "catalog": {**catalog_rows(root), "quarantine": quarantine_rows(root)},
        "logs": {name: of_log(lake.topic(name)) for name in lake.topics()},
    }


def ends_at(root: Path, version: int) -> dict[str, Any]:
    """The end offsets of all topics in a version."""
    lake = seglake.open(str(root), version)
    return {name: plain(lake.topic(name).end_offsets()) for name in lake.topics()}


def of_log(log: Any) -> dict[str, Any]:
    """Return the answers of a topic."""
    parts, ends = log.partitions(), log.end_offsets()
    times = edges(log)
    windows = [*pairwise(times), (times[0], times[-1]), (times[1], times[1]), (times[1], times[-2])]
    return {
        "begin": plain(log.beginning_offsets()),
        "end": plain(ends),
        "newest": plain(log.max_timestamps()),
        "records": {str(p): summed(log.plan_offsets({p: (0, FOREVER)}).execute()) for p in parts},
        "spelled": {str(p): spelled(log, p, ends[p]) for p in parts},
        "times": {str(t): plain(log.offsets_for_times(dict.fromkeys(parts, t))) for t in times},
        "windows": {f"{low}..{high}": window(log, low, high) for low, high in windows},
        "fetches": {str(p): fetches(log, p, ends[p]) for p in parts},
    }


def edges(log: Any) -> list[int]:
    """Times at which an answer may change: around the first, the middle and the newest record."""
    times = sorted(row[0] for row in rows_of(log.read_range(0, FOREVER, columns=["timestamp"])))
    if not times:
        return [0, START - 1, START]
    low, middle, high = times[0], times[len(times) // 2], times[-1]
    return sorted({0, low, low + 1, middle, middle + 1, high, high + 1})


def spelled(log: Any, partition: int, end: int) -> list[Any]:
    """Some records in full, as lookups by offset give them."""
    offsets = sorted({*range(min(SPELLED, end)), *([end // 2, end - 1] if end else [])})
    found = [plain(tuple(log.record_at(partition, offset))) for offset in offsets]
    table = log.records_at(partition, offsets, columns=["topic", *COLUMNS])
    assert [row[:-1] for row in rows_of(table)] == [row[:-1] for row in found]
    return found


def window(log: Any, low: int, high: int) -> list[Any]:
    """A window in both orders."""
    orders = ("offset", "time")
    return [summed(log.read_range(low, high, columns=COLUMNS, order=order)) for order in orders]


def fetches(log: Any, partition: int, end: int) -> list[Any]:
    """Fetches from several offsets on."""
    starts = (0, end // 3, end)
    return [summed(log.read(partition, start, max_records=7, columns=COLUMNS)) for start in starts]
