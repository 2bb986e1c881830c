"""A DAG of the tests: an ingest in cluster mode, which SparkSubmitOperator's `durable` follows.

Spark refuses Python programs in a standalone cluster's cluster mode, so Spark's own runner of them
is what is submitted.
"""

import os
from datetime import UTC, datetime, timedelta

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import CronDataIntervalTimetable, dag

from seglake.airflow import SeglakeRetryPolicy, forget_spark_job

ROOT, TOPIC = os.environ["SEGLAKE_ROOT"], os.environ["SEGLAKE_TOPIC"]
RUN_ID = "{{ data_interval_start | ts }}/{{ data_interval_end | ts }}"
SOURCE = os.environ["SEGLAKE_EVENTS"] + "/{{ data_interval_start.strftime('%Y-%m-%d/%H') }}"


@dag(
    schedule=CronDataIntervalTimetable("0 * * * *", timezone="UTC"),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    end_date=datetime(2026, 11, 21, tzinfo=UTC),  # the tests start each run
    catchup=False,
)
def durable():
    """Ingest an hour."""
    SparkSubmitOperator(
        task_id="ingest",
        deploy_mode="cluster",
        java_class="org.apache.spark.deploy.PythonRunner",
        application=os.environ["SEGLAKE_CORE_JAR"],
        conf={"spark.cores.max": "1"},
        driver_memory="600m",
        executor_memory="600m",
        application_args=[
            os.environ["SEGLAKE_JOBS"] + "/ingest.py", "",
            "--conf-file", os.environ["SEGLAKE_CONF_FILE"], "--root", ROOT, "--source", SOURCE,
            "--run-id", RUN_ID,
            "--interval-start", "{{ data_interval_start | ts }}",
            "--interval-end", "{{ data_interval_end | ts }}",
            "--replace",
        ],
        retries=2,
        retry_delay=timedelta(seconds=1),
        retry_policy=SeglakeRetryPolicy(ROOT, TOPIC, RUN_ID),
        post_execute=forget_spark_job,
    )  # fmt: skip


durable()
