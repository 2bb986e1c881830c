"""Spark 3.5: files are ingested and tended, tasks read; the rest is refused with one sentence.

It runs where pyspark is of that version: `python -m tests.matrix --spark 3.5`.
"""

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from seglake.errors import ConfigError
from tests.makers.raw_events import T, write_settings

pytestmark = pytest.mark.spark
IN_TASKS = """
import sys
from pyspark.sql import SparkSession
from seglake.errors import ConfigError

spark = SparkSession.builder.master("local[2]").getOrCreate()

root = sys.argv[1]

def counted(starts):
    import seglake
    log = seglake.open(root).topic("web")
    for start in starts:
        yield log.read_range(start, start + 1000).read_all().num_rows

starts = spark.sparkContext.parallelize([{T}, {T} + 5000], 2)
print(starts.mapPartitions(counted).collect())
try:
    from seglake.write.map.frame import MapFrame
    MapFrame(None, "n").read(spark.range(1))
except ConfigError as error:
    print(error)
"""


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=variables)


def ingested(folder: Path, name: str, *how: str) -> Path:
    """A lake of that name with 20,000 records."""
    lines = (json.dumps({"ts": T + n, "user": f"u{n % 9}"}) for n in range(20_000))
    (folder / "in.jsonl").write_text("\n".join(lines))
    root, two = folder / name, {"partitions": 2}
    file = write_settings(folder / f"{name}.toml", root, folder / "in.jsonl", "web", topic=two)
    done = run("-m", "seglake", "ingest", "--conf-file", file, "--run-id", "1", "--json", *how)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["records"] == 20_000
    return root


def files(root: Path) -> list[bytes]:
    """The bytes of all segments and index files."""
    found = sorted((root / "topics").rglob("*"), key=lambda path: (path.parts[-3], path.name))
    return [path.read_bytes() for path in found if path.is_file()]


def test_files_become_the_same_bytes_and_tasks_read(tmp_path: Path) -> None:
    root = ingested(tmp_path, "spark")
    assert files(root) == files(ingested(tmp_path, "local", "--local"))
    done = run("-m", "seglake.jobs.reindex", root, "web", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["segments"] == 2
    (tmp_path / "tasks.py").write_text(IN_TASKS.replace("{T}", str(T)))
    done = run(tmp_path / "tasks.py", root)
    assert done.returncode == 0, done.stderr
    counts, refusal = done.stdout.splitlines()
    assert counts == "[1000, 1000]"
    assert refusal.startswith("the ingest of a DataFrame needs Spark 4.0 or newer")


def test_what_needs_a_newer_spark_says_so() -> None:
    with pytest.raises(ConfigError, match=r"format seglake needs Spark 4\.0 or newer"):
        import_module("seglake.datasource")
