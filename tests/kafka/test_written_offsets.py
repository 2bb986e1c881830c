"""Kafka judges segments of records that keep their offsets: gaps of any length, both clocks."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from seglake.format.codecs.compression import NAMES
from tests.judges.kafka_judge import Kafka
from tests.kafka.test_written_segments import (
    accepted,
    assert_recovery_makes_the_same,
    folder_of,
    scratch_folder,
)
from tests.makers.lakes import open_catalog
from tests.makers.strategies import examples
from tests.unit.write.test_offsets_kept import (
    PARTITIONS,
    Row,
    ingest,
    logs,
    pipeline_of,
    tasks,
    write_parquet,
)

INTERVAL = 200


@given(logs(), tasks, st.sampled_from(NAMES))
@examples(20)
def test_kafka_reads_the_same_records(
    kafka: Kafka, rows: list[Row], task: dict[str, int], codec: str
) -> None:
    with scratch_folder() as name:
        root = Path(name)
        write_parquet(root / "in" / "a.parquet", rows)
        topic = {"compression.type": codec, "index.interval.bytes": INTERVAL}
        ingest(pipeline_of(root / "lake", root / "in", task=task, topic=topic))
        table = open_catalog(str(root / "lake"))
        segments = table.rows.segments(table.snapshot(), "web")
        for partition in range(PARTITIONS):
            mine = [row for row in segments if row.partition == partition]
            if not mine:
                continue
            folder = folder_of(root / "lake", mine)
            assert [
                (each.offset, each.timestamp, each.key, each.value, [*each.headers])
                for each in accepted(kafka, folder, gaps=True)
            ] == [
                (row.offset, row.timestamp, row.key, row.value, row.headers)
                for row in rows
                if row.partition == partition
            ]
            assert_recovery_makes_the_same(kafka, folder, INTERVAL)
