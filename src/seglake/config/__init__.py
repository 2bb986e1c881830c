"""The settings of a pipeline: `load` a TOML file, get a checked `Pipeline`."""

from seglake.config.input import Input
from seglake.config.loading import from_tables, load
from seglake.config.pipeline import Pipeline
from seglake.config.reference import reference
from seglake.config.sections import Timestamp, Topic

__all__ = ["Input", "Pipeline", "Timestamp", "Topic", "from_tables", "load", "reference"]
