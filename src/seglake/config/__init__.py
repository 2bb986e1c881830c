"""The settings of a pipeline: `load` a TOML file, get a checked `Pipeline`."""

from seglake.config.loading import from_tables, load
from seglake.config.reference import reference
from seglake.config.settings import Pipeline
from seglake.config.tables import Input, Timestamp, Topic

__all__ = [
    "Input",
    "Pipeline",
    "Timestamp",
    "Topic",
    "from_tables",
    "load",
    "reference",
]
