"""Seekable, Kafka-format event logs on shared storage, written by Spark, catalogued in Delta.

    lake = seglake.open("s3://bucket/lake")
    log = lake.topic("events")
    log.offsets_for_times({0: "2026-11-20T01:00:00Z"})
    log.read_range("2026-11-20T01:00:00Z", "2026-11-20T01:00:10Z")

`open` and its results need no Spark; `ingest` writes a DataFrame with Spark; `errors` has the
exceptions. Each is imported at its first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seglake import errors
    from seglake.read.lake import open  # noqa: A004  # users write seglake.open
    from seglake.write.api import ingest

__all__ = ["errors", "ingest", "open"]


def __getattr__(name: str) -> Any:
    match name:
        case "open":
            return import_module("seglake.read.lake").open
        case "ingest":
            return import_module("seglake.write.api").ingest
        case "errors":
            return import_module("seglake.errors")
    raise AttributeError(f"module 'seglake' has no attribute {name!r}")
