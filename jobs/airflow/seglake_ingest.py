"""An hour of events for each data interval: ingest, ask the catalog, read what is complete.

Copy this file into Airflow's folder of DAGs and change what stands above the DAG. Airflow's workers
need `pip install 'seglake[airflow]' && seglake warm` and a spark-submit that reaches your Spark;
docs/deployment.md tells what retry, clear and backfill do.
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
LATENESS = timedelta(minutes=5)  # no event comes later than this

# Made of the interval only: a retry, a backfill and a manual run name the same run.
RUN_ID = "{{ data_interval_start | ts }}/{{ data_interval_end | ts }}"
SOURCE = EVENTS + "/{{ data_interval_start.strftime('%Y-%m-%d/%H') }}"

RETRY_DELAY = timedelta(seconds=float(os.environ.get("SEGLAKE_RETRY_SECONDS", "60")))
RETRIES = {"retries": 3, "retry_delay": RETRY_DELAY, "retry_exponential_backoff": True}


@dag(
    schedule=CronDataIntervalTimetable("0 * * * *", timezone="UTC"),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,  # a backfill ingests what lies behind
    max_active_runs=4,  # they may commit at once: each run gets its own offsets
    default_args={**RETRIES, "retry_policy": SeglakeRetryPolicy()},
    tags=["seglake"],
)
def seglake_ingest():
    """Ingest an hour, then read the hour that it completed."""
    ingest = SparkSubmitOperator(
        task_id="ingest",
        application=f"{JOBS}/ingest.py",
        name=f"seglake {TOPIC} {RUN_ID}",
        application_args=[
            "--conf-file", CONF_FILE, "--root", ROOT, "--source", SOURCE, "--run-id", RUN_ID,
            "--interval-start", "{{ data_interval_start | ts }}",
            "--interval-end", "{{ data_interval_end | ts }}",
            "--replace",  # nothing, unless the run is committed and its files or settings changed
            "--on-changed-source", "fail",  # a changed file of another run; exit code 6
        ],
        retry_policy=SeglakeRetryPolicy(ROOT, TOPIC, RUN_ID),
        post_execute=forget_spark_job,
    )  # fmt: skip

    # The catalog decides, not the exit code, which cluster modes lose.
    run_status = BashOperator(
        task_id="run_status",
        bash_command=f"seglake run-status '{ROOT}' '{TOPIC}' --run-id '{RUN_ID}'",
        do_xcom_push=False,
        trigger_rule="all_done",
        retries=1,  # for a store that does not answer: what the catalog says stays as it is
    )

    @task
    def lookup(data_interval_start: datetime, data_interval_end: datetime) -> int:
        """Count the records of the hour that is complete now: it ended `LATENESS` ago."""
        log = seglake.open(ROOT).topic(TOPIC)
        start, end = data_interval_start - LATENESS, data_interval_end - LATENESS
        if not log.closed(start, end, LATENESS // timedelta(milliseconds=1)):
            raise AirflowSkipException(f"{start} to {end} is not complete: an interval is missing")
        with log.read_range(start, end, columns=["offset"]) as window:
            records = sum(batch.num_rows for batch in window)
        print(f"{records} records from {start} to {end} in version {log.version}")
        return records

    ingest >> run_status >> lookup()


seglake_ingest()
