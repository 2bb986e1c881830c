"""The DAG files as Airflow parses them, often. In Airflow's Python."""

import subprocess
import sys
from pathlib import Path

import pendulum
import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG, CronDataIntervalTimetable
from airflow.serialization.serialized_objects import DagSerialization
from jinja2 import UndefinedError

FOLDER = Path(__file__).parents[2] / "jobs" / "airflow"


@pytest.fixture(scope="module")
def dags() -> dict[str, DAG]:
    bag = DagBag(FOLDER, bundle_path=FOLDER)
    assert bag.import_errors == {}
    return dict(bag.dags)


def test_every_file_has_its_dags(dags: dict[str, DAG]) -> None:
    names = ["seglake_ingest", "seglake_maintain", "seglake_on_closed_hour", "seglake_on_run"]
    assert sorted(dags) == names
    for dag in dags.values():
        assert DagSerialization.from_dict(DagSerialization.to_dict(dag)).dag_id == dag.dag_id


def test_the_run_of_an_interval(dags: dict[str, DAG]) -> None:
    """Its id, its input and what it declares follow from the interval, and from nothing else."""
    dag = dags["seglake_ingest"]
    assert isinstance(dag.timetable, CronDataIntervalTimetable)
    ingest = dag.get_task("ingest")
    assert isinstance(ingest, SparkSubmitOperator)
    first = pendulum.datetime(2026, 11, 20, 1)
    interval = {"data_interval_start": first, "data_interval_end": first.add(hours=1)}
    told: list[str] = ingest.render_template(ingest.application_args, interval)
    given = dict(zip(told[:-1:2], told[1::2], strict=True))
    start, end = "2026-11-20T01:00:00+00:00", "2026-11-20T02:00:00+00:00"
    assert given["--run-id"] == f"{start}/{end}"
    assert (given["--interval-start"], given["--interval-end"]) == (start, end)
    assert given["--source"].endswith("/2026-11-20/01")
    assert told[-1] == "--replace"
    assert all(task.retries > 0 for task in dag.tasks)
    with pytest.raises(UndefinedError):  # a run without a date has no interval
        ingest.render_template(ingest.application_args, {})


def test_parsing_a_file_reads_no_lake() -> None:
    """Airflow parses DAG files all the time, so they import little of Seglake."""
    program = (
        f"import sys; sys.path.insert(0, {str(FOLDER)!r});"
        "import seglake_ingest, seglake_maintain, seglake_assets;"
        "sys.exit(not {'numba', 'pyarrow', 'obstore', 'deltalake'}.isdisjoint(sys.modules))"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
