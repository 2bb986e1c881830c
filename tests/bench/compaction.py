"""Compaction by key beside Kafka's own cleaner."""

import os
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import seglake
from seglake.catalog.table import CatalogTable
from seglake.engine import engine_of
from seglake.maintain.compaction.compact import compact_topic
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

_TEXT = """\
A log of one partition with {records:,} records, in random order of {keys:,} keys of 16 bytes, with
values of 100 bytes, zstd, in segments of 32 MiB, is compacted: by `seglake.compact` on all cores of
this machine, and by Kafka's `Cleaner` in its JVM, which cleans a log in one thread, with its
default buffer of 128 MiB. Times of Seglake include opening the lake and the commit; those of Kafka
begin when the log is loaded. Both leave the same records.
"""


def run(bench: Workbench) -> Section:
    """Measure."""
    records = bench.sizes.events
    keys = max(records // KEYS_OF_EACH, 1)
    made = Keyed(records, keys, value_bytes=100, segment_bytes=SEGMENT_BYTES, codec="zstd")
    text = _TEXT.format(records=made.records, keys=made.keys)
    section = Section("compaction", "Compaction by key", text)
    ours, kafka = samples = _race(bench, made)
    rows = [[s.name, *(made.records / each for each in reversed(s.spread()))] for s in samples]
    section.tables = [Table("Records per s", ["", "min", "median", "max"], rows)]
    ratio = ours.times_as_fast_as(kafka)[1]
    section.goals = [Goal("Speed, relative to Kafka's cleaner", ratio, 2.0)]
    return section


def _race(bench: Workbench, made: Keyed) -> list[Samples]:
    """Seglake on all cores, and Kafka."""
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

    fresh = partial(_copy, source, lake)
    ours = Contender("Seglake", partial(_compact, lake), check, fresh, reads=[source])
    kafka = Contender(
        "Kafka's cleaner", clean, check_kafka, partial(_mount, source, home), reads=[home]
    )
    return race([ours, kafka], bench.sizes.runs, aloud=True)


def _compact(lake: Path) -> None:
    table = CatalogTable.open(open_store(str(lake)))
    compact_topic(table, TOPIC, engine_of(None), now_ms=NOW_MS)


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
