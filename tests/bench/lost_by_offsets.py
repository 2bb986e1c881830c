"""What a consumer misses that reads a window from one offset to another.

The consumer asks Kafka's `offsetsForTimes` for the start and the end of a window, and reads what is
between the two offsets. It misses records that arrived late, and reads some of other times.
`python -m tests.bench.lost_by_offsets` prints the table of the README, in half a minute.
"""

import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

import seglake
from seglake.cli.demo.events import generate
from seglake.config import load
from seglake.engine import LocalEngine
from seglake.read.log import Log
from seglake.write.driver.run import DeclaredRun, ingest_files

LENGTHS_MS = {"1 second": 1_000, "10 seconds": 10_000, "1 minute": 60_000, "10 minutes": 600_000}
PIPELINE = """
pipeline = {root = "lake", order = "arrival"}
input = {paths = ["events"], format = "jsonl"}
timestamp = {field = "ts", format = "epoch_ms"}
key = {fields = ["user"]}
topic = {name = "web", partitions = 4}
"""


class Window(NamedTuple):
    """Records of windows: all, those that offsets miss, those that offsets add, those of a read."""

    records: int
    missed: int
    added: int
    exact: int


def lake(folder: Path, events: int) -> Log:
    """Return the log of the demo's events, in the order in which they arrived."""
    generate(folder / "events", events=events)
    (folder / "web.toml").write_text(PIPELINE)
    places = {"pipeline.root": f"{folder}/lake", "input.paths": [f"{folder}/events"]}
    pipeline = load(folder / "web.toml", places)
    ingest_files(LocalEngine(), pipeline, DeclaredRun("1"))
    return seglake.open(str(folder / "lake")).topic("web")


def windows(log: Log, length_ms: int, count: int = 20) -> Window:
    """Read windows of one length, spread over the log, in both ways."""
    everything = log.read_range(None, None, columns=["partition", "timestamp"]).read_all()
    partitions = everything["partition"].to_numpy()
    stamps = everything["timestamp"].cast(pa.int64()).to_numpy()
    low, high = np.percentile(stamps, [1, 99]).astype(int).tolist()
    found = np.zeros(4, np.int64)
    for start in np.linspace(low, max(low, high - length_ms), count).astype(int).tolist():
        end = start + length_ms
        found[3] += len(log.read_range(start, end, columns=["offset"]).read_all())
        for partition in log.partitions():
            times = stamps[partitions == partition]
            inside = (times >= start) & (times < end)
            between = inside[_offset(log, partition, start) : _offset(log, partition, end)]
            found[:3] += inside.sum(), inside.sum() - between.sum(), (~between).sum()
    return Window(*found.tolist())


def _offset(log: Log, partition: int, time_ms: int) -> int:
    """The offset at which a consumer begins that asks for a time."""
    answer = log.offsets_for_times({partition: time_ms})[partition]
    return log.end_offsets()[partition] if answer is None else answer.offset


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        log = lake(Path(name), 1_000_000)
        for length, length_ms in LENGTHS_MS.items():
            records, missed, added, exact = windows(log, length_ms)
            print(
                f"| {length} | {missed / records:.1%} | {added / records:.1%} | {records - exact} |"
            )
