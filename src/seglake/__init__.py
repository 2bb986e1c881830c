"""Seekable, Kafka-format event logs on shared storage, written by Spark, catalogued in Delta.

    lake = seglake.open("s3://bucket/lake")
    log = lake.topic("events")
    log.offsets_for_times({0: "2026-11-20T01:00:00Z"})
    log.read_range("2026-11-20T01:00:00Z", "2026-11-20T01:00:10Z")

`open` and its results need no Spark; `ingest` writes a DataFrame with Spark; `errors` has the
exceptions. `report` shows what a lake looks like. `import_logs`, `attach_logs` and `export_logs`
exchange logs with Kafka brokers. The others maintain a lake, each as the command of its name. Each
is imported at its first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seglake import errors
    from seglake.broker.attach import attach_logs
    from seglake.broker.export import export_logs
    from seglake.broker.intake import import_logs
    from seglake.maintain.compaction.compact import compact
    from seglake.maintain.erasure.erase import erase
    from seglake.maintain.expiry.delete_records import delete_records
    from seglake.maintain.expiry.retention import retain
    from seglake.maintain.merge import merge
    from seglake.maintain.replace import replace
    from seglake.maintain.schedule import maintain_lake
    from seglake.maintain.topic_settings import alter, describe
    from seglake.maintain.undo import undo
    from seglake.read.lake import open  # noqa: A004  # users write seglake.open
    from seglake.watch.report import report
    from seglake.write.api import ingest

__all__ = [
    "alter",
    "attach_logs",
    "compact",
    "delete_records",
    "describe",
    "erase",
    "errors",
    "export_logs",
    "import_logs",
    "ingest",
    "maintain_lake",
    "merge",
    "open",
    "replace",
    "report",
    "retain",
    "undo",
]

_MODULES = {
    "alter": "seglake.maintain.topic_settings",
    "attach_logs": "seglake.broker.attach",
    "compact": "seglake.maintain.compaction.compact",
    "delete_records": "seglake.maintain.expiry.delete_records",
    "describe": "seglake.maintain.topic_settings",
    "erase": "seglake.maintain.erasure.erase",
    "export_logs": "seglake.broker.export",
    "import_logs": "seglake.broker.intake",
    "ingest": "seglake.write.api",
    "maintain_lake": "seglake.maintain.schedule",
    "merge": "seglake.maintain.merge",
    "open": "seglake.read.lake",
    "replace": "seglake.maintain.replace",
    "report": "seglake.watch.report",
    "retain": "seglake.maintain.expiry.retention",
    "undo": "seglake.maintain.undo",
}


def __getattr__(name: str) -> Any:
    if name == "errors":
        return import_module("seglake.errors")
    if name == "__version__":
        return import_module("importlib.metadata").version("seglake")
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'seglake' has no attribute {name!r}")
