"""The DAGs in a whole Airflow: scheduler, workers, triggerer; killed, cleared, filled back.

`make test-airflow` runs it. The tests share one Airflow and one lake, and go from top to bottom.
"""

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.scheduler import PROJECT, Airflow, airflow
from tests.scheduled.hourly_events import CONF, ENDED, HourlyEvents, ended, run_id, start

DAG = "seglake_ingest"
MANY = 2_000_000  # events whose blobs are there for a second: long enough for a kill
pytestmark = pytest.mark.timeout(3600)  # what is awaited has its own time, and gives the logs


@pytest.fixture(scope="module")
def hourly(tmp_path_factory: pytest.TempPathFactory) -> HourlyEvents:
    events = HourlyEvents(tmp_path_factory.mktemp("hourly"))
    for hour in range(3):
        events.write(hour)
    return events


@pytest.fixture(scope="module")
def scheduler(hourly: HourlyEvents, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Airflow]:
    home = tmp_path_factory.mktemp("airflow") / "home"
    with airflow(home, hourly.environment(PROJECT / "jobs")) as running:
        for dag in ("seglake_on_run", "seglake_on_closed_hour", DAG):
            running.unpause(dag)
        cursors = "SELECT COUNT(*) FROM asset_state_store"
        running.await_("the watchers", lambda: running.database(cursors) == [(2,)] or None)
        yield running


def filled(scheduler: Airflow, first: int, last: int, behavior: str = "none") -> dict[int, str]:
    """A backfill of some hours, from its start to its end: the run of each hour."""
    scheduler.backfill(DAG, start(first).isoformat(), start(last).isoformat(), behavior)
    time.sleep(2)  # runs that are processed again leave their old states
    return ended(scheduler, DAG, *range(first, last + 1))


def again(scheduler: Airflow, run: str, dag: str = DAG) -> str:
    """The state of a run that was started or cleared, when it has ended."""
    path = f"/dags/{dag}/dagRuns/{run.replace('+', '%2B')}"

    def look() -> str | None:
        state: str = scheduler.ask("GET", path)["state"]
        return state if state in ENDED else None

    time.sleep(1)
    return scheduler.await_(f"the end of {run}", look)


def states(scheduler: Airflow, run: str) -> dict[str, tuple[str, int]]:
    """The state of each task, and its tries."""
    tasks = scheduler.tasks(DAG, run)
    return {name: (task["state"], task["try_number"]) for name, task in tasks.items()}


def processes(*words: str) -> list[int]:
    """The processes whose commands have all these words."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = place.read_bytes().decode(errors="replace")
        except OSError:
            continue
        if all(word in command for word in words):
            found.append(int(place.parent.name))
    return found


def test_a_backfill_of_three_intervals(scheduler: Airflow, hourly: HourlyEvents) -> None:
    runs = filled(scheduler, 0, 2)
    assert hourly.runs() == {run_id(hour): 100 for hour in range(3)}
    assert [hourly.records(hour) for hour in range(3)] == [100, 100, 100]
    for run in runs.values():
        assert states(scheduler, run)["ingest"] == ("success", 1)
        assert states(scheduler, run)["run_status"] == ("success", 1)
    told = scheduler.log(DAG, runs[1], "ingest")
    assert f"run {run_id(1)}: commit" in told  # a person finds the steps of the run
    assert "src/seglake/" not in told  # of ours no traceback; Spark's daemon may leave one


def test_the_same_backfill_again_does_nothing(scheduler: Airflow, hourly: HourlyEvents) -> None:
    before = hourly.log().version
    runs = filled(scheduler, 0, 2, "completed")
    assert hourly.log().version == before
    assert "already done" in scheduler.log(DAG, runs[0], "ingest", 2)


def test_new_runs_and_closed_hours_start_dags(scheduler: Airflow) -> None:
    """Of each run and each hour there is one event, and DAGs that saw them all."""

    def told(dag: str, task: str) -> list[Any]:
        values = [
            scheduler.ask(
                "GET",
                f"/dags/{dag}/dagRuns/{run['dag_run_id'].replace('+', '%2B')}"
                f"/taskInstances/{task}/xcomEntries/return_value",
            )["value"]
            for run in scheduler.runs(dag)
            if run["state"] == "success"
        ]
        return [json.loads(value) if isinstance(value, str) else value for value in values]

    def runs() -> list[str] | None:
        found = [event["run_id"] for value in told("seglake_on_run", "tell") for event in value]
        return found if len(found) >= 3 else None

    def hours() -> dict[str, int] | None:
        found = {
            at: n for value in told("seglake_on_closed_hour", "read") for at, n in value.items()
        }
        return found if len(found) >= 2 else None

    seen = scheduler.await_("the events of three runs", runs)
    assert sorted(seen) == [run_id(hour) for hour in range(3)]
    closed = scheduler.await_("the events of two closed hours", hours)
    # the third is not complete at a lateness of five minutes
    assert closed == {f"{start(hour):%Y-%m-%dT%H:%M:%S}.000Z": 100 for hour in (0, 1)}


def test_a_job_that_is_killed_in_the_middle_is_retried(
    scheduler: Airflow, hourly: HourlyEvents
) -> None:
    hourly.write(3, MANY)
    scheduler.backfill(DAG, start(3).isoformat(), start(3).isoformat())

    def midway() -> list[int] | None:
        blobs = list(hourly.root.glob("attempts/*/blobs/*"))
        return processes("jobs/ingest.py", run_id(3)) if blobs else None

    for process in scheduler.await_("the blobs of an attempt", midway, pause_s=0.05):
        os.kill(process, signal.SIGKILL)
    assert run_id(3) not in hourly.runs()
    run = ended(scheduler, DAG, 3)[3]
    assert states(scheduler, run)["ingest"] == ("success", 2)
    assert (hourly.runs()[run_id(3)], hourly.records(3)) == (MANY, MANY)


def test_a_worker_that_is_killed_leaves_one_commit(
    scheduler: Airflow, hourly: HourlyEvents
) -> None:
    """Its spark-submit may go on beside the retry: two attempts at one run."""
    hourly.write(4, MANY)
    scheduler.backfill(DAG, start(4).isoformat(), start(4).isoformat())

    def task() -> int | None:
        for process in processes("SparkSubmit", run_id(4)):
            return int(Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[1])
        return None

    os.kill(scheduler.await_("the task of spark-submit", task), signal.SIGKILL)
    run = ended(scheduler, DAG, 4)[4]
    assert states(scheduler, run)["ingest"] == ("success", 2)
    scheduler.await_("the end of both attempts", lambda: not processes(run_id(4)) or None)
    assert (hourly.runs()[run_id(4)], hourly.records(4)) == (MANY, MANY)
    assert len([each for each in hourly.history() if each.run_id == run_id(4)]) == 1


def test_a_clear_takes_in_what_changed(scheduler: Airflow, hourly: HourlyEvents) -> None:
    """With the same input nothing happens; with other input the run is replaced, in one commit."""
    run = ended(scheduler, DAG, 1)[1]
    before = hourly.log().version
    scheduler.clear(DAG, run)
    again(scheduler, run)
    assert hourly.log().version == before
    hourly.write(1, 150)
    scheduler.clear(DAG, run)
    again(scheduler, run)
    assert {task: state for task, (state, _) in states(scheduler, run).items()} == dict.fromkeys(
        ("ingest", "run_status", "lookup"), "success"
    )
    assert hourly.runs()[run_id(1)] == 150
    assert [hourly.records(hour) for hour in range(3)] == [100, 150, 100]


@pytest.mark.parametrize(
    ("hour", "status", "reason"), [(5, 1, "does not exist"), (6, 3, "were rejected")]
)
def test_bad_input_fails_without_retries(
    scheduler: Airflow, hourly: HourlyEvents, hour: int, status: int, reason: str
) -> None:
    if status == 3:
        hourly.break_(hour)
    before = hourly.runs()
    run = filled(scheduler, hour, hour)[hour]
    assert states(scheduler, run)["ingest"] == ("failed", 1)
    log = scheduler.log(DAG, run, "ingest")
    assert reason in log
    assert "then clear the task" in log
    assert states(scheduler, run)["run_status"][0] == "failed"
    assert hourly.runs() == before
    hourly.write(hour)
    scheduler.clear(DAG, run)  # mended, the same run succeeds
    again(scheduler, run)
    assert hourly.runs()[run_id(hour)] == 100


def test_bad_settings_fail_without_retries(scheduler: Airflow, hourly: HourlyEvents) -> None:
    hourly.write(7)
    hourly.configure(CONF.replace('order = "time"', 'order = "tme"'))
    run = filled(scheduler, 7, 7)[7]
    assert states(scheduler, run)["ingest"] == ("failed", 1)
    assert "tme" in scheduler.log(DAG, run, "ingest")
    hourly.configure()
    scheduler.clear(DAG, run)
    again(scheduler, run)
    assert hourly.runs()[run_id(7)] == 100


def test_storage_trouble_is_retried(scheduler: Airflow, hourly: HourlyEvents) -> None:
    """The first try finds no place for its blobs; the storage is mended before the second."""
    hourly.write(8)
    attempts, aside = hourly.root / "attempts", hourly.root / "aside"
    attempts.rename(aside)
    attempts.write_text("")  # nothing can be written below a file
    scheduler.backfill(DAG, start(8).isoformat(), start(8).isoformat())

    def retried() -> bool | None:
        runs = [
            r
            for r in scheduler.runs(DAG)
            if r["data_interval_start"][:13] == f"{start(8):%Y-%m-%dT%H}"
        ]
        tries = [scheduler.tasks(DAG, run["dag_run_id"])["ingest"] for run in runs]
        return (
            any(task["state"] == "up_for_retry" or task["try_number"] > 1 for task in tries) or None
        )

    scheduler.await_("a retry", retried)
    attempts.unlink()
    aside.rename(attempts)
    run = ended(scheduler, DAG, 8)[8]
    state, tries = states(scheduler, run)["ingest"]
    assert (state, tries > 1) == ("success", True)
    assert hourly.runs()[run_id(8)] == 100


def test_a_triggerer_that_dies_tells_what_it_missed(
    scheduler: Airflow, hourly: HourlyEvents
) -> None:
    """Once each: what was told before is not repeated."""
    time.sleep(25)  # two looks: the cursors are saved
    scheduler.kill("triggerer")
    query = "SELECT COUNT(*) FROM asset_event"
    before = scheduler.database(query)[0][0]
    hourly.write(9)
    filled(scheduler, 9, 9)
    assert scheduler.database(query)[0][0] == before
    scheduler.start("triggerer")

    def events() -> list[Any] | None:
        rows = scheduler.database("SELECT extra FROM asset_event ORDER BY id")
        payloads = [json.loads(row[0])["payload"] for row in rows]
        return payloads if len(payloads) >= before + 2 else None

    told = scheduler.await_("the events of the hour that was missed", events)[before:]
    time.sleep(25)
    rows = scheduler.database(query)
    assert rows[0][0] == before + 2
    assert [event.get("run_id") for event in told if "run_id" in event] == [run_id(9)]


def test_a_run_that_a_person_triggers_names_the_same_run(
    scheduler: Airflow, hourly: HourlyEvents
) -> None:
    """Its interval is the last whole one before its date, which is ingested already."""
    before = hourly.log().version
    asked = {"logical_date": start(3).replace(minute=30).isoformat()}
    run = scheduler.ask("POST", f"/dags/{DAG}/dagRuns", asked)["dag_run_id"]
    again(scheduler, run)
    told = scheduler.log(DAG, run, "ingest")
    assert (f"--run-id {run_id(2)}" in told, "already done" in told) == (True, True)
    assert hourly.log().version == before


def test_the_daily_upkeep(scheduler: Airflow, hourly: HourlyEvents) -> None:
    before = hourly.runs()
    scheduler.unpause("seglake_maintain")
    run = scheduler.ask("POST", "/dags/seglake_maintain/dagRuns", {"logical_date": None})[
        "dag_run_id"
    ]
    assert again(scheduler, run, "seglake_maintain") == "success"
    assert hourly.runs() == before
    assert [hourly.records(hour) for hour in range(3)] == [100, 150, 100]
