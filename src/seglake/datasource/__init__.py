"""`spark.read.format("seglake")` and `spark.readStream.format("seglake")`.

Schema and options are those of Spark's Kafka source, so a job moves over with another format name
and a `path`; docs/spark.md lists them. Spark finds the format by itself where Seglake is installed;
`register(spark)` is for sessions that do not. `events_between` returns the events of a window, and
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
