"""Decide whether Airflow retries a failed task, and let a cleared task submit its job again."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from airflow.sdk import RetryDecision, RetryPolicy

from seglake.errors import ChangedFiles, ConfigError, OutsideInterval, QuarantineLimit, SeglakeError

if TYPE_CHECKING:
    from airflow.sdk import Context

_JOB_KEY = "spark_job_id"  # SparkSubmitOperator.external_id_key
_CODE = re.compile(r"(?:error|exit)[ _]code(?: is)?[ :=]*(\d+)", re.IGNORECASE)
_HOPELESS = {
    ConfigError.exit_code: "the settings, the input or the arguments are wrong",
    QuarantineLimit.exit_code: "too many rows are rejected",
    OutsideInterval.exit_code: "no record is in the declared interval",
    ChangedFiles.exit_code: "a file changed after it was ingested",
}


class SeglakeRetryPolicy(RetryPolicy):
    """A policy that does not retry a task whose settings or input are wrong.

    Other failures are retried as usual. The policy reads the exit code from a SeglakeError, or from
    the error of SparkSubmitOperator (client mode, Kubernetes) or BashOperator. A resource manager
    such as YARN loses the exit code. If `root`, `topic` and `run_id` are set, the policy then reads
    the code of the last failed attempt from the lake. `run_id` is a template, like in the task.
    """

    def __init__(self, root: str = "", topic: str = "", run_id: str = "") -> None:
        if any((root, topic, run_id)) and not all((root, topic, run_id)):
            raise ConfigError("a retry policy needs root, topic and run_id")
        self._run = root, topic, run_id

    def evaluate(
        self,
        exception: BaseException,
        try_number: int,  # noqa: ARG002  # Airflow's signature
        max_tries: int,  # noqa: ARG002  # Airflow's signature
        context: Context | None = None,
    ) -> RetryDecision:
        """Return a failure for exit codes 2, 3, 5 and 6, otherwise Airflow's default decision."""
        code = _exit_code(exception)
        if code is None and context is not None and all(self._run):
            code = self._stored_code(context)
        if code not in _HOPELESS:
            return RetryDecision.default()
        why = f"exit code {code}: {_HOPELESS[code]}"
        return RetryDecision.fail(f"{why}. Correct the cause, then clear the task")

    def _stored_code(self, context: Context) -> int | None:
        """Return the exit code of an attempt that failed since this try began."""
        from seglake.catalog.failed_run import failed_runs  # noqa: PLC0415  # a DAG is parsed often
        from seglake.store import open_store  # noqa: PLC0415  # see above

        root, topic, template = self._run
        run_id = context["task"].render_template(template, context)
        began_ms = context["ti"].start_date.timestamp() * 1000
        failed = failed_runs(open_store(root), topic, run_id)
        return next((run.exit_code for run in failed if run.failed_at_ms >= began_ms), None)


def _exit_code(exception: BaseException) -> int | None:
    if isinstance(exception, SeglakeError):
        return exception.exit_code
    # The next lines quote the output of the job.
    message = str(exception).partition("\n")[0]
    codes = _CODE.findall(message)
    return int(codes[-1]) if codes else None


def forget_spark_job(context: Context, result: Any = None) -> None:  # noqa: ARG001  # Airflow's
    """Forget the job of a task that succeeded, so that a cleared task submits it again.

    In cluster modes, a durable operator remembers its job, so that a retry finds it. A cleared
    task would also find the old job, and be treated as done. (`[state_store] clear_on_success`
    has the same effect for all tasks.)
    """
    store = context.get("task_state_store")
    if store is not None:
        store.delete(_JOB_KEY)
