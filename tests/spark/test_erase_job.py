"""An erasure on Spark does what one on threads does."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from seglake.maintain.erasure.erase import erase
from seglake.maintain.health.verify import verify
from tests.makers.raw_events import Line, T, ingest, pipeline_of, quarantined, read_lake, write_file


@pytest.mark.rest
def test_spark_and_threads_erase_the_same(spark: SparkSession, tmp_path: Path) -> None:
    lines = [Line(T + number, f"k{number % 5}") for number in range(200)]
    write_file(tmp_path / "in" / "a.jsonl", [*lines, Line(0, broken='{"k":"k3"}')])
    left = []
    for name, session in (("threads", None), ("spark", spark)):
        root = tmp_path / name
        topic = {"compression.type": "zstd", "segment.bytes": 400, "batch.size": 200}
        ingest(pipeline_of(root, tmp_path / "in", topic=topic))
        report = erase(str(root), "events", ["k3"], vacuum=True, spark=session)
        assert (report.records, report.rejects) == (40, 1)
        assert report.segments > 1
        assert (quarantined(root), verify(str(root), deep=True).findings) == ([], [])
        left.append((read_lake(root), len(report.deleted)))
    assert left[0] == left[1]
