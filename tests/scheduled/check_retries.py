"""What Airflow's own operators and Seglake's errors make of a retry. Airflow's Python runs it."""

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import RetryAction

from seglake.airflow import SeglakeRetryPolicy, forget_spark_job
from seglake.catalog.failed_run import FailedRun, write_failed_run
from seglake.errors import ConfigError, InputError, QuarantineLimit, StoreError, VersionExpired
from seglake.layout import new_attempt
from seglake.store import open_store

HOPELESS = {2, 3}


def spark_submit(code: int, folder: Path) -> None:
    """A job that prints another code, and ends with this one."""
    program = folder / "spark-submit"
    program.write_text(f"#!/bin/sh\necho 'Exit code: 2'\necho 'exit code 3'\nexit {code}\n")
    program.chmod(0o755)
    SparkSubmitHook(conn_id="spark_default").submit("job.py")


def bash(code: int, _folder: Path) -> None:
    BashOperator(task_id="t", bash_command=f"exit {code}").execute({"ti": None})


@pytest.mark.parametrize("code", [1, 2, 3, 13, 23, 137])
@pytest.mark.parametrize("run", [spark_submit, bash])
def test_the_exit_code_of_an_operator(
    run: Callable[[int, Path], None], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "local[1]"}')
    with pytest.raises(Exception, match=rf"\b{code}\b") as failed:
        run(code, tmp_path)
    decision = SeglakeRetryPolicy().evaluate(failed.value, 1, 3, None)
    assert (decision.action == RetryAction.FAIL) == (code in HOPELESS)
    assert (f"exit code {code}" in (decision.reason or "")) == (code in HOPELESS)


@pytest.mark.parametrize(
    ("error", "action"),
    [
        (ConfigError("a"), RetryAction.FAIL),
        (InputError("a"), RetryAction.FAIL),
        (QuarantineLimit("a"), RetryAction.FAIL),
        (VersionExpired("a"), RetryAction.FAIL),
        (StoreError("exit code 2"), RetryAction.DEFAULT),
        (RuntimeError("Driver driver-1 exited with status FAILED"), RetryAction.DEFAULT),
        (RuntimeError("Spark application a failed (phase=Failed exit_code=2 reason=Error)"),
         RetryAction.FAIL),
        (RuntimeError("Cannot execute: spark-submit. Error code is: 0. "
                      "Kubernetes spark exit code is: 3"), RetryAction.FAIL),
        (OSError(2, "No such file"), RetryAction.DEFAULT),
    ],
)  # fmt: skip
def test_an_error_of_a_task(error: Exception, action: RetryAction) -> None:
    assert SeglakeRetryPolicy().evaluate(error, 1, 3, None).action == action


class Task:
    """Of an operator and its task instance, what the policy asks."""

    def __init__(self, began: datetime) -> None:
        self.start_date = began

    def render_template(self, content: str, context: Any) -> str:
        return content.replace("{{ run }}", context["run"])


@pytest.mark.parametrize("code", [1, 2, 3])
@pytest.mark.parametrize("late", [True, False])
def test_the_lake_tells_what_a_cluster_loses(tmp_path: Path, code: int, *, late: bool) -> None:
    """Only of an attempt that failed since this try began."""
    now = datetime.now(UTC)
    key: dict[str, Any] = {
        "topic": "web",
        "pipeline": "web",
        "run_id": "R 1",
        "attempt_id": new_attempt(),
    }
    failed_at_ms = int(now.timestamp() * 1000)
    failed = FailedRun(**key, error="", exit_code=code, failed_at_ms=failed_at_ms)
    write_failed_run(open_store(str(tmp_path)), failed)
    task = Task(now + timedelta(minutes=1 if late else -1))
    context: Any = {"task": task, "ti": task, "run": "1"}
    lost = RuntimeError("Driver driver-20261120 exited with status FAILED")
    policy = SeglakeRetryPolicy(str(tmp_path), "web", "R {{ run }}")
    decision = policy.evaluate(lost, 1, 3, context)
    assert (decision.action == RetryAction.FAIL) == (code in HOPELESS and not late)
    context["run"] = "2"
    assert policy.evaluate(lost, 1, 3, context).action == RetryAction.DEFAULT


def test_a_policy_of_half_a_run_is_refused() -> None:
    with pytest.raises(ConfigError):
        SeglakeRetryPolicy("root", "web")


def test_a_job_is_forgotten_where_there_is_a_store() -> None:
    forgotten: list[str] = []

    class Store:
        def delete(self, key: str) -> None:
            forgotten.append(key)

    context: Any = {"task_state_store": Store()}
    forget_spark_job(context, None)
    forget_spark_job({}, None)
    assert forgotten == [SparkSubmitOperator.external_id_key]
