"""Everything that a lake answers, as plain values, through the public API and the command line."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyarrow import parquet as pq
from typer.testing import CliRunner

import seglake
from seglake.cli.app import app
from tests.stored.events import START

COLUMNS = ["partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers"]
KINDS = ("segment", "run", "source", "topic", "partition")
FOREVER = 2**62
NOON = str(START + 5000)
COMMANDS = (
    ("segments", "csv", "--json"), ("segments", "web", "--json"),
    ("offsets", "web", "--time", "latest", "--json"), ("offsets", "web", "--time", NOON, "--json"),
    ("offsets", "rows", "--time", "max-timestamp", "--json"),
    ("read", "web", "--start", NOON, "--explain", "--json"), ("read", "web", "--format", "jsonl"),
    ("read", "arrived", "--start", NOON, "--order", "time", "--max-records", "9"),
    ("read", "placed", "--partition", "1", "--offset", "5", "--max-records", "9"),
)  # fmt: skip
SPELLED = 2  # records of each partition that stand in full in the answers


def told(*arguments: object) -> Any:
    """What a command says with --json."""
    return json.loads(said(*arguments, "--json"))


def said(*arguments: object) -> str:
    """What a command prints; what it raises is raised."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.stdout


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


LATER = ("operation", "sequence", "state", "offset_ranges")  # names of runs since then
SEGMENTS_LATER = ("external",)


def first_rows(root: Path) -> dict[str, list[list[Any]]]:
    """The rows as they were before runs and segments got more columns, and maintenance rows."""
    return catalog_rows(root, {"run": LATER, "segment": SEGMENTS_LATER})


def catalog_rows(
    root: Path, without: Mapping[str, Sequence[str]] = MappingProxyType({})
) -> dict[str, list[list[Any]]]:
    """The rows of each kind without the columns of other kinds, as pyarrow reads Delta's files."""
    rows: dict[str, list[list[Any]]] = {kind: [] for kind in KINDS}
    for path in DeltaTable(str(root / "catalog/log")).file_uris():
        kind, topic = (part.partition("=")[2] for part in path.split("/")[-3:-1])
        table = pq.ParquetFile(path).read()
        left_out = [name for name in without.get(kind, ()) if name in table.column_names]
        if kind in rows:
            rows[kind] += ([topic, *row] for row in rows_of(table.drop_columns(left_out)))
    return {kind: sorted(each, key=json.dumps) for kind, each in rows.items()}


def _first(run: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in run.items() if name not in LATER}


def quarantine_rows(root: Path) -> list[list[Any]]:
    """The rejected rows, with their topics."""
    rows: list[list[Any]] = []
    for path in DeltaTable(str(root / "catalog/quarantine")).file_uris():
        topic = path.split("/")[-2].partition("=")[2]
        rows += ([topic, *row] for row in rows_of(pq.ParquetFile(path).read()))
    return sorted(rows, key=json.dumps)


# ------------------------------------------------------------------ lookups


def of_lake(root: Path) -> dict[str, Any]:
    """All answers of a lake."""
    lake = seglake.open(str(root))
    return {
        "version": lake.version,
        "topics": told("topics", root),
        "history": digest([_first(run) for run in reversed(told("history", root))]),
        "versions": {v: ends_at(root, v) for v in range(1, lake.version + 1, 5)},
        "catalog": {**catalog_rows(root), "quarantine": quarantine_rows(root)},
        "logs": {name: of_log(root, lake.topic(name)) for name in lake.topics()},
        "around": around(lake.topic("web")),
        "translated": translated(lake),
        "commands": {" ".join(each): printed(root, *each) for each in COMMANDS},
        "verify": verified(root),
    }


def ends_at(root: Path, version: int) -> dict[str, Any]:
    """The end offsets of all topics in a version."""
    lake = seglake.open(str(root), version)
    return {name: plain(lake.topic(name).end_offsets()) for name in lake.topics()}


def verified(root: Path) -> dict[str, Any]:
    """What a deep look at every file says; `orphans` are what lost races left."""
    report: dict[str, Any] = told("verify", root, "--deep")
    return report


def printed(root: Path, command: str, *arguments: str) -> str:
    """The digest of what a command prints."""
    return digest(said(command, root, *arguments).replace('"external": false, ', ""))  # since then


def of_log(root: Path, log: Any) -> dict[str, Any]:
    """All answers of a topic."""
    parts, ends = log.partitions(), log.end_offsets()
    times = edges(log)
    windows = [*pairwise(times), (times[0], times[-1]), (times[1], times[1]), (times[1], times[-2])]
    return {
        "begin": plain(log.beginning_offsets()),
        "end": plain(ends),
        "newest": plain(log.max_timestamps()),
        "counts": log.partition_counts(),
        "records": {str(p): summed(log.plan_offsets({p: (0, FOREVER)}).execute()) for p in parts},
        "spelled": {str(p): spelled(log, p, ends[p]) for p in parts},
        "times": {str(t): plain(log.offsets_for_times(dict.fromkeys(parts, t))) for t in times},
        "many_times": [many(log, p, times) for p in parts],
        "windows": {f"{low}..{high}": window(log, low, high) for low, high in windows},
        "lag": {str(p): lags(log, p, ends[p]) for p in parts},
        "fetches": {str(p): fetches(log, p, ends[p]) for p in parts},
        "outside": [refusal(log, p, offset) for p in parts for offset in (-1, ends[p])],
        "closed": closed(log),
        "lines": digest(said("read", root, log.topic)),
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


def many(log: Any, partition: int, times: list[int]) -> Any:
    """Offsets for many times at once."""
    return [array.tolist() for array in log.offsets_for_times_array(partition, times)]


def window(log: Any, low: int, high: int) -> list[Any]:
    """A window in both orders, and what its plan would read."""
    plan = log.plan_range(low, high)
    ordered = [
        summed(log.read_range(low, high, columns=COLUMNS, order=order))
        for order in ("offset", "time")
    ]
    return [*ordered, [len(plan.pieces), plan.ranges, plan.size_bytes, plan.records_at_most]]


def lags(log: Any, partition: int, end: int) -> list[Any]:
    """How far a consumer at the beginning, in the middle and at the end is behind."""
    return [plain(log.lag({partition: offset})[partition]) for offset in (0, end // 2, end)]


def fetches(log: Any, partition: int, end: int) -> list[Any]:
    """Fetches from several offsets on."""
    starts = (0, end // 3, end)
    return [summed(log.read(partition, start, max_records=7, columns=COLUMNS)) for start in starts]


def refusal(log: Any, partition: int, offset: int) -> str:
    """The error for an offset that the log does not have."""
    return _error(lambda: log.record_at(partition, offset))


def _error(action: Callable[[], object]) -> str:
    try:
        action()
    except seglake.errors.SeglakeError as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def closed(log: Any) -> list[Any]:
    """Which intervals after the start of all events are declared, each with a lateness."""
    minutes = (0, 1, 9, 10, 11, 20, 21)
    spans = [(START + a * 60_000, START + b * 60_000) for a in minutes for b in minutes if a < b]
    spans += [(START, START + 60), (START, START + 9), (START + 60, START + 99)]
    return [[*span, late] for span in spans for late in (0, 60_000) if log.closed(*span, late)]


def around(log: Any) -> list[Any]:
    """The events around a few rows, with any key and with the rows' own."""
    rows = pa.table({"at": [START + 5000, START + 9000, None], "who": ["hot", "ann", "bob"]})
    spans = {"before_ms": 3000, "after_ms": 1500, "columns": ["partition", "offset", "timestamp"]}
    return [
        sorted(rows_of(log.read_around(rows, "at", key=key, **spans)), key=json.dumps)
        for key in (None, "who")
    ]


def translated(lake: Any) -> dict[str, Any]:
    """Where a consumer of one topic goes on in another."""
    pairs: Iterable[tuple[str, str]] = (("web", "arrived"), ("arrived", "placed"), ("ticks", "web"))
    return {
        f"{here} {there}": plain(
            lake.topic(here).translate(dict.fromkeys(lake.topic(here).partitions(), 1),
                                       lake.topic(there), skew_ms=5)
        )
        for here, there in pairs
    }  # fmt: skip
