"""Spark's own Kafka source on `seglake serve`: the same rows as the format "seglake" has.

The jobs are some of those that test_datasource_vs_kafka.py runs on a real broker. They run in a
process of their own: `python -m tests.kafka.test_serve_spark <folder> <address>`.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from seglake.errors import SeglakeError
from seglake.session import spark_session
from tests.harness.lake_server import serving
from tests.judges.kafka_jars import spark_kafka_jars
from tests.kafka.test_datasource_vs_kafka import JOBS, PROJECT, STREAMS, Comparison, make, outcome
from tests.makers.served import T, time_name, window_of

BATCHES = ["everything", "times"]
WINDOW = (T + 15, T + 203)
NAME = f"events.{time_name(WINDOW[0])}.{time_name(WINDOW[1])}"


def rows_of(jobs: Comparison, name: str) -> str:
    """Where the records of a topic stand that is made by its name."""
    frame = jobs.read("kafka", {"subscribe": name})
    rows = sorted((row.partition, row.offset) for row in frame.collect())
    return json.dumps(rows)


def main(folder: Path, address: str) -> None:
    jars = ",".join(map(str, spark_kafka_jars()))
    conf = {"spark.jars": jars, "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "1"}
    spark = spark_session("serve", master="local[2]", conf=conf)
    jobs = Comparison(spark, folder, address)
    found = {name: outcome(jobs.batch, JOBS[name]) for name in BATCHES}
    found["stream"] = outcome(jobs.stream, "in parts", STREAMS["in parts"])
    found["window"] = outcome(rows_of, jobs, NAME)  # it ends by itself
    (folder / "found.json").write_text(json.dumps(found))
    spark.stop()


@pytest.mark.rest
@pytest.mark.long
def test_sparks_source_reads_what_ours_reads(tmp_path: Path) -> None:
    try:
        spark_kafka_jars()
    except SeglakeError as error:
        pytest.skip(f"Spark's Kafka source cannot judge: {error}")
    maker = make(tmp_path / "lake")
    maker.topic = "events"
    with serving(tmp_path / "lake") as server:
        command = [sys.executable, "-m", "tests.kafka.test_serve_spark", str(tmp_path), str(server)]
        env = {**os.environ, "PYTHONPATH": f"{PROJECT / 'src'}{os.pathsep}{PROJECT}"}
        done = subprocess.run(
            command, env=env, cwd=tmp_path, capture_output=True, text=True, check=False
        )
    assert (tmp_path / "found.json").exists(), done.stderr[-5000:]
    found = json.loads((tmp_path / "found.json").read_text())
    windows = [[r.partition, r.offset] for r in window_of(maker.records(), *WINDOW)]
    assert json.loads(found.pop("window")) == windows
    assert found == {
        "everything": "460 rows", "times": "168 rows",
        "stream": "460 rows",
    }  # fmt: skip


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
