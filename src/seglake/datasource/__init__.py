"""Read a lake by `spark.read.format("seglake")` and `spark.readStream.format("seglake")`.

Schema and options have the names of Spark's Kafka source, so a job needs only another format name
and a `path`. docs/spark.md lists the options. Spark finds the format where Seglake is installed;
`register(spark)` adds it to other sessions. `events_between` returns the events of a window, and
`events_with_keys` the events of many keys.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from seglake.datasource.source import SeglakeDataSource, register

if TYPE_CHECKING:
    from seglake.datasource.frames import events_between, events_with_keys

__all__ = ["SeglakeDataSource", "events_between", "events_with_keys", "register"]


def __getattr__(name: str) -> Any:
    # Every Spark session imports this package, and few sessions need the read side.
    if name in ("events_between", "events_with_keys"):
        return getattr(import_module("seglake.datasource.frames"), name)
    raise AttributeError(f"module 'seglake.datasource' has no attribute {name!r}")
