"""Cluster mode on a standalone Spark cluster: exit codes are lost, and `durable` finds its job.

`make test-airflow` runs it. The tests share one Airflow and one lake, and go from top to bottom.
"""

import json
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.cluster import SPARK_HOME, standalone_cluster
from tests.harness.scheduler import PROJECT, Airflow, airflow
from tests.scheduled.hourly_events import HourlyEvents, ended, run_id, start

DAG = "durable"
MANY = 400_000  # events that are being ingested when the worker dies
pytestmark = pytest.mark.timeout(3600)  # what is awaited has its own time, and gives the logs


@pytest.fixture(scope="module")
def hourly(tmp_path_factory: pytest.TempPathFactory) -> HourlyEvents:
    return HourlyEvents(tmp_path_factory.mktemp("hourly"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def scheduler(hourly: HourlyEvents, folder: Path) -> Iterator[Airflow]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    rest = f"-Dspark.master.rest.enabled=true -Dspark.master.rest.port={port}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_MASTER_OPTS", rest)
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        with standalone_cluster(folder, workers=2, cores=1, memory="1g") as master:
            extra = {"deploy-mode": "cluster", "rest-port": str(port)}
            connection = {"conn_type": "spark", "host": master, "extra": json.dumps(extra)}
            (jar,) = (SPARK_HOME / "jars").glob("spark-core_*.jar")
            place = {
                **hourly.environment(PROJECT / "jobs"),
                "AIRFLOW__CORE__DAGS_FOLDER": str(Path(__file__).parent / "cluster_dags"),
                "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(connection),
                "SEGLAKE_CORE_JAR": str(jar),
                "SPARK_CONF_DIR": str(folder),  # the operator finds its driver in Spark's log
            }
            with airflow(folder / "home", place, dags=1) as running:
                running.unpause(DAG)
                yield running


def test_a_retry_goes_back_to_its_job(
    scheduler: Airflow, hourly: HourlyEvents, folder: Path
) -> None:
    hourly.write(0, MANY)
    scheduler.backfill(DAG, start(0).isoformat(), start(0).isoformat())

    def begun() -> bool | None:
        return bool(list(hourly.root.glob("attempts/*/*"))) or None

    scheduler.await_("the start of the driver's work", begun)
    scheduler.kill("scheduler")  # and its workers; the driver is the cluster's
    scheduler.start("scheduler")
    run = ended(scheduler, DAG, 0)[0]
    task = scheduler.tasks(DAG, run)["ingest"]
    assert (task["state"], task["try_number"]) == ("success", 2)
    told = scheduler.log(DAG, run, "ingest", 2)
    assert "Reconnecting to existing job" in told or "already completed successfully" in told
    assert len(list(folder.glob("worker-*/driver-*"))) == 1
    assert hourly.runs() == {run_id(0): MANY}


def test_a_clear_submits_again(scheduler: Airflow, hourly: HourlyEvents, folder: Path) -> None:
    """Though the job of the first time succeeded."""
    run = ended(scheduler, DAG, 0)[0]
    hourly.write(0, 200)
    scheduler.clear(DAG, run)
    scheduler.await_(
        "another driver", lambda: len(list(folder.glob("worker-*/driver-*"))) == 2 or None
    )
    ended(scheduler, DAG, 0)
    assert hourly.runs() == {run_id(0): 200}
    assert hourly.records(0) == 200


def test_bad_input_fails_without_retries(scheduler: Airflow, hourly: HourlyEvents) -> None:
    """The cluster says FAILED and no more: the lake knows the exit code."""
    scheduler.backfill(DAG, start(1).isoformat(), start(1).isoformat())
    run = ended(scheduler, DAG, 1)[1]
    task = scheduler.tasks(DAG, run)["ingest"]
    assert (task["state"], task["try_number"]) == ("failed", 1)
    assert "exit code 2" in scheduler.log(DAG, run, "ingest")
