"""What a command knows of the job that it is."""

# ruff: noqa: PLC0415  # a command imports its modules when it runs

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Job(NamedTuple):
    """What a command gets as its context's `obj` if it is a job; the program gives it None."""

    name: str

    def session(self) -> SparkSession:
        """The Spark session of spark-submit. Raises ConfigError if there can be none."""
        from seglake.session import spark_session

        return spark_session(f"seglake {self.name}", delta=False)

    def tell(self, step: str) -> None:
        """Log a step of the work."""
        logging.getLogger(f"seglake.{self.name}").info("%s", step)
