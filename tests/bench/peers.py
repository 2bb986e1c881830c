"""Readers of windows from other formats, each laid out and opened as is best for it.

All have the events in the order of their times, and these times in memory, as Seglake has its
indexes: a window is then a range of rows. `make bench` installs what they need.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

Read = Callable[[int, int], Any]
Maker = Callable[[Path, Path], Read]

ROW_GROUP = 1024


def readers(parquet: Path, folder: Path) -> dict[str, Read]:
    """A reader for each format that is installed; `parquet` has the events in order."""
    folder.mkdir(parents=True, exist_ok=True)
    return {
        name: make(parquet, folder)
        for name, (package, make) in MAKERS.items()
        if find_spec(package)
    }


def _times(parquet: Path) -> Any:
    return pq.read_table(parquet, columns=["time"])["time"].to_numpy()


def _pyarrow(parquet: Path, folder: Path) -> Read:
    """Row groups of 1,024 rows, in a mapped file that stays open."""
    path, times = folder / "small-groups.parquet", _times(parquet)
    pq.write_table(pq.read_table(parquet), path, row_group_size=ROW_GROUP, compression="zstd")
    file = pq.ParquetFile(path, memory_map=True)

    def read(start: int, end: int) -> Any:
        first, stop = np.searchsorted(times, [start, end])
        groups = range(first // ROW_GROUP, -(-stop // ROW_GROUP))
        table = file.read_row_groups(list(groups))
        return table.slice(first - groups.start * ROW_GROUP, stop - first)

    return read


def _vortex(parquet: Path, folder: Path) -> Read:
    """A mapped file and a scan that is prepared once."""
    vortex: Any = import_module("vortex")
    path, times = folder / "events.vortex", _times(parquet)
    vortex.io.write(pq.read_table(parquet), str(path))
    scan = vortex.open(str(path), memory_map=True).to_repeated_scan()

    def read(start: int, end: int) -> Any:
        rows = tuple(np.searchsorted(times, [start, end]).tolist())
        return scan.execute(row_range=rows).read_all().to_arrow_table()

    return read


def _lance(parquet: Path, folder: Path) -> Read:
    """An open dataset, asked by offset and limit."""
    lance: Any = import_module("lance")
    times = _times(parquet)
    dataset = lance.write_dataset(pq.read_table(parquet), str(folder / "events.lance"))

    def read(start: int, end: int) -> Any:
        first, stop = np.searchsorted(times, [start, end]).tolist()
        return dataset.to_table(offset=first, limit=stop - first)

    return read


MAKERS: dict[str, tuple[str, Maker]] = {
    "pyarrow on Parquet, times in memory": ("pyarrow", _pyarrow),
    "Vortex, mapped, times in memory": ("vortex", _vortex),
    "Lance, times in memory": ("lance", _lance),
}
