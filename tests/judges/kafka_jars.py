"""Kafka's own jars and those of Spark's Kafka source, fetched once with the Ivy of pyspark.

They go to `.jars/` under the project root when a test first needs them; `python -m
tests.judges.kafka_jars` does it ahead of time. Java and pip are the only prerequisites: no Maven,
no Kafka distribution, no compiler.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import pyspark

from seglake.session import fetch_jars

KAFKA_VERSION = "4.2.0"
PROJECT = Path(__file__).resolve().parents[2]
KAFKA = PROJECT / ".jars" / f"kafka-{KAFKA_VERSION}"
CONNECT = PROJECT / ".jars" / f"connect-{KAFKA_VERSION}"
MIRROR = PROJECT / ".jars" / f"mirror-{KAFKA_VERSION}"
SPARK_KAFKA = PROJECT / ".jars" / f"spark-kafka-{pyspark.__version__}"

_SLF4J = ("org.slf4j", "slf4j-simple", "1.7.36")  # Kafka's POMs name no backend


def _module(name: str, *jars: tuple[str, ...], alone: Sequence[tuple[str, ...]] = ()) -> str:
    """An Ivy module of jars (organisation, name, version) with their dependencies, or alone."""
    lines = [
        f'<dependency org="{org}" name="{jar}" rev="{version}" conf="default->default"{more}/>'
        for chosen, more in ((jars, ""), (alone, ' transitive="false"'))
        for org, jar, version in chosen
    ]
    return (
        f'<ivy-module version="2.0"><info organisation="seglake.tests" module="{name}"/>'
        f"<dependencies>{''.join(lines)}</dependencies></ivy-module>"
    )


def _kafka(name: str, version: str = KAFKA_VERSION) -> tuple[str, ...]:
    return ("org.apache.kafka", name, version)


def kafka_jars() -> list[Path]:
    """Kafka's jars with their dependencies; SeglakeError if they cannot be fetched."""
    # kafka-tools comes alone: what it needs beyond kafka_2.13's own dependencies serves Connect.
    tools = [_kafka("kafka-tools")]
    return _cached(_module("kafka-judge", _kafka("kafka_2.13"), _SLF4J, alone=tools), KAFKA)


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
    return _cached(_module("spark-kafka", alone=alone), SPARK_KAFKA)


def client_jars(version: str) -> list[Path]:
    """The jars of a version of Kafka's Java client; SeglakeError as `kafka_jars`."""
    folder = PROJECT / ".jars" / f"kafka-clients-{version}"
    return _cached(_module("kafka-client", _kafka("kafka-clients", version), _SLF4J), folder)


def connect_jars() -> list[Path]:
    """The jars of a Connect worker with the connector for files; SeglakeError as `kafka_jars`."""
    worker, files = _kafka("connect-runtime"), _kafka("connect-file")
    return _cached(_module("connect-judge", worker, files, _SLF4J), CONNECT)


def mirror_jars() -> list[Path]:
    """The jars of MirrorMaker 2; SeglakeError as `kafka_jars`."""
    worker, mirror = _kafka("connect-runtime"), _kafka("connect-mirror")
    return _cached(_module("mirror-judge", worker, mirror, _SLF4J), MIRROR)


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
