"""Spark looks for modules named `pyspark_*` and registers the `DefaultSource` of each."""

from seglake.datasource.source import SeglakeDataSource as DefaultSource

__all__ = ["DefaultSource"]
