"""Seekable, Kafka-format event logs on shared storage, written by Spark, catalogued in Delta.

    lake = seglake.open("s3://bucket/lake")
    log = lake.topic("events")
    log.offsets_for_times({0: "2026-11-20T01:00:00Z"})
    log.read_range("2026-11-20T01:00:00Z", "2026-11-20T01:00:10Z")

`open` and its results need no Spark; `ingest` writes a DataFrame with Spark, `run_pipeline` the
files of a pipeline; `errors` has the exceptions. `report` shows what a lake looks like.
`import_logs`, `attach_logs`, `export_logs`, `archive`, `replay_window` and `serve_lake` exchange
records with Kafka's brokers and clients. The others maintain a lake, each as the command of its
name: with `dry_run=True` they only say what they would do. Capital letters begin the types of
results and of arguments. Each name is imported at its first use.

Beside this package, `seglake.config`, `seglake.datasource`, `seglake.airflow` and `seglake.session`
are public, and the jobs in `seglake.jobs`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

# The stub lists the public names, a line `from MODULE import NAME as NAME` for each.
_STUB = __spec__.loader.get_data(f"{__path__[0]}/__init__.pyi").decode()
_MODULES = {
    line.split()[3]: line.split()[1] for line in _STUB.splitlines() if line.startswith("from ")
}
__all__ = sorted(_MODULES)  # noqa: PLE0605  # a list, but not one of literals


def __getattr__(name: str) -> Any:
    if name == "errors":
        return import_module("seglake.errors")
    if name == "__version__":
        return import_module("importlib.metadata").version("seglake")
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'seglake' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
