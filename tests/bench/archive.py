"""The archive of a live topic: from a broker into a new lake, beside Spark's Kafka to Delta."""

from __future__ import annotations

from pathlib import Path

from seglake.write.live.archive import Archive, archive
from tests.bench.measure import Contender, Goal, Samples, Section, Table, race
from tests.bench.workbench import TOPIC, Workbench, require

OURS, DELTA = "`seglake archive`", "Spark's Kafka source to Delta"

_TEXT = """\
A broker's topic of {events:,} records in {partitions} partitions, from its beginning to its end,
in a Spark session that is warm; into a new lake, and into a new Delta table (zstd), each time. Both
read by Spark's Kafka source as `read_committed`, with headers. Seglake keeps offsets and writes
every index; the Delta table gets the columns of the source as they are, in no order.
"""


def run(bench: Workbench) -> Section:
    """Measure."""
    events, partitions = len(bench.events.times), bench.sizes.partitions
    section = Section("archive", "Archive of a live topic", _TEXT.format(
        events=events, partitions=partitions
    ))  # fmt: skip
    address = bench.broker.address
    if not bench.has_spark_kafka:
        return section
    lake = bench.lake("arrival")  # which the broker serves
    contenders = [
        each._replace(reads=[lake]) for each in (_ours(bench, address), _delta(bench, address))
    ]
    samples = race(contenders, bench.sizes.runs, aloud=True)
    section.tables = [_table(events, samples)]
    times = samples[0].times_as_fast_as(samples[1])[1]
    section.goals = [Goal(f"{OURS} as a multiple of {DELTA}", times, 1.0)]
    return section


def _ours(bench: Workbench, address: str) -> Contender:
    root = bench.folder / "archive"

    def take() -> Archive:
        options = {"bootstrap.servers": address}
        return archive(str(root), [TOPIC], options, spark=bench.spark)

    def check(found: Archive) -> None:
        (topic,) = found.topics
        require(topic.error is None and topic.run is not None, f"the archive failed: {topic.error}")
        records = (topic.run or {})["records"]
        require(records == len(bench.events.times), f"the archive has {records} records")

    return Contender(OURS, take, check, lambda: _clear(bench, root))


def _delta(bench: Workbench, address: str) -> Contender:
    place = bench.folder / "archive-delta"
    options = {
        "kafka.bootstrap.servers": address, "subscribe": TOPIC, "includeHeaders": "true",
        "kafka.isolation.level": "read_committed",
    }  # fmt: skip

    def take() -> int:
        source = bench.spark.read.format("kafka").options(**options).load()
        source.write.format("delta").option("compression", "zstd").save(str(place))
        return 0

    def check(_nothing: int) -> None:
        count = bench.spark.read.format("delta").load(str(place)).count()
        require(count == len(bench.events.times), f"the Delta table has {count} rows")

    return Contender(DELTA, take, check, lambda: _clear(bench, place))


def _clear(bench: Workbench, place: Path) -> None:
    bench.scratch(place.name)


def _table(events: int, samples: list[Samples]) -> Table:
    rows = []
    for sample in samples:
        low, middle, high = sample.spread()
        rows.append([sample.name, low, middle, high, events / middle / 1e6])
    columns = ["", "s, min", "median", "max", "M records/s"]
    return Table(f"{events:,} records", columns, rows)
