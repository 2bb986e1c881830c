"""A run of ten terabytes into thousands of log partitions: what its driver and a task take.

    python -m tests.scale.large_run --terabytes 10 --partitions 4096 --task-partitions 256

Of the driver everything between what map tasks tell and what reduce tasks get is played; only the
rows of the blobs are made up. Of the map side a task with one unit is played, which has some of
the log partitions, and as much input for each of them as a whole unit. So its memory is that of a
whole one, and its file a part of it. Both are processes of their own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from seglake.config import Pipeline
from seglake.store import Store
from seglake.store.counting import CountingStore
from seglake.write.driver import plan as driver_plan
from seglake.write.map.unit import MapUnits, Sizes, group_splits, sizes_of
from seglake.write.spool.scratch import Scratch
from seglake.write.spool.spool import (
    RECORDS,
    SPOOLED,
    WITH_RECORDS,
    in_one,
    of_kinds,
    packed_rows,
    read_blobs,
    rows_at,
    unpacked_rows,
)
from tests.bench.memory import own_peak
from tests.makers.inputs import map_settings, splits_of
from tests.makers.raw_events import pipeline_of

_LINE = 180  # bytes, about
_PIECES = 4000


class Setup(NamedTuple):
    """A run, and how many of its log partitions the played task has."""

    terabytes: float
    partitions: int
    task_partitions: int

    @property
    def sizes(self) -> Sizes:
        """Those of the run."""
        return sizes_of(int(self.terabytes * 1e12), _pipeline(Path(), self.partitions))

    @property
    def units(self) -> int:
        """Those of the run."""
        return -(-int(self.terabytes * 1e12) // self.sizes.unit_bytes)


def _pipeline(folder: Path, partitions: int) -> Pipeline:
    return pipeline_of(
        folder / "lake", [folder / "in"], topic={"partitions": partitions}, key={"fields": ["k"]}
    )


# ------------------------------------------------------------------ the driver


class Planned(NamedTuple):
    """What the driver did: bytes that the map tasks told it, and its own peak of memory."""

    units: int
    blobs: int
    pieces: int
    told_bytes: int
    seconds: float
    peak_bytes: int


def handed_out(told: list[bytes], piece_bytes: int) -> tuple[int, int]:
    """Plan the work of all reduce tasks. Return how many blobs and pieces there are."""
    spooled = in_one(of_kinds(unpacked_rows(told), *WITH_RECORDS))
    known = driver_plan.Blobs.of(spooled)
    cuts = driver_plan.cut_partitions(known, piece_bytes)
    routes = driver_plan.assign(known, cuts)
    spanning = driver_plan.straddlers(routes)
    half = {(blob, piece): 1 for blob, pieces in spanning.items() for piece in pieces}
    driver_plan.base_offsets(cuts, driver_plan.count_records(known, routes, half), {})
    tasks = driver_plan.share_pieces(known, routes, len(cuts), _PIECES)
    given = sum(
        len(members)
        for task in tasks
        for _, members in task
        if packed_rows(rows_at(spooled, members))
    )
    if given != len(routes.blobs):
        raise AssertionError(f"{given} blobs were given to pieces instead of {len(routes.blobs)}")
    return len(known), len(cuts)


def plan(setup: Setup) -> Planned:
    """Plan the run in this process: units follow each other in time, and overlap a little."""
    told = [_told(setup, unit) for unit in range(setup.units)]
    size = sum(map(len, told))
    begun = time.monotonic()
    piece_bytes = _pipeline(Path(), setup.partitions).task.piece_bytes
    blobs, pieces = handed_out(told, piece_bytes)
    return Planned(setup.units, blobs, pieces, size, time.monotonic() - begun, own_peak())


def _told(setup: Setup, unit: int) -> bytes:
    """The rows of a unit's blobs, one of each log partition, packed."""
    count, chance = setup.partitions, np.random.default_rng(unit)
    sizes = chance.normal(setup.sizes.unit_bytes / count, 1e5, count).astype(np.int64)
    ends = np.cumsum(sizes // 3)
    first = unit * 1_000_000 + chance.integers(0, 100_000, count)
    nothing = np.zeros(count, np.int64)
    columns: dict[str, Any] = {
        "kind": np.full(count, RECORDS), "unit": nothing + unit, "partition": np.arange(count),
        "number": np.arange(count) + 1, "records": sizes // _LINE, "size_bytes": sizes,
        "sort_key": first, "tie_breaker": nothing, "last_sort_key": first + 1_000_000,
        "last_tie_breaker": nothing, "text": pa.repeat(pa.scalar(""), count),
        "object": pa.repeat(pa.scalar(f"attempts/{0:036}/blobs/{unit:036}"), count),
        "start": ends - sizes // 3, "end": ends, "crc32c": chance.integers(0, 2**32, count),
        "squeezed": nothing == 0,
    }  # fmt: skip
    arrays: list[Any] = [pa.array(columns[each.name]).cast(each.type) for each in SPOOLED]
    return packed_rows(pa.Table.from_arrays(arrays, schema=SPOOLED))


# ------------------------------------------------------------------ a task


class Mapped(NamedTuple):
    """What a map task did: its file at most, its own peak of memory; what a reader of it asks."""

    input_bytes: int
    records: int
    blobs: int
    spooled_bytes: int
    file_bytes: int
    seconds: float
    peak_bytes: int
    requests_per_mib: float


def map_unit(setup: Setup, folder: Path) -> Mapped:
    """Run the task in this process, then read what each log partition has of it."""
    share = setup.sizes.unit_bytes // setup.partitions
    size = _write_events(folder / "in", share * setup.task_partitions)
    made = map_settings(_pipeline(folder, setup.task_partitions))
    store = _Remote(made.store)
    made = made._replace(store=store, sizes=setup.sizes._replace(unit_bytes=2 * size))
    (unit,) = group_splits(splits_of(made.pipeline), made.sizes.unit_bytes)
    begun = time.monotonic()
    with _noted_file() as noted:
        rows = of_kinds(unpacked_rows([MapUnits(made)([unit])]), RECORDS).cast(SPOOLED)
    took, peak, before = time.monotonic() - begun, own_peak(), store.counts.requests
    spooled = sum(_bytes_of(store, rows, each) for each in range(setup.task_partitions))
    requests = (store.counts.requests - before) / (spooled / 2**20)
    records = int(rows["records"].to_numpy().sum())
    return Mapped(size, records, len(rows), spooled, max(noted), took, peak, requests)


class _Remote(CountingStore):
    """A store of this machine, which tasks take for an object store."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.remote = True


@contextmanager
def _noted_file() -> Iterator[list[int]]:
    """In the block, the bytes in the file of a task after each chunk."""
    noted, add = [0], Scratch.add

    def noting(scratch: Scratch, items: Any) -> None:
        add(scratch, items)
        noted.append(scratch.size_bytes)

    with patch.object(Scratch, "add", noting):
        yield noted


def _bytes_of(store: Store, rows: pa.Table, partition: int) -> int:
    own = rows.filter(pa.array(rows["partition"].to_numpy() == partition))
    return sum(len(memoryview(blob.data)) for blob in read_blobs(store, own))


def _write_events(folder: Path, size_bytes: int) -> int:
    """A file of about so many bytes, one event a ms; returns its size."""
    folder.mkdir(parents=True)
    path, number = folder / "events.jsonl", 0
    with path.open("w") as file:
        while file.tell() < size_bytes:
            lines = (_line(at) for at in range(number, number + 10_000))
            file.writelines(lines)
            number += 10_000
    return path.stat().st_size


def _line(at: int) -> str:
    return (
        f'{{"ts":{1_790_000_000_000 + at},"k":"user-{at * 7919 % 1_000_003}","path":"/shop/'
        f'{at % 977}","status":{200 + at % 5},"agent":"Mozilla/5.0 (X11; Linux) '
        f'{at * 2_654_435_761 % 2**32:x}","bytes":{at * 31}}}\n'
    )


# ------------------------------------------------------------------ both


def played(setup: Setup) -> tuple[Planned, Mapped]:
    """Both, each in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        return Planned(*_asked("plan", setup)), Mapped(*_asked("map", setup, folder))


def _asked(part: str, setup: Setup, *given: str) -> list[Any]:
    command = [sys.executable, "-m", "tests.scale.large_run", part, *map(str, setup), *given]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: list[Any] = json.loads(done.stdout)
    return found


def lines(setup: Setup, planned: Planned, mapped: Mapped) -> Iterator[str]:
    """What came of it."""
    yield (
        f"{setup.terabytes:g} TB, {setup.partitions:,} log partitions: {planned.units:,} units, "
        f"{planned.blobs:,} blobs, {planned.pieces:,} pieces"
    )
    yield (
        f"driver: {planned.told_bytes / 1e6:.0f} MB come from tasks; planning takes "
        f"{planned.seconds:.1f} s and {planned.peak_bytes / 1e6:,.0f} MB"
    )
    some, whole = setup.task_partitions, mapped.file_bytes * setup.partitions
    yield (
        f"a task with {some} of the log partitions: {mapped.input_bytes / 1e6:,.0f} MB of input,"
        f" {mapped.records:,} records, {mapped.blobs:,} blobs; {mapped.seconds:.0f} s,"
        f" {mapped.peak_bytes / 1e6:.0f} MB of memory, {mapped.file_bytes / 1e6:.0f} MB of disk "
        f"(with all of them {whole / some / 1e9:.1f} GB)"
    )
    yield f"reduce side: {mapped.requests_per_mib:.2f} requests a MiB of blobs"


def main() -> None:
    """Play both, and say what came of it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--terabytes", type=float, default=10.0)
    parser.add_argument("--partitions", type=int, default=4096)
    parser.add_argument("--task-partitions", type=int, default=256)
    setup = Setup(**vars(parser.parse_args()))
    print(*lines(setup, *played(setup)), sep="\n")


def _part(part: str, terabytes: str, partitions: str, task_partitions: str, *given: str) -> None:
    setup = Setup(float(terabytes), int(partitions), int(task_partitions))
    print(json.dumps(plan(setup) if part == "plan" else map_unit(setup, Path(*given))))


if __name__ == "__main__":
    if sys.argv[1:2] in (["plan"], ["map"]):
        _part(*sys.argv[1:])
    else:
        main()
