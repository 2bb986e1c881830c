"""Seekable, Kafka-format event logs on shared storage, written by Spark, catalogued in Delta.

    lake = seglake.open("s3://bucket/lake")
    log = lake.topic("events")
    log.offsets_for_times({0: "2026-11-20T01:00:00Z"})
    log.read_range("2026-11-20T01:00:00Z", "2026-11-20T01:00:10Z")

`open` and its results need no Spark. `run_pipeline` ingests the files of a pipeline, and `ingest`
ingests a DataFrame with Spark. `errors` has the exceptions, and `report` returns figures and alerts
of a lake. `import_logs`, `attach_logs`, `export_logs`, `replay_window` and `serve_lake`
exchange records with Kafka's brokers and clients. The other functions maintain a lake, like the
commands with their names. With `dry_run=True` they change nothing, and report what they would
change. Names with a capital letter are types of results and arguments. A name is imported when it
is first used.

These modules are public, too: `seglake.config`, `seglake.datasource`, `seglake.airflow`,
`seglake.session`, and the jobs in `seglake.jobs`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

# The stub has a line `from MODULE import NAME as NAME` for each public name.
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
