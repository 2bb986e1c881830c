"""The DAGs in a real Airflow, in short: one interval, and what Airflow's own classes make of ours.

`make test-airflow` also runs long_scheduler.py: a whole Airflow with retries, clears and backfills.
"""

from pathlib import Path

import pytest

from tests.harness.scheduler import PROJECT, NoAirflowError, environment, run_inside
from tests.scheduled.hourly_events import HourlyEvents, run_id, start

JOBS = PROJECT / "jobs"


@pytest.fixture(scope="session", autouse=True)
def _airflow() -> Path:
    try:
        return environment()
    except NoAirflowError as error:
        pytest.skip(f"Airflow cannot be installed: {error}")


@pytest.mark.long
def test_triggers_and_retries_in_airflows_python(tmp_path: Path) -> None:
    """Each `check_*.py` beside this file."""
    done = run_inside(tmp_path / "home", {}, "python", "-m", "pytest", "-q", "-c", "/dev/null",
        "--rootdir", str(PROJECT), "--noconftest", "-p", "no:cacheprovider",
        "-o", "python_files=check_*.py", str(Path(__file__).parent))  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:]
    assert " passed" in done.stdout


@pytest.mark.long
def test_an_interval(tmp_path: Path) -> None:
    """Ingested by a real spark-submit, found by `seglake run-status`, read where it is closed."""
    hourly = HourlyEvents(tmp_path)
    for hour in (0, 1):
        hourly.write(hour)
    where = hourly.environment(JOBS)
    done = run_inside(
        tmp_path / "home", where, "airflow", "dags", "test", "seglake_ingest", start(1).isoformat()
    )
    assert done.returncode == 0, done.stdout[-6000:]
    assert hourly.runs() == {run_id(0): 100}
    assert hourly.records(0) == 100
    assert hourly.log().closed(start(0), start(1))
    assert "version 1 has 100 records, 0 rejected" in done.stdout
    assert "committed" in done.stdout
    assert "is not complete yet" in done.stdout  # of the hour before, the last five minutes
