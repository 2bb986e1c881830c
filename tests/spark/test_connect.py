"""Reads and ingests through a session of Spark Connect, as docs/spark.md#spark-connect tells."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyspark
import pytest

from seglake.config import load
from seglake.engine import LocalEngine
from seglake.write.driver.run import DeclaredRun, ingest_files
from tests.harness.python_environment import NoEnvironmentError, python_with
from tests.makers.lakes import Event, LakeMaker
from tests.makers.raw_events import write_settings

T = 1795136400000  # 2026-11-20T01:00:00Z
PACKAGES = ("grpcio==1.85.3", "grpcio-status==1.85.3")  # what the tests' environment lacks for it

READS = """
import json, sys
sys.path.append(sys.argv[1])

from pyspark.sql import SparkSession
import seglake
from seglake.datasource import events_between, register
from seglake.config import load
from seglake.engine import SparkEngine
from seglake.errors import InputError
from seglake.write.driver.run import DeclaredRun, ingest_files

root, start, end = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
conf = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1", "spark.sql.session.timeZone": "UTC"}
spark = SparkSession.builder.remote("local[1]").config(map=conf).getOrCreate()
register(spark)
log = seglake.open(root).topic("events")


def rows(frame):
    some = frame.selectExpr("partition", "offset", "unix_millis(timestamp)", "string(value)")
    return sorted([*row] for row in some.collect())


found = {"kind": type(spark).__module__}
batch = spark.read.format("seglake").option("subscribe", "events")
found["all"] = rows(batch.load(root))
window = batch.option("startTime", str(start)).option("endTime", str(end))
found["window"] = rows(window.load(root))
found["driver"] = rows(events_between(spark, log, start, end))
found["tasks"] = rows(events_between(spark, log, start, end, driver_bytes=0))

stream = spark.readStream.format("seglake").option("subscribe", "events")
stream = stream.option("startingOffsets", "earliest").load(root)
sink = stream.writeStream.format("memory").queryName("seen").trigger(availableNow=True)
sink.start().awaitTermination()
found["stream"] = rows(spark.table("seen"))

files, broken, frame = (load(file) for file in sys.argv[5:])
engine, run = SparkEngine(spark), DeclaredRun("1")
found["cores"] = engine.cores
found["files"] = ingest_files(engine, files, run).summary
columns = "number int", "ts long", "user string"
made = spark.createDataFrame([(n, start + n, f"u{n % 3}") for n in range(60)], ", ".join(columns))
found["frame"] = seglake.ingest(made, frame, run_id="1").summary
try:
    ingest_files(engine, broken, run)
except InputError as error:
    found["error"] = str(error)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def packages() -> Path:
    """The folder of the packages that a client of Spark Connect needs."""
    try:
        python = python_with(PACKAGES)
    except NoEnvironmentError as error:
        pytest.skip(f"no client of Spark Connect: {error}")
    (found,) = python.parents[1].glob("lib/python*/site-packages")
    return found


@pytest.mark.rest
@pytest.mark.skipif(pyspark.__version__ < "4.2", reason="tried with Spark 4.2")
def test_a_session_of_spark_connect_reads_and_ingests_as_others_do(
    tmp_path: Path, packages: Path
) -> None:
    maker = LakeMaker(tmp_path / "lake", partitions=2)
    rows = [Event(T + 100 * n, b"k%d" % (n % 7), b"v%d" % n) for n in range(300)]
    maker.run({0: rows, 1: rows[:120]})
    start, end = T + 5_000, T + 20_000
    pipelines = _pipelines(tmp_path)
    found = _run(tmp_path, packages, maker.root, start, end, *pipelines)
    every: list[list[Any]] = [
        [row.partition, row.offset, row.timestamp, (row.value or b"").decode()]
        for row in maker.records()
    ]
    within = [row for row in every if start <= row[2] < end]
    assert len(within) == 150 + 70
    assert found["kind"] == "pyspark.sql.connect.session"
    assert found["all"] == found["stream"] == every
    for way in ("window", "driver", "tasks"):
        assert found[way] == within, way
    assert (found["cores"], found["files"]) == (1, "600 records, 1 rejected")
    here = load(pipelines[0], {"pipeline.root": str(tmp_path / "here")})
    ingest_files(LocalEngine(), here, DeclaredRun("1"))
    assert _bytes_of(tmp_path / "files") == _bytes_of(tmp_path / "here")
    assert found["frame"] == "60 records, 0 rejected"
    assert len(_bytes_of(tmp_path / "frame")) >= 4
    assert "x.jsonl.gz has damaged or incomplete gzip data" in found["error"]


def _pipelines(folder: Path) -> list[Path]:
    """Pipelines of good files, of a damaged one, and of a DataFrame, each with a lake."""
    for name in ("good", "bad"):
        (folder / name).mkdir()
    for n in range(3):
        lines = "".join(f'{{"ts":{T + 1000 * n + i},"user":"u{i % 5}"}}\n' for i in range(200))
        (folder / "good" / f"{n}.jsonl").write_text(lines + "broken\n" * (n == 1))
    packed = gzip.compress(b'{"ts":1795136400000}\n' * 90_000)
    (folder / "bad" / "x.jsonl.gz").write_bytes(packed[: len(packed) // 2])
    more: dict[str, Any] = {"key": {"fields": ["user"]}, "topic": {"partitions": 2}}
    inputs: dict[str, dict[str, Any]] = {
        "files": {"paths": [str(folder / "good")]}, "broken": {"paths": [str(folder / "bad")]},
        "frame": {"paths": None, "format": "dataframe", "order_column": "number"},
    }  # fmt: skip
    for name, given in inputs.items():
        settings = {"pipeline": {"max_quarantine_ratio": 0.1}, "input": given, **more}
        write_settings(folder / f"{name}.toml", folder / name, "", **settings)
    return [folder / f"{name}.toml" for name in inputs]


def _bytes_of(root: Path) -> list[tuple[str, bytes]]:
    """The segments and index files of a lake."""
    files = (path for path in (root / "topics").rglob("*") if path.is_file())
    return sorted((f"{path.parent.parent.name}/{path.name}", path.read_bytes()) for path in files)


def _run(folder: Path, *arguments: object) -> dict[str, Any]:
    """What the program found; it has a JVM of its own, which is the server."""
    program = folder / "program.py"
    program.write_text(READS)
    any_port = {"SPARK_TESTING": "true", "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, str(program), *map(str, arguments)],
        capture_output=True, text=True, check=False, cwd=folder, env=os.environ | any_port,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))
