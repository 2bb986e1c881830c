"""Jars for tests, fetched once into `.jars/` with the Ivy of pyspark, and Delta's jars for Spark.

They need only pip, Java and a network: no Maven, no compiler. `tests.judges.kafka_jars` has Kafka's
jars.
"""

import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

import pyspark

from seglake.errors import SeglakeError
from seglake.session import find_java

Jar = tuple[str, str, str]  # organisation, name, version
CACHE = Path(__file__).resolve().parents[2] / ".jars"
_SPARK = ".".join(pyspark.__version__.split(".")[:2])
_DELTA = ("io.delta", f"delta-spark_{_SPARK}_2.13", "4.4.0")  # there is one for each Spark
_SHIPPED = (  # Spark has newer versions of these
    "com.fasterxml.jackson.core", "com.github.luben", "org.apache.hadoop",
    "org.apache.logging.log4j", "org.apache.parquet", "org.scala-lang", "org.slf4j",
    "org.xerial.snappy",
)  # fmt: skip


def delta_settings() -> dict[str, str]:
    """Return the settings of a Spark session with Delta. The first call fetches Delta's jars."""
    jars = cached_jars(f"{_DELTA[1]}-{_DELTA[2]}", [_DELTA], excluded=_SHIPPED)
    return {
        "spark.jars": ",".join(map(str, jars)),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "2",  # the default, 50, is for large tables
    }


def cached_jars(
    name: str, jars: Iterable[Jar], alone: Iterable[Jar] = (), excluded: Iterable[str] = ()
) -> list[Path]:
    """Return the paths of jars with their dependencies, and of the jars `alone`.

    They are in the folder `name`, which the first call makes. Dependencies of an `excluded`
    organisation are left out. Raises SeglakeError if the jars cannot be fetched.
    """
    folder = CACHE / name
    if not folder.is_dir():
        CACHE.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE, prefix=".fetching-") as scratch:
            _fetch(_ivy_module(jars, alone, excluded), Path(scratch))
            try:
                (Path(scratch) / "jars").rename(folder)
            except OSError:
                if not folder.is_dir():  # otherwise, another process was faster
                    raise
    return sorted(folder.glob("*.jar"))


def _ivy_module(jars: Iterable[Jar], alone: Iterable[Jar], excluded: Iterable[str]) -> str:
    lines = [
        f'<dependency org="{org}" name="{jar}" rev="{version}" conf="default->default"{more}/>'
        for chosen, more in ((jars, ""), (alone, ' transitive="false"'))
        for org, jar, version in chosen
    ]
    lines += [f'<exclude org="{org}"/>' for org in excluded]
    return (
        '<ivy-module version="2.0"><info organisation="seglake.tests" module="jars"/>'
        f"<dependencies>{''.join(lines)}</dependencies></ivy-module>"
    )


def _fetch(ivy_module: str, scratch: Path) -> None:
    (scratch / "ivy.xml").write_text(ivy_module)
    shipped = Path(pyspark.__file__).parent / "jars" / "*"
    command = [
        str(find_java()), "-cp", str(shipped), "org.apache.ivy.Main", "-warn",
        "-ivy", str(scratch / "ivy.xml"), "-cache", str(scratch / "cache"),
        "-types", "jar", "bundle", "-retrieve", f"{scratch}/jars/[artifact]-[revision].[ext]",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode or not (scratch / "jars").is_dir():
        raise SeglakeError(f"cannot download jars. Output of Ivy:\n{done.stdout}{done.stderr}")
