"""Kafka's own jars and those of Spark's Kafka source, fetched once with the Ivy of pyspark.

They go to `.jars/` under the project root when a test first needs them; `python -m
tests.judges.kafka_jars` does it ahead of time. Java and pip are the only prerequisites: no Maven,
no Kafka distribution, no compiler.
"""

from __future__ import annotations

import os
from pathlib import Path

import pyspark

from seglake.session import fetch_jars

KAFKA_VERSION = "4.2.0"
PROJECT = Path(__file__).resolve().parents[2]
KAFKA = PROJECT / ".jars" / f"kafka-{KAFKA_VERSION}"
CONNECT = PROJECT / ".jars" / f"connect-{KAFKA_VERSION}"
MIRROR = PROJECT / ".jars" / f"mirror-{KAFKA_VERSION}"
SPARK_KAFKA = PROJECT / ".jars" / f"spark-kafka-{pyspark.__version__}"

# kafka-tools comes alone: what it needs beyond kafka_2.13's own dependencies serves Connect.
# Kafka 4.2 is built against slf4j 1.7 and its POMs name no backend.
_KAFKA_MODULE = f"""<ivy-module version="2.0">
  <info organisation="seglake.tests" module="kafka-judge"/>
  <dependencies>
    <dependency org="org.apache.kafka" name="kafka_2.13" rev="{KAFKA_VERSION}"
                conf="default->default"/>
    <dependency org="org.apache.kafka" name="kafka-tools" rev="{KAFKA_VERSION}"
                conf="default->default" transitive="false"/>
    <dependency org="org.slf4j" name="slf4j-simple" rev="1.7.36" conf="default->default"/>
  </dependencies>
</ivy-module>
"""

_CONNECT_MODULE = f"""<ivy-module version="2.0">
  <info organisation="seglake.tests" module="connect-judge"/>
  <dependencies>
    <dependency org="org.apache.kafka" name="connect-runtime" rev="{KAFKA_VERSION}"
                conf="default->default"/>
    <dependency org="org.apache.kafka" name="connect-file" rev="{KAFKA_VERSION}"
                conf="default->default"/>
    <dependency org="org.slf4j" name="slf4j-simple" rev="1.7.36" conf="default->default"/>
  </dependencies>
</ivy-module>
"""

_MIRROR_MODULE = f"""<ivy-module version="2.0">
  <info organisation="seglake.tests" module="mirror-judge"/>
  <dependencies>
    <dependency org="org.apache.kafka" name="connect-runtime" rev="{KAFKA_VERSION}"
                conf="default->default"/>
    <dependency org="org.apache.kafka" name="connect-mirror" rev="{KAFKA_VERSION}"
                conf="default->default"/>
    <dependency org="org.slf4j" name="slf4j-simple" rev="1.7.36" conf="default->default"/>
  </dependencies>
</ivy-module>
"""

# Spark's Kafka source, and the libraries that it needs and pyspark does not ship. Later patches of
# the source are not released, nor is a token provider after 4.0.0; these two work.
_SPARK_MODULE = f"""<ivy-module version="2.0">
  <info organisation="seglake.tests" module="spark-kafka"/>
  <dependencies defaultconf="default->default">
    <dependency org="org.apache.spark" name="spark-sql-kafka-0-10_2.13"
                rev="{pyspark.__version__.rpartition(".")[0]}.0" transitive="false"/>
    <dependency org="org.apache.spark" name="spark-token-provider-kafka-0-10_2.13" rev="4.0.0"
                transitive="false"/>
    <dependency org="org.apache.kafka" name="kafka-clients" rev="3.9.1" transitive="false"/>
    <dependency org="org.apache.commons" name="commons-pool2" rev="2.12.0" transitive="false"/>
  </dependencies>
</ivy-module>
"""

_CLIENT_MODULE = """<ivy-module version="2.0">
  <info organisation="seglake.tests" module="kafka-client"/>
  <dependencies>
    <dependency org="org.apache.kafka" name="kafka-clients" rev="{version}"
                conf="default->default"/>
    <dependency org="org.slf4j" name="slf4j-simple" rev="1.7.36" conf="default->default"/>
  </dependencies>
</ivy-module>
"""


def kafka_jars() -> list[Path]:
    """Kafka's jars with their dependencies; SeglakeError if they cannot be fetched."""
    return _cached(_KAFKA_MODULE, KAFKA)


def spark_kafka_jars() -> list[Path]:
    """The four jars of Spark's Kafka source; SeglakeError if they cannot be fetched."""
    return _cached(_SPARK_MODULE, SPARK_KAFKA)


def client_jars(version: str) -> list[Path]:
    """The jars of a version of Kafka's Java client; SeglakeError as `kafka_jars`."""
    folder = PROJECT / ".jars" / f"kafka-clients-{version}"
    return _cached(_CLIENT_MODULE.format(version=version), folder)


def connect_jars() -> list[Path]:
    """The jars of a Connect worker with the connector for files; SeglakeError as `kafka_jars`."""
    return _cached(_CONNECT_MODULE, CONNECT)


def mirror_jars() -> list[Path]:
    """The jars of MirrorMaker 2; SeglakeError as `kafka_jars`."""
    return _cached(_MIRROR_MODULE, MIRROR)


def pyspark_jar(prefix: str) -> Path:
    """The jar in pyspark's own `jars` folder whose name is `<prefix>-<version>.jar`."""
    (found,) = Path(pyspark.__file__).parent.glob(f"jars/{prefix}-[0-9]*.jar")
    return found


def class_path(*more: Path) -> str:
    """A Java class path of Kafka's jars followed by `more`."""
    return os.pathsep.join(str(jar) for jar in [*kafka_jars(), *more])


def _cached(ivy_module: str, folder: Path) -> list[Path]:
    if not folder.is_dir():
        fetch_jars(ivy_module, folder)
    return sorted(folder.glob("*.jar"))


if __name__ == "__main__":
    print(f"{len(kafka_jars())} jars in {KAFKA}, {len(spark_kafka_jars())} in {SPARK_KAFKA}")
