"""Kafka's own Java client, of several versions, as a program that Janino compiles in memory."""

import os
from functools import partial

from seglake.errors import SeglakeError
from seglake.session import find_java
from tests.clients.building import HERE
from tests.clients.program import NoToolError, Program
from tests.judges.kafka_jars import client_jars, pyspark_jar

VERSIONS = ("2.8.2", "3.9.2", "4.2.2")
_SHIPPED = ("janino", "commons-compiler", "jackson-core", "jackson-databind", "jackson-annotations")
_OPTIONS = (
    "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)  # fmt: skip


def _command(version: str) -> list[str]:
    try:
        java, jars = find_java(), client_jars(version)
    except SeglakeError as error:
        raise NoToolError(str(error)) from error
    class_path = os.pathsep.join(map(str, [*jars, *map(pyspark_jar, _SHIPPED)]))
    compiler = "org.codehaus.janino.SimpleCompiler"
    source = HERE / "java" / "Program.java"
    return [str(java), *_OPTIONS, "-cp", class_path, compiler, str(source), "Program"]


PROGRAMS = [Program(f"kafka-clients {version}", partial(_command, version)) for version in VERSIONS]
