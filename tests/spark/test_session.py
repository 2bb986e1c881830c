"""The session: whose settings win, which Java and master it takes, and a job on a real cluster."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from seglake import session
from seglake.engine import SparkEngine
from seglake.errors import ConfigError, SeglakeError
from tests.harness.cluster import standalone_cluster

SPARK_SUBMIT = str(Path(sys.executable).parent / "spark-submit")
CONF = Path(__file__).parents[2] / "conf"

PRINT_SETTINGS = """
import json
from seglake.session import spark_session
spark = spark_session("of-the-program", conf={"spark.sql.session.timeZone": "CET"})
print(json.dumps(dict(spark.sparkContext.getConf().getAll())))
"""

COUNT = """
import sys
from seglake.session import spark_session

spark = spark_session("none", master=sys.argv[1], conf={
    "spark.driver.host": "127.0.0.1", "spark.executor.memory": "512m"})
print(spark.sparkContext.parallelize([0], 1).count())
"""

PRINT_FOLDERS = """
import json, os, sys
import pyarrow as pa
from seglake.session import spark_session

def where(batches):
    rows = sum(batch.num_rows for batch in batches)
    yield pa.RecordBatch.from_pydict({"folder": [os.getcwd()], "rows": [rows]})

spark = spark_session("two-workers", master=sys.argv[1], conf={
    "spark.driver.host": "127.0.0.1", "spark.executor.memory": "512m"})
numbers = spark.range(10, numPartitions=2)
rows = numbers.mapInArrow(where, "folder string, rows long", barrier=True).collect()
print(json.dumps([list(row) for row in rows]))
"""


def printed(command: list[str], program: str, folder: Path, *arguments: str) -> object:
    """The JSON that a program prints in its last line."""
    (folder / "program.py").write_text(program)
    command = [*command, str(folder / "program.py"), *arguments]
    python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | python
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_a_running_session_is_returned_as_it_is(spark: SparkSession) -> None:
    again = session.spark_session("another", conf={"spark.sql.shuffle.partitions": "77"})
    assert again.sparkContext is spark.sparkContext
    assert again.conf.get("spark.sql.shuffle.partitions") == "2"
    assert again.conf.get("spark.sql.adaptive.enabled") == "false"


def test_masters_that_spark_knows_are_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("YARN_CONF_DIR", "/etc/hadoop")
    for master in ("local", "local[2]", "local[*, 4]", "yarn", "k8s://https://127.0.0.1:1"):
        session.require_known(master)
    session.require_known("spark://one:7077,two:7077")


@pytest.mark.parametrize("master", ["lokal", "local[x]", "spark://no-port", "yarn-client", "k8s"])
def test_a_master_that_spark_does_not_know_is_refused(master: str) -> None:
    with pytest.raises(ConfigError, match=r"is not a Spark master. Give local\[\*\], .*--local"):
        session.require_known(master)


def test_yarn_without_the_settings_of_its_cluster_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_HOME", "SPARK_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigError, match=r"HADOOP_CONF_DIR or YARN_CONF_DIR .*--local"):
        session.require_known("yarn")


def test_what_is_no_master_is_told_and_refused(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It takes connections and says nothing, so Spark stops its context after a minute."""
    monkeypatch.setattr(session, "_REGISTERS_S", 0.1)

    def stops(_: object) -> None:
        time.sleep(0.5)
        raise Py4JError("Cannot call methods on a stopped SparkContext.\nThis was it")

    monkeypatch.setattr(session, "_launch", lambda _: SparkConf(loadDefaults=False))
    monkeypatch.setattr("pyspark.sql.SparkSession.Builder.getOrCreate", stops)
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    said = r"Spark does not start on master spark://there:7077: the master did not accept .*--local"
    with pytest.raises(SeglakeError, match=said) as error:
        session._start_session({"spark.master": "spark://there:7077"})
    assert error.value.exit_code == 1
    assert "waiting until Spark's master spark://there:7077" in caplog.text


@pytest.mark.parametrize("version", ["3.4.4", "4.3.0", "4.20.0", "5.0.0"])
def test_another_spark_is_refused(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the package, that of the JVM, and that of a session of one's own."""
    remedy = f"works with Spark 3.5, 4.0, 4.1, 4.2, but this is Spark {version} .*Use pyspark 4.2"
    with monkeypatch.context() as patch:
        patch.setattr("pyspark.__version__", version)
        with pytest.raises(ConfigError, match=remedy):
            session.spark_session("other")
    running: Any = SimpleNamespace(version=version, sparkContext=None)
    monkeypatch.setattr("seglake.session.SparkSession.getActiveSession", lambda: running)
    with pytest.raises(ConfigError, match=remedy):
        session.spark_session("other")
    with pytest.raises(ConfigError, match=remedy):
        SparkEngine(running).map(str, [1])


@pytest.mark.parametrize("version", ["3.5.7", "4.0.1", "4.1.4", "4.2.0"])
def test_sparks_from_3_5_on_are_accepted(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a JVM of the same Spark: another, which SPARK_HOME names, is refused."""
    monkeypatch.setattr("pyspark.__version__", version)
    session.require_version(version)
    for other in {"4.0.0", "4.1.0", "4.2.0"} - {f"{version[:3]}.0"}:
        with pytest.raises(ConfigError, match=f"Spark {other} with pyspark {version}"):
            session.require_version(other)


@pytest.mark.rest
def test_what_spark_submit_was_given_wins(tmp_path: Path) -> None:
    command = [SPARK_SUBMIT, "--master", "local[1]", "--conf", "spark.sql.shuffle.partitions=3"]
    found = printed(command, PRINT_SETTINGS, tmp_path)
    assert isinstance(found, dict)
    assert found["spark.master"] == "local[1]"
    assert found["spark.sql.shuffle.partitions"] == "3"
    assert found["spark.sql.session.timeZone"] == "CET"
    assert found["spark.sql.adaptive.enabled"] == "false"


@pytest.mark.parametrize("master", ["spark://head:7077", "yarn", "local[4]"])
def test_only_a_driver_alone_is_bound_to_its_own_machine(
    monkeypatch: pytest.MonkeyPatch, master: str
) -> None:
    """Executors elsewhere could not reach it, nor have they its Python."""
    given = SparkConf(loadDefaults=False).set("spark.master", master)
    asked = SparkConf(loadDefaults=False)
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setattr(SparkContext, "_ensure_initialized", lambda conf: None)
    monkeypatch.setattr(session, "SparkConf", lambda **options: asked if options else given)
    launched = session._launch(session._settings(None, {}))
    local = master.startswith("local")
    assert launched.get("spark.master") == master
    assert launched.contains("spark.driver.host") == local
    assert launched.contains("spark.driver.bindAddress") == local
    assert ("PYSPARK_PYTHON" in os.environ) == local


@pytest.mark.rest
@pytest.mark.long
def test_a_job_runs_on_both_workers_of_a_cluster(tmp_path: Path) -> None:
    with standalone_cluster(tmp_path) as master:
        found = printed([sys.executable], PRINT_FOLDERS, tmp_path, master)
    assert isinstance(found, list)
    workers = {Path(folder).relative_to(tmp_path).parts[0] for folder, _ in found}
    assert workers == {"worker-0", "worker-1"}
    assert sum(rows for _, rows in found) == 10


@pytest.mark.rest
@pytest.mark.long
def test_a_cluster_without_a_worker_is_told_of(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(COUNT)
    with standalone_cluster(tmp_path, workers=0) as master, (tmp_path / "log").open("wb") as log:
        command = [sys.executable, str(tmp_path / "program.py"), master]
        with subprocess.Popen(command, stderr=log) as waits:
            until = time.monotonic() + 60
            try:
                while b"has not accepted any resources" not in (tmp_path / "log").read_bytes():
                    assert time.monotonic() < until, (tmp_path / "log").read_text()
                    time.sleep(0.2)
            finally:
                waits.kill()


def test_the_properties_file_holds_the_same_settings() -> None:
    lines = (CONF / "spark-defaults.conf").read_text().splitlines()
    pairs = [line.split() for line in lines if line and not line.startswith("#")]
    assert dict(pairs) == session.SETTINGS


def java_home(folder: Path, modules: str) -> Path:
    """A Java whose only gift is to list its modules."""
    launcher = folder / "bin" / "java"
    launcher.parent.mkdir(parents=True)
    launcher.write_text(f"#!/bin/sh\nprintf '{modules}'\n")
    launcher.chmod(0o755)
    return folder


@pytest.mark.parametrize("version", ["17.0.15", "21"])
def test_java_17_and_21_are_accepted(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = java_home(tmp_path, f"java.base@{version}\\njdk.incubator.vector@{version}\\n")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert session.find_java() == home / "bin" / "java"


@pytest.mark.parametrize(
    ("modules", "problem"),
    [
        ("java.base@25.0.3\\njdk.incubator.vector@25.0.3\\n", "is Java 25"),
        ("java.base@11.0.2\\n", "is Java 11"),
        ("java.base@17.0.4\\njava.sql@17.0.4\\n", "jdk.incubator.vector"),
        ("", "older than Java 9"),
    ],
)
def test_another_java_is_refused_with_the_remedy(
    modules: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_home(tmp_path, modules)))
    with pytest.raises(ConfigError, match=f"{problem}.*. Install OpenJDK 17 or 21"):
        session.find_java()


def test_no_java_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="there is no java in JAVA_HOME"):
        session.find_java()
