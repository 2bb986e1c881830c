"""The same Spark job, word for word, on a real broker with Spark's Kafka source and on Seglake.

Broker and lake hold the same segments. The jobs run in a process of their own, since Kafka's jars
must be in the session from its start: `python -m tests.kafka.test_datasource_vs_kafka <folder>
<address>` runs each job on both and prints what came of it as JSON.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from seglake.errors import SeglakeError
from seglake.session import spark_session
from tests.judges.kafka_broker import Broker
from tests.judges.kafka_jars import spark_kafka_jars
from tests.judges.kafka_judge import Kafka
from tests.makers.lakes import Event, LakeMaker, Shape, T

PROJECT = Path(__file__).parents[2]
ENDED = 40  # of "ended": a short topic, all of it before T

# Option values: {"events": {"0": …}} are offsets or times, by topic and partition.
BOTH = '{"events":{"0":%d,"1":%d}}'
JOBS: dict[str, dict[str, str]] = {
    "everything": {"subscribe": "events,ended", "includeHeaders": "true"},
    "a pattern is searched for": {"subscribePattern": "ven[^x]"},
    "assigned partitions": {"assign": '{"events":[1],"ended":[0]}'},
    "offsets": {"subscribe": "events", "startingOffsets": BOTH % (17, -2),
                "endingOffsets": BOTH % (-1, 90)},
    "times": {"subscribe": "events", "startingTimestamp": str(T + 100),
              "endingTimestamp": str(T + 250)},
    "times of partitions": {"subscribe": "events", "startingOffsetsByTimestamp": BOTH % (T, T + 7),
                            "endingOffsetsByTimestamp": BOTH % (T + 90, T + 99_999)},
    "a time wins over offsets": {"subscribe": "events", "startingTimestamp": str(T + 60),
                                 "startingOffsets": "latest", "endingOffsets": "latest"},
    "no record at the time": {"subscribe": "events,ended", "startingTimestamp": str(T),
                              "startingOffsetsByTimestampStrategy": "latest"},
    "in tasks": {"subscribe": "events", "minPartitions": "5", "maxRecordsPerPartition": "70"},
    "nothing": {"subscribe": "events", "startingOffsets": BOTH % (5, 6),
                "endingOffsets": BOTH % (5, 6)},
    "ignored": {"subscribe": "ended", "groupIdPrefix": "p", "kafka.group.id": "g",
                "kafkaConsumer.pollTimeoutMs": "60000", "maxOffsetsPerTrigger": "3"},
}  # fmt: skip
REFUSED: dict[str, dict[str, str]] = {
    "nothing to read": {},
    "two ways": {"subscribe": "events", "assign": '{"events":[0]}'},
    "no topic": {"subscribe": " , "},
    "no such topic": {"subscribe": "none"},
    "no JSON": {"assign": "events"},
    "latest start": {"subscribe": "events", "startingOffsets": "latest"},
    "a latest start": {"subscribe": "events", "startingOffsets": BOTH % (0, -1)},
    "earliest end": {"subscribe": "events", "endingOffsets": "earliest"},
    "an earliest end": {"subscribe": "events", "endingOffsets": BOTH % (-2, 5)},
    "a partition missing": {"subscribe": "events", "startingOffsets": '{"events":{"0":1}}'},
    "a partition too many": {"subscribe": "ended", "startingOffsets": BOTH % (1, 1)},
    "backwards": {"subscribe": "events", "startingOffsets": BOTH % (5, 5),
                  "endingOffsets": BOTH % (5, 4)},
    "no record at the time": {"subscribe": "ended", "startingTimestamp": str(T)},
    "zero tasks": {"subscribe": "events", "minPartitions": "0"},
    "zero records": {"subscribe": "events", "maxRecordsPerPartition": "0"},
    "no boolean": {"subscribe": "events", "includeHeaders": "yes"},
    "an unknown strategy": {"subscribe": "events", "startingTimestamp": "1",
                            "startingOffsetsByTimestampStrategy": "first"},
    "a time that is no number": {"subscribe": "events", "startingTimestamp": "2026-01-01"},
    "a deserializer": {"subscribe": "events", "kafka.key.deserializer": "x"},
    "auto commit": {"subscribe": "events", "kafka.enable.auto.commit": "true"},
}  # fmt: skip
STREAMS: dict[str, dict[str, str]] = {
    "in parts": {"subscribe": "events,ended", "startingOffsets": "earliest",
                 "maxOffsetsPerTrigger": "170"},
    "from a time": {"subscribe": "events", "startingTimestamp": str(T + 70)},
}  # fmt: skip


def make(root: Path) -> LakeMaker:
    """Two topics: "events" with disorder, headers, nulls and segments; "ended" with old events."""
    maker = LakeMaker(root, topic="events", partitions=2)
    rows = [
        Event(T + i - 30 * (i % 4 == 0), None if i % 5 == 0 else b"key", b"v" * (i % 9) or None,
              (("one", b"1"), ("größe", None)) if i % 3 == 0 else ())
        for i in range(300)
    ]  # fmt: skip
    maker.run({0: rows, 1: rows[:120]}, Shape("zstd", 500, 6000))
    maker.topic, maker.partitions = "ended", 1
    maker.run({0: [Event(T - 100 + i) for i in range(ENDED)]}, Shape("lz4"))
    return maker


# ---------------------------------------------------------------- the process with Kafka's jars


class Comparison:
    """Jobs on both formats; the options are the same, but for the format's name."""

    def __init__(self, spark: SparkSession, folder: Path, address: str) -> None:
        self.spark, self.folder = spark, folder
        self.place = {
            "kafka.bootstrap.servers": address, "path": str(folder / "lake"),
            "fetchOffset.numRetries": "1", "fetchOffset.retryIntervalMs": "1",
        }  # fmt: skip

    def read(self, name: str, options: dict[str, str]) -> DataFrame:
        return self.spark.read.format(name).options(**self.place, **options).load()

    def batch(self, options: dict[str, str]) -> str:
        kafka, ours = (self.read(name, options).cache() for name in ("kafka", "seglake"))
        assert_df_equality(kafka, ours, ignore_row_order=True)
        return f"{ours.count()} rows"

    def refused(self, options: dict[str, str]) -> str:
        words: list[str] = []
        for name in ("kafka", "seglake"):
            try:
                self.read(name, options).collect()
            except Exception as error:  # of Kafka's source also Java's, and failed assertions
                words.append(str(error))
            else:
                return f"{name} accepts this"
        return "refused" if "seglake.errors." in words[1] else "; ".join(words)

    def stream(self, job: str, options: dict[str, str]) -> str:
        kafka, ours = (self._stream(name, job, options) for name in ("kafka", "seglake"))
        assert kafka[0] == ours[0], f"{kafka[0]} != {ours[0]}"
        assert_df_equality(kafka[1], ours[1], ignore_row_order=True, ignore_nullable=True)
        return f"{ours[1].count()} rows"

    def _stream(self, name: str, job: str, options: dict[str, str]) -> tuple[list[Any], DataFrame]:
        """The ends of all micro-batches as the checkpoint has them, and the rows."""
        folder = self.folder / name / job.replace(" ", "-")
        frame = self.spark.readStream.format(name).options(**self.place, **options).load()
        query = (
            frame.withColumn("text", f.col("value").cast("string"))
            .writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True).start(str(folder / "rows"))
        )  # fmt: skip
        query.awaitTermination()
        logged = sorted(
            (folder / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda p: int(p.name)
        )
        ends = [json.loads(path.read_text().splitlines()[-1]) for path in logged]
        for end in ends:
            for ours in ("@version", "@start"):  # which Kafka has not, or elsewhere
                end.pop(ours, None)
        return ends, self.spark.read.parquet(str(folder / "rows"))


def outcome(run: Any, *arguments: Any) -> str:
    try:
        return str(run(*arguments))
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def main(folder: Path, address: str) -> None:
    jars = ",".join(map(str, spark_kafka_jars()))
    conf = {"spark.jars": jars, "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "1"}
    spark = spark_session("vs-kafka", master="local[2]", conf=conf)
    jobs = Comparison(spark, folder, address)
    found = {
        "batch": {name: outcome(jobs.batch, options) for name, options in JOBS.items()},
        "refused": {name: outcome(jobs.refused, options) for name, options in REFUSED.items()},
        "stream": {name: outcome(jobs.stream, name, options) for name, options in STREAMS.items()},
    }
    (folder / "found.json").write_text(json.dumps(found))
    spark.stop()


# ---------------------------------------------------------------- the tests


@pytest.fixture(scope="module")
def found(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """What came of each job."""
    try:
        spark_kafka_jars()
    except SeglakeError as error:
        pytest.skip(f"Spark's Kafka source cannot judge: {error}")
    folder = tmp_path_factory.mktemp("vs-kafka")
    make(folder / "lake")
    logs = {(topic, p): mounted(folder, topic, p) for topic, p in
            (("events", 0), ("events", 1), ("ended", 0))}  # fmt: skip
    with Broker.serve(kafka, folder / "broker", logs) as broker:
        command = [sys.executable, "-m", "tests.kafka.test_datasource_vs_kafka", str(folder)]
        env = {**os.environ, "PYTHONPATH": f"{PROJECT / 'src'}{os.pathsep}{PROJECT}"}
        done = subprocess.run(
            [*command, broker.address], env=env, cwd=folder, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
    assert (folder / "found.json").exists(), done.stderr[-5000:]
    results: dict[str, dict[str, str]] = json.loads((folder / "found.json").read_text())
    return results


def mounted(folder: Path, topic: str, partition: int) -> Path:
    """A folder with a partition's segments as Kafka wants them: without zone maps."""
    links = folder / "partitions" / f"{topic}-{partition}"
    links.mkdir(parents=True)
    for path in folder.glob(f"lake/topics/{topic}-{partition}/*/*"):
        if path.suffix in (".log", ".index", ".timeindex"):
            (links / path.name).symlink_to(path)
    return links


ROWS = {
    "everything": 460, "a pattern is searched for": 420,
    "assigned partitions": 160, "offsets": 373, "in tasks": 420, "nothing": 0, "ignored": 40,
}  # fmt: skip


@pytest.mark.rest
@pytest.mark.parametrize("job", JOBS)
@pytest.mark.long
def test_batch_jobs_give_the_same_rows(found: dict[str, dict[str, str]], job: str) -> None:
    if job in ROWS:
        assert found["batch"][job] == f"{ROWS[job]} rows"
    else:
        assert found["batch"][job].endswith(" rows"), found["batch"][job]
        assert 0 < int(found["batch"][job].split()[0]) < 460


@pytest.mark.rest
@pytest.mark.parametrize("job", REFUSED)
def test_both_refuse(found: dict[str, dict[str, str]], job: str) -> None:
    assert found["refused"][job] == "refused"


@pytest.mark.rest
@pytest.mark.parametrize("job", STREAMS)
def test_streams_give_the_same_offsets_and_rows(found: dict[str, dict[str, str]], job: str) -> None:
    assert found["stream"][job].endswith(" rows"), found["stream"][job]
    assert int(found["stream"][job].split()[0]) > 100


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
