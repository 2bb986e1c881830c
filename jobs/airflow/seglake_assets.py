"""Start a DAG for each new run of a topic, and a DAG for each hour that is complete.

Copy this file into Airflow's folder of DAGs, and change the constants above the DAGs. The triggerer
needs `pip install 'seglake[airflow]' && seglake warm`, and the credentials of the object store.
"""

from __future__ import annotations

import os
from datetime import timedelta

from airflow.sdk import Asset, AssetWatcher, dag, task

import seglake
from seglake.airflow import SeglakeClosedTrigger, SeglakeRetryPolicy, SeglakeVersionTrigger

ROOT = os.environ.get("SEGLAKE_ROOT", "s3://bucket/lake")
TOPIC = os.environ.get("SEGLAKE_TOPIC", "web")
POLL_SECONDS = float(os.environ.get("SEGLAKE_POLL_SECONDS", "30"))
HOUR_MS, LATENESS_MS = 3_600_000, 300_000  # events are at most five minutes late

new_run = Asset(
    f"seglake_{TOPIC}_run",
    watchers=[
        AssetWatcher(
            name=f"seglake_{TOPIC}_run",
            trigger=SeglakeVersionTrigger(ROOT, TOPIC, poll_seconds=POLL_SECONDS),
        )
    ],
)
closed_hour = Asset(
    f"seglake_{TOPIC}_hour",
    watchers=[
        AssetWatcher(
            name=f"seglake_{TOPIC}_hour",
            trigger=SeglakeClosedTrigger(
                ROOT, TOPIC, window_ms=HOUR_MS, lateness_ms=LATENESS_MS, poll_seconds=POLL_SECONDS
            ),
        )
    ],
)
ARGUMENTS = {
    "retries": 3,
    "retry_delay": timedelta(minutes=1),
    "retry_policy": SeglakeRetryPolicy(),
}


@dag(schedule=[new_run], default_args=ARGUMENTS, tags=["seglake"])
def seglake_on_run():
    """Print the state of every new run."""

    @task
    def tell(triggering_asset_events: dict) -> list[dict]:
        """Print and return the new runs. A run of the DAG may have several events."""
        runs = [event.extra["payload"] for event in triggering_asset_events[new_run]]
        for run in runs:
            print(f"run {run['run_id']} of {run['interval']} is {run['state']}")
        return runs

    tell()


@dag(schedule=[closed_hour], default_args=ARGUMENTS, tags=["seglake"])
def seglake_on_closed_hour():
    """Read each hour when it is complete."""

    @task
    def read(triggering_asset_events: dict) -> dict[str, int]:
        """Count the records of each hour, in the version that the event names."""
        found = {}
        for event in triggering_asset_events[closed_hour]:
            hour = event.extra["payload"]
            log = seglake.open(ROOT, hour["version"]).topic(TOPIC)
            with log.read_range(*hour["interval"], columns=["offset"]) as window:
                found[hour["interval"][0]] = sum(batch.num_rows for batch in window)
        print(found)
        return found

    read()


seglake_on_run()
seglake_on_closed_hour()
