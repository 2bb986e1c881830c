"""Readers of windows, ours and those of other formats, each laid out and opened as is best for it.

Each has opened its file before the first window: handles, footers, plans and indexes are in memory.
Those with *times in memory* hold the time of every event there, so that a window is a range of
rows. `make bench` installs what Vortex and Lance need.
"""

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import numpy as np
import polars as pl
import pyarrow.parquet as pq

import seglake
from seglake.read.log import Log

COLUMNS = ["key", "value", "timestamp"]
ROW_GROUP = 1024
_SMALL, _VORTEX, _LANCE = "small.parquet", "events.vortex", "events.lance"

Read = Callable[[int, int], Any]


class Reader(NamedTuple):
    """A way to read windows: `open` gives a reader of its own to each thread that asks.

    It reads a file or folder of its own, or the sorted Parquet if `place` is "".
    """

    package: str
    place: str
    prepare: Callable[[Path, Path], None]  # (sorted Parquet, folder): files of its own
    open: Callable[[Path, Path], Callable[[], Read]]


def _nothing(parquet: Path, folder: Path) -> None:
    """It reads the Parquet file that is there."""


def seglake_reader(root: str, topic: str) -> Callable[[], Read]:
    """Ours: an open lake whose zone maps were read."""
    log = with_zone_maps(seglake.open(root).topic(topic))
    return lambda: lambda start, end: log.read_range(start, end, columns=COLUMNS).read_all()


def with_zone_maps(log: Log) -> Log:
    """The log, once its zone maps are in memory."""
    segments = log.segments().to_arrow()
    bounds = (segments[name].to_pylist() for name in ("min_timestamp", "max_timestamp"))
    for first, last in zip(*bounds, strict=True):
        log.plan_range(first + 1, max(first + 1, last))  # so that it is not in there as a whole
    return log


def _times(parquet: Path) -> Any:
    return pq.read_table(parquet, columns=["time"])["time"].to_numpy()


def _polars(parquet: Path, folder: Path) -> Callable[[], Read]:
    del folder
    frame, time = pl.scan_parquet(parquet), pl.col("time")
    return lambda: (
        lambda start, end: frame.filter((time >= start) & (time < end)).collect().to_arrow()
    )


def _duckdb(parquet: Path, folder: Path) -> Callable[[], Read]:
    del folder
    connection = duckdb.connect()
    connection.execute("SET parquet_metadata_cache = true")
    query = f"SELECT * FROM read_parquet('{parquet}') WHERE time >= ? AND time < ?"

    def of_thread() -> Read:
        own = connection.cursor()
        return lambda start, end: own.sql(query, params=[start, end]).to_arrow_table()

    return of_thread


def _write_small_groups(parquet: Path, folder: Path) -> None:
    table = pq.read_table(parquet)
    pq.write_table(table, folder / _SMALL, row_group_size=ROW_GROUP, compression="zstd")


def _pyarrow(parquet: Path, folder: Path) -> Callable[[], Read]:
    """Row groups of 1,024 rows, in a mapped file."""
    times = _times(parquet)

    def of_thread() -> Read:
        file = pq.ParquetFile(folder / _SMALL, memory_map=True)

        def read(start: int, end: int) -> Any:
            first, stop = np.searchsorted(times, [start, end])
            groups = range(first // ROW_GROUP, -(-stop // ROW_GROUP))
            table = file.read_row_groups(list(groups))
            return table.slice(first - groups.start * ROW_GROUP, stop - first)

        return read

    return of_thread


def _write_vortex(parquet: Path, folder: Path) -> None:
    vortex: Any = import_module("vortex")
    vortex.io.write(pq.read_table(parquet), str(folder / _VORTEX))


def _vortex(parquet: Path, folder: Path) -> Callable[[], Read]:
    """A mapped file and a scan that is prepared once."""
    vortex: Any = import_module("vortex")
    times = _times(parquet)

    def of_thread() -> Read:
        scan = vortex.open(str(folder / _VORTEX), memory_map=True).to_repeated_scan()

        def read(start: int, end: int) -> Any:
            rows = tuple(np.searchsorted(times, [start, end]).tolist())
            return scan.execute(row_range=rows).read_all().to_arrow_table()

        return read

    return of_thread


def _write_lance(parquet: Path, folder: Path) -> None:
    lance: Any = import_module("lance")
    dataset = lance.write_dataset(pq.read_table(parquet), str(folder / _LANCE))
    dataset.create_scalar_index("time", "BTREE")


def _lance(parquet: Path, folder: Path) -> Callable[[], Read]:
    """An open dataset, asked by offset and limit."""
    lance: Any = import_module("lance")
    times, dataset = _times(parquet), lance.dataset(str(folder / _LANCE))

    def read(start: int, end: int) -> Any:
        first, stop = np.searchsorted(times, [start, end]).tolist()
        return dataset.to_table(offset=first, limit=stop - first)

    return lambda: read


def _lance_index(parquet: Path, folder: Path) -> Callable[[], Read]:
    """An open dataset, asked by its BTREE index of times."""
    del parquet
    lance: Any = import_module("lance")
    dataset = lance.dataset(str(folder / _LANCE))
    return lambda: lambda start, end: dataset.to_table(filter=f"time >= {start} AND time < {end}")


READERS: dict[str, Reader] = {
    "Polars on Parquet": Reader("polars", "", _nothing, _polars),
    "DuckDB on Parquet": Reader("duckdb", "", _nothing, _duckdb),
    "pyarrow on Parquet, times in memory": Reader("pyarrow", _SMALL, _write_small_groups, _pyarrow),
    "Vortex, mapped, times in memory": Reader("vortex", _VORTEX, _write_vortex, _vortex),
    "Lance, times in memory": Reader("lance", _LANCE, _write_lance, _lance),
    "Lance, its BTREE index": Reader("lance", _LANCE, _nothing, _lance_index),
}


def prepare(parquet: Path, folder: Path) -> list[str]:
    """Writes what the readers read; the names of those whose package is installed."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [name for name, reader in READERS.items() if find_spec(reader.package)]
    for name in names:
        READERS[name].prepare(parquet, folder)
    return names
