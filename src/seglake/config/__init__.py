"""Define and check the settings of a pipeline. `load` reads them from a TOML file."""

from seglake.config.input import Input
from seglake.config.loading import combined_topic, from_tables, load
from seglake.config.pipeline import Pipeline
from seglake.config.sections import Timestamp
from seglake.config.topic import Topic

__all__ = ["Input", "Pipeline", "Timestamp", "Topic", "combined_topic", "from_tables", "load"]
