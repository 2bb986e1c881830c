"""One Spark session for all tests that need one: a process can hold a single JVM."""

from collections.abc import Iterator

import pyspark
import pytest
from pyspark.sql import SparkSession

from seglake.session import spark_session
from tests.harness.jars import delta_settings

# what Spark 3.5 does, which `python -m tests.matrix --spark 3.5` tries
collect_ignore = ["test_old_spark.py"] if pyspark.__version__ >= "4" else []


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Delta, two cores, and three attempts for each task: a plain local[2] never tries again."""
    conf = {
        **delta_settings(),
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        # a VACUUM of Delta lists files in so many tasks: by default in 10,000
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
    }
    session = spark_session("seglake-tests", master="local[2,3]", conf=conf)
    yield session
    session.stop()
