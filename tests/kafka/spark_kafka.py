"""The jars of Spark's Kafka source, fetched once with the Ivy that pyspark ships."""

from __future__ import annotations

from pathlib import Path

from seglake.session import fetch_jars
from tests.kafka.jars import CACHE

SPARK_KAFKA = CACHE.parent / "spark-kafka-4.2.0"

# The token provider has no release 4.2.0 on Maven Central, and the source works with this one; what
# else the source depends on is in pyspark already.
_IVY_MODULE = """<ivy-module version="2.0">
  <info organisation="seglake.tests" module="spark-kafka"/>
  <dependencies defaultconf="default->default">
    <dependency org="org.apache.spark" name="spark-sql-kafka-0-10_2.13" rev="4.2.0"
                transitive="false"/>
    <dependency org="org.apache.spark" name="spark-token-provider-kafka-0-10_2.13" rev="4.0.0"
                transitive="false"/>
    <dependency org="org.apache.kafka" name="kafka-clients" rev="3.9.1" transitive="false"/>
    <dependency org="org.apache.commons" name="commons-pool2" rev="2.12.0" transitive="false"/>
  </dependencies>
</ivy-module>
"""


def spark_kafka_jars() -> list[Path]:
    """The four jars, fetched first if they are not cached; SeglakeError if that fails."""
    if not SPARK_KAFKA.is_dir():
        fetch_jars(_IVY_MODULE, SPARK_KAFKA)
    return sorted(SPARK_KAFKA.glob("*.jar"))
