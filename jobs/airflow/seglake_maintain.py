"""Maintain a lake once a day: expire, compact and merge topics by their settings, then vacuum.

Copy this file into Airflow's folder of DAGs, and change the constants above the DAG.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import dag

from seglake.airflow import SeglakeRetryPolicy, forget_spark_job

ROOT = os.environ.get("SEGLAKE_ROOT", "s3://bucket/lake")
JOBS = os.environ.get("SEGLAKE_JOBS", "/opt/seglake/jobs")  # `seglake jobs` shows where they are


@dag(
    schedule="30 3 * * *",
    start_date=datetime(2026, 11, 20, tzinfo=UTC),
    catchup=False,  # one run does the work of all missed runs
    max_active_runs=1,
    tags=["seglake"],
)
def seglake_maintain():
    """Run `jobs/maintain.py` once a day. Parts that fail are retried."""
    SparkSubmitOperator(
        task_id="maintain",
        application=f"{JOBS}/maintain.py",
        name="seglake maintain",
        application_args=[ROOT],
        retries=2,
        retry_delay=timedelta(minutes=10),
        retry_policy=SeglakeRetryPolicy(),
        post_execute=forget_spark_job,
    )


seglake_maintain()
