"""Kafka's own jars and those of Spark's Kafka source, fetched once with the Ivy of pyspark.

They are fetched when a test first needs them, or by `make tools`. No Kafka distribution is needed.
"""

import os
from pathlib import Path

import pyspark

from tests.harness.jars import Jar, cached_jars

KAFKA_VERSION = "4.2.0"
_SLF4J = ("org.slf4j", "slf4j-simple", "1.7.36")  # Kafka's POMs name no backend


def _kafka(name: str, version: str = KAFKA_VERSION) -> Jar:
    return ("org.apache.kafka", name, version)


def kafka_jars() -> list[Path]:
    """Kafka's jars with their dependencies; SeglakeError if they cannot be fetched."""
    # kafka-tools comes alone: what it needs beyond kafka_2.13's own dependencies serves Connect.
    tools = [_kafka("kafka-tools")]
    return cached_jars(f"kafka-{KAFKA_VERSION}", [_kafka("kafka_2.13"), _SLF4J], tools)


def spark_kafka_jars() -> list[Path]:
    """The four jars of Spark's Kafka source; SeglakeError if they cannot be fetched."""
    # Later patches of the source are not released, nor is a token provider after 4.0.0.
    spark = "org.apache.spark"
    source = f"{pyspark.__version__.rpartition('.')[0]}.0"
    alone = [
        (spark, "spark-sql-kafka-0-10_2.13", source),
        (spark, "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
        _kafka("kafka-clients", "3.9.1"),
        ("org.apache.commons", "commons-pool2", "2.12.0"),
    ]
    return cached_jars(f"spark-kafka-{pyspark.__version__}", [], alone)


def client_jars(version: str) -> list[Path]:
    """The jars of a version of Kafka's Java client; SeglakeError as `kafka_jars`."""
    return cached_jars(f"kafka-clients-{version}", [_kafka("kafka-clients", version), _SLF4J])


def connect_jars() -> list[Path]:
    """The jars of a Connect worker with the connector for files; SeglakeError as `kafka_jars`."""
    worker, files = _kafka("connect-runtime"), _kafka("connect-file")
    return cached_jars(f"connect-{KAFKA_VERSION}", [worker, files, _SLF4J])


def mirror_jars() -> list[Path]:
    """The jars of MirrorMaker 2; SeglakeError as `kafka_jars`."""
    worker, mirror = _kafka("connect-runtime"), _kafka("connect-mirror")
    return cached_jars(f"mirror-{KAFKA_VERSION}", [worker, mirror, _SLF4J])


def pyspark_jar(prefix: str) -> Path:
    """The jar in pyspark's own `jars` folder whose name is `<prefix>-<version>.jar`."""
    (found,) = Path(pyspark.__file__).parent.glob(f"jars/{prefix}-[0-9]*.jar")
    return found


def class_path(*more: Path) -> str:
    """A Java class path of Kafka's jars followed by `more`."""
    return os.pathsep.join(str(jar) for jar in [*kafka_jars(), *more])
