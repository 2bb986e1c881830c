"""Seglake in Airflow 3.3 and later: triggers for asset watchers, and what a failed task does next.

    SeglakeVersionTrigger    an event for each run that is committed, undone or replaced
    SeglakeClosedTrigger     an event for each window of time that is complete
    SeglakeRetryPolicy       a task whose settings or input are wrong fails at once
    forget_spark_job         a cleared task submits its job again

Operators are Airflow's own. `jobs/airflow` has DAGs to copy, `docs/deployment.md` explains them.
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

_MODULES = {
    "SeglakeClosedTrigger": "triggers",
    "SeglakeRetryPolicy": "retries",
    "SeglakeVersionTrigger": "triggers",
    "forget_spark_job": "retries",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'seglake.airflow' has no attribute {name!r}")
    with extra("airflow", "seglake.airflow"):
        module = import_module(f"seglake.airflow.{_MODULES[name]}")
    return getattr(module, name)
