"""`spark.read.format("seglake")` and `spark.readStream.format("seglake")`.

Schema and options are those of Spark's Kafka source, so a job moves over by changing the format's
name and giving a `path`; docs/spark.md lists them. Where Seglake is installed, Spark finds the
format by itself; `register(spark)` is for sessions that do not.
"""

from seglake.datasource.source import SeglakeDataSource, register

__all__ = ["SeglakeDataSource", "register"]
