"""Ingest an hour of events for each data interval, check the run, and read a complete hour.

Copy this file into Airflow's folder of DAGs, and change the constants above the DAG. Airflow's
workers need `pip install 'seglake[airflow]' && seglake warm`, and a spark-submit for your Spark.
docs/deployment.md explains the effect of a retry, a clear and a backfill.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import CronDataIntervalTimetable, dag, task
from airflow.sdk.exceptions import AirflowSkipException

import seglake
from seglake.airflow import SeglakeRetryPolicy, forget_spark_job

ROOT = os.environ.get("SEGLAKE_ROOT", "s3://bucket/lake")
TOPIC = os.environ.get("SEGLAKE_TOPIC", "web")
CONF_FILE = os.environ.get("SEGLAKE_CONF_FILE", "/opt/seglake/web.toml")
JOBS = os.environ.get("SEGLAKE_JOBS", "/opt/seglake/jobs")  # `seglake jobs` shows where they are
EVENTS = os.environ.get("SEGLAKE_EVENTS", "s3://bucket/events")
LATENESS = timedelta(minutes=5)  # events are at most this late

# It contains only the interval, so a retry, a backfill and a manual run have one run id.
RUN_ID = "{{ data_interval_start | ts }}/{{ data_interval_end | ts }}"
SOURCE = EVENTS + "/{{ data_interval_start.strftime('%Y-%m-%d/%H') }}"

RETRY_DELAY = timedelta(seconds=float(os.environ.get("SEGLAKE_RETRY_SECONDS", "60")))
RETRIES = {"retries": 3, "retry_delay": RETRY_DELAY, "retry_exponential_backoff": True}


@dag(
    schedule=CronDataIntervalTimetable("0 * * * *", timezone="UTC"),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,  # a backfill ingests earlier intervals
    max_active_runs=4,  # concurrent runs get separate offsets
    default_args={**RETRIES, "retry_policy": SeglakeRetryPolicy()},
    tags=["seglake"],
)
def seglake_ingest():
    """Ingest an hour, then read the hour that is complete now."""
    ingest = SparkSubmitOperator(
        task_id="ingest",
        application=f"{JOBS}/ingest.py",
        name=f"seglake {TOPIC} {RUN_ID}",
        application_args=[
            "--conf-file", CONF_FILE, "--root", ROOT, "--source", SOURCE, "--run-id", RUN_ID,
            "--interval-start", "{{ data_interval_start | ts }}",
            "--interval-end", "{{ data_interval_end | ts }}",
            "--replace",  # only if the run is committed and its files or settings changed
            "--on-changed-source", "fail",  # exit code 6 if a file of another run changed
        ],
        retry_policy=SeglakeRetryPolicy(ROOT, TOPIC, RUN_ID),
        post_execute=forget_spark_job,
    )  # fmt: skip

    # Read the state from the catalog, because cluster modes lose the exit code.
    run_status = BashOperator(
        task_id="run_status",
        bash_command=f"seglake run-status '{ROOT}' '{TOPIC}' --run-id '{RUN_ID}'",
        do_xcom_push=False,
        trigger_rule="all_done",
        retries=1,  # only storage that does not answer needs a retry
    )

    @task
    def lookup(data_interval_start: datetime, data_interval_end: datetime) -> int:
        """Count the records of the hour that ended `LATENESS` ago, which is complete now."""
        log = seglake.open(ROOT).topic(TOPIC)
        start, end = data_interval_start - LATENESS, data_interval_end - LATENESS
        if not log.closed(start, end, LATENESS // timedelta(milliseconds=1)):
            raise AirflowSkipException(f"the hour from {start} to {end} is not complete yet")
        with log.read_range(start, end, columns=["offset"]) as window:
            records = sum(batch.num_rows for batch in window)
        print(f"{records} records from {start} to {end} in version {log.version}")
        return records

    ingest >> run_status >> lookup()


seglake_ingest()
