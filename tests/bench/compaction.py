"""Compaction by key beside Kafka's own cleaner, and the memory that it takes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import seglake
from seglake.catalog.table import CatalogTable
from seglake.engine import Engine, LocalEngine, ThreadEngine
from seglake.maintain.compaction.compact import compact_topic
from seglake.maintain.compaction.passes import How
from seglake.store import open_store
from tests.bench.measure import Contender, Goal, Samples, Section, Table, Timed, race, say
from tests.bench.workbench import Workbench, require
from tests.judges.kafka_cleaner import CleanerRound, KafkaCleaner
from tests.judges.latest import live_rows
from tests.makers.keyed_logs import TOPIC, Keyed, make_keyed_lake
from tests.makers.lakes import LakeMaker

NOW_MS = 10**13
KEYS_OF_EACH = 4  # records
DEDUPE_BYTES = 128 * 2**20  # Kafka's log.cleaner.dedupe.buffer.size
SEGMENT_BYTES = 2**25
CODECS = ("none", "zstd")
_COMPACT = """
import sys, seglake
(log,) = seglake.compact(*sys.argv[1:]).partitions
lines = open("/proc/self/status").read().splitlines()
peaks = [int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")]
print(log.superseded, *(peaks or [0]))
"""
MIB = 2**20

_TEXT = """\
A log of one partition with {records:,} records, in random order of {keys:,} keys of 16 bytes, with
values of 100 bytes, in segments of 32 MiB, is compacted: by `seglake.compact` on all cores of this
machine, by the same on one, and by Kafka's `Cleaner` in its JVM, which cleans a log in one thread,
with its default buffer of 128 MiB. Times of Seglake include opening the lake and the commit; those
of Kafka begin when the log is loaded. All leave the same records. *Memory* is the largest resident
set that the kernel counted (`VmHWM`) of a process that compacts a log in which every key occurs
once and some twice.
"""


def run(bench: Workbench) -> Section:
    """Measure."""
    records = bench.sizes.events
    keys = max(records // KEYS_OF_EACH, 1)
    made = Keyed(records, keys, value_bytes=100, segment_bytes=SEGMENT_BYTES)
    text = _TEXT.format(records=made.records, keys=made.keys)
    section = Section("compaction", "Compaction by key", text)
    columns = ["", "records per s: min", "median", "max", "s: median"]
    for codec in CODECS:
        samples = _race(bench, made._replace(codec=codec))
        rows = [[s.name, *_rates(made, s), s.spread()[1]] for s in samples]
        section.tables.append(Table(f"Codec {codec}", columns, rows))
        ours, _, kafka = samples
        if codec == "zstd":
            text = f"Times as fast as Kafka's cleaner, {codec}"
            section.goals.append(Goal(text, ours.times_as_fast_as(kafka)[1], 2.0))
    section.tables.append(memory(bench))
    return section


def _rates(made: Keyed, samples: Samples) -> list[float]:
    return [made.records / seconds for seconds in reversed(samples.spread())]


def _race(bench: Workbench, made: Keyed) -> list[Samples]:
    """Seglake on all cores, on one, and Kafka."""
    say(f"  {made.records:,} records, {made.codec}")
    source = bench.scratch("keyed")
    make_keyed_lake(source, made)
    lake, home = bench.folder / "compacted", bench.folder / "cleaned" / f"{TOPIC}-0"
    cleaner, left = KafkaCleaner(bench.kafka), made.last().tolist()

    def check(_result: Any) -> None:
        found = seglake.open(str(lake)).topic(TOPIC).read(0, 0, max_records=len(left) + 1)
        require(found["offset"].to_pylist() == left, "other records are left")

    def check_kafka(told: CleanerRound) -> None:
        require((told.end_offset, told.records) == (made.records,) * 2, f"not cleaned: {told}")
        logs = (path for path in sorted(home.glob("*.log")) if path.stat().st_size)
        batches = (b for log in logs for b in bench.kafka.read_batches(log, records=False))
        require(sum(b.count or 0 for b in batches) == len(left), "Kafka left other records")

    def clean() -> Timed:
        settings = {"cleanup.policy": "compact", "segment.bytes": SEGMENT_BYTES}
        told = cleaner.clean(home, settings, NOW_MS, map_bytes=DEDUPE_BYTES)
        return Timed(told.seconds, told)

    engines: dict[str, Engine] = {
        f"Seglake, {os.cpu_count()} cores": ThreadEngine(),
        "Seglake, one core": LocalEngine(),
    }
    fresh = partial(_copy, source, lake)
    ours = [
        Contender(name, partial(_compact, lake, engine), check, fresh, reads=[source])
        for name, engine in engines.items()
    ]
    kafka = Contender(
        "Kafka's cleaner", clean, check_kafka, partial(_mount, source, home), reads=[home]
    )
    return race([*ours, kafka], bench.sizes.runs, aloud=True)


def _compact(lake: Path, engine: Engine) -> None:
    table = CatalogTable.open(open_store(str(lake)))
    compact_topic(table, TOPIC, engine, How(force=False, now_ms=NOW_MS))


def _copy(source: Path, lake: Path) -> None:
    """The lake as it was; its segments never change, so that links will do."""
    shutil.rmtree(lake, ignore_errors=True)
    shutil.copytree(source / "topics", lake / "topics", copy_function=os.link)
    for folder in ("catalog", "attempts"):
        shutil.copytree(source / folder, lake / folder)


def _mount(source: Path, home: Path) -> None:
    """The segments for Kafka, which opens indexes for writing."""
    shutil.rmtree(home.parent, ignore_errors=True)
    home.mkdir(parents=True)
    for row in live_rows(LakeMaker(source)):
        for suffix in ("log", "index", "timeindex"):
            shutil.copy(source / row.key(suffix), home / f"{row.base_offset:020d}.{suffix}")


def memory(bench: Workbench) -> Table:
    """The largest resident set of a process that compacts, for three numbers of keys."""
    rows = []
    for keys in (bench.sizes.keys // 20, bench.sizes.keys // 4, bench.sizes.keys):
        made = Keyed(keys + keys // 10, keys, in_turn=True)
        root = bench.scratch("keyed")
        size = sum(row.log_bytes for row in make_keyed_lake(root, made))
        say(f"  memory of {keys:,} keys")
        done = subprocess.run(
            [sys.executable, "-c", _COMPACT, str(root), TOPIC], check=True, capture_output=True
        )
        superseded, peak = map(int, done.stdout.split())
        require(superseded == keys // 10, "other records are left")
        rows.append([f"{keys:,}", size / 1e6, peak / MIB])
        shutil.rmtree(root)
    return Table("Memory", ["keys", "log, MB", "MiB at most"], rows)
