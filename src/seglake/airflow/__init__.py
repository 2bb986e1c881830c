"""Triggers and retries for Airflow 3.3 and later.

    SeglakeVersionTrigger    emits an event for each run that is committed, undone or replaced
    SeglakeClosedTrigger     emits an event for each window of time that is complete
    SeglakeRetryPolicy       fails a task without a retry if its settings or input are wrong
    forget_spark_job         makes a cleared task submit its job again

Use Airflow's own operators. `jobs/airflow` has DAGs to copy; `docs/deployment.md` explains them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from seglake.extras import extra

if TYPE_CHECKING:
    from seglake.airflow.retries import SeglakeRetryPolicy, forget_spark_job
    from seglake.airflow.triggers import SeglakeClosedTrigger, SeglakeVersionTrigger

__all__ = [
    "SeglakeClosedTrigger",
    "SeglakeRetryPolicy",
    "SeglakeVersionTrigger",
    "forget_spark_job",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'seglake.airflow' has no attribute {name!r}")
    home = "triggers" if name.endswith("Trigger") else "retries"
    with extra("airflow", "seglake.airflow"):
        return getattr(import_module(f"seglake.airflow.{home}"), name)
