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
    from seglake.datasource.between import events_between
    from seglake.datasource.keyed import events_with_keys

__all__ = ["SeglakeDataSource", "events_between", "events_with_keys", "register"]

# every Spark session imports this package, and few need the read side
_MODULES = {
    "events_between": "seglake.datasource.between",
    "events_with_keys": "seglake.datasource.keyed",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'seglake.datasource' has no attribute {name!r}")
