"""The DAG files as Airflow parses them, often. In Airflow's Python."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG, CronDataIntervalTimetable
from airflow.serialization.serialized_objects import DagSerialization

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
    told = " ".join(map(str, ingest.application_args or []))
    assert "data_interval_start" in told
    assert not any(name in told for name in ("{{ run_id", "logical_date", "{{ ds", "try_number"))
    assert all(task.retries > 0 for task in dag.tasks)


def test_parsing_a_file_reads_no_lake() -> None:
    """Airflow parses DAG files all the time, so they import little of Seglake."""
    program = (
        f"import sys; sys.path.insert(0, {str(FOLDER)!r});"
        "import seglake_ingest, seglake_maintain, seglake_assets;"
        "sys.exit(not {'numba', 'pyarrow', 'obstore', 'deltalake'}.isdisjoint(sys.modules))"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
