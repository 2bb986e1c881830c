"""A streaming query that is killed again and again while commits go on, against the log.

`python -m tests.spark.test_datasource_kill <folder> <how>` is that query: it reads the lake in
the folder, and writes files there.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import seglake
from seglake.session import spark_session
from tests.makers.lakes import Event, LakeMaker, Shape, T

PROJECT = Path(__file__).parents[2]
SOURCES = str(Path(seglake.__file__).parents[1])
KILLS = 2
# It fits the first version only: a topic comes later.
OPTIONS = {"subscribePattern": "^events", "startingOffsets": '{"events":{"0":5,"1":-2}}'}
RUNNING = {"processingTime": "0 seconds"}, {**OPTIONS, "maxOffsetsPerTrigger": "100"}
LAST = {"availableNow": True}, OPTIONS


@pytest.mark.rest
@pytest.mark.long
def test_a_query_that_is_killed_at_any_moment(spark: SparkSession, tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    chance = random.Random(seed)
    maker = LakeMaker(tmp_path / "lake", partitions=2)
    commit(maker, "events", chance, least=20)
    for number in range(KILLS):
        with running(tmp_path, RUNNING) as query:
            wanted = logged(tmp_path) + (chance.randint(1, 5) if number else 1)
            while logged(tmp_path) < wanted:
                assert query.poll() is None, (tmp_path / "log").read_text()
                commit(maker, "events", chance)
                time.sleep(chance.uniform(0.1, 0.5))
            time.sleep(chance.uniform(0, 0.5))
            assert query.poll() is None, (tmp_path / "log").read_text()
        commit(maker, "events-later", chance)
    with running(tmp_path, LAST) as query:
        assert query.wait() == 0, (tmp_path / "log").read_text()
    found = spark.read.parquet(str(tmp_path / "rows")).collect()
    assert sorted(map(tuple, found)) == rows_of(maker)


def commit(maker: LakeMaker, topic: str, chance: random.Random, *, least: int = 0) -> None:
    maker.topic = topic
    rows = [Event(T + i, None, b"%d" % chance.randrange(10**6)) for i in range(least + 20)]
    cuts = chance.randint(least, len(rows)), chance.randint(least, len(rows))
    maker.run({0: rows[: cuts[0]], 1: rows[: cuts[1]]}, Shape(segment_bytes=600))


def logged(folder: Path) -> int:
    """How many ends and completions of micro-batches the checkpoint has held so far."""
    logs = (folder / "checkpoint" / name for name in ("offsets", "commits"))
    files = ([int(f.name) for f in log.glob("*") if f.name.isdigit()] for log in logs)
    return sum(max(numbers, default=-1) + 1 for numbers in files)


def rows_of(maker: LakeMaker) -> list[tuple[str, int, int, str]]:
    return sorted(
        (topic, r.partition, r.offset, (r.value or b"").decode())
        for topic in maker.written
        for r in maker.records(topic=topic)
        if topic != "events" or r.partition == 1 or r.offset >= 5
    )


@contextmanager
def running(folder: Path, how: object) -> Iterator[subprocess.Popen[bytes]]:
    """The query in a process of its own, which is killed at the end with all that it started."""
    command = [sys.executable, "-m", "tests.spark.test_datasource_kill", str(folder)]
    environment = {"PYTHONPATH": SOURCES, "PYSPARK_PYTHON": sys.executable}
    with (folder / "log").open("ab") as log:
        query = subprocess.Popen(
            [*command, json.dumps(how)], cwd=PROJECT, env=os.environ | environment,
            stdout=subprocess.PIPE, stderr=log, start_new_session=True,
        )  # fmt: skip
    try:
        yield query
    finally:
        with suppress(ProcessLookupError):  # it ended by itself
            os.killpg(query.pid, signal.SIGKILL)
        query.communicate()  # until the last of its processes has gone


def main(folder: Path, trigger: dict[str, Any], options: dict[str, str]) -> None:
    spark = spark_session("killed", master="local[2]", conf={"spark.ui.enabled": "false"})
    frame = spark.readStream.format("seglake").options(**options).load(str(folder / "lake"))
    rows = frame.selectExpr("topic", "partition", "offset", "CAST(value AS STRING)")
    writer = rows.writeStream.format("parquet").trigger(**trigger)
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    writer.start(str(folder / "rows")).awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *json.loads(sys.argv[2]))
