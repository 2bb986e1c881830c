"""Kafka's own jars, fetched once with the Ivy that pyspark ships.

`python -m tests.kafka.jars` fills `.jars/kafka-<version>/` under the project root; the fixtures do
the same when a test first needs the jars. Java and pip are the only prerequisites: no Maven, no
Kafka distribution, no compiler.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path

KAFKA_VERSION = "4.2.0"
PROJECT = Path(__file__).resolve().parents[2]
CACHE = PROJECT / ".jars" / f"kafka-{KAFKA_VERSION}"

# kafka-tools comes alone: what it needs beyond kafka_2.13's own dependencies serves Connect.
# Kafka 4.2 is built against slf4j 1.7 and its POMs name no backend.
_IVY_MODULE = f"""<ivy-module version="2.0">
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


class NoJavaError(RuntimeError):
    """No Java runtime was found."""


class NoJarsError(RuntimeError):
    """The jars are not cached and could not be fetched."""


def java() -> str:
    """The Java launcher: `$JAVA_HOME/bin/java`, else `java` on the path."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if found is None:
        place = f"JAVA_HOME={home}" if home else "the PATH (JAVA_HOME is not set)"
        raise NoJavaError(
            f"no Java launcher in {place}: install a Java runtime, version 17 or newer"
        )
    return found


def pyspark_jar(prefix: str) -> Path:
    """The jar in pyspark's own `jars` folder whose name is `<prefix>-<version>.jar`."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise NoJarsError("pyspark is not installed: its Ivy fetches Kafka's jars")
    found = sorted(Path(spec.origin).parent.glob(f"jars/{prefix}-[0-9]*.jar"))
    if not found:
        raise NoJarsError(f"pyspark ships no {prefix} jar in {Path(spec.origin).parent}/jars")
    return found[-1]


def kafka_jars() -> list[Path]:
    """Kafka's jars with their dependencies, fetched first if they are not cached.

    Raises NoJavaError, or NoJarsError with Ivy's own words.
    """
    if not CACHE.is_dir():
        _fetch()
    return sorted(CACHE.glob("*.jar"))


def class_path(*more: Path) -> str:
    """A Java class path of Kafka's jars followed by `more`."""
    return os.pathsep.join(str(jar) for jar in [*kafka_jars(), *more])


def _fetch() -> None:
    """Resolves into a temporary folder and renames it: the cache is whole or absent."""
    CACHE.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE.parent, prefix="fetching-") as folder:
        _retrieve(Path(folder))
        try:
            (Path(folder) / "jars").rename(CACHE)
        except OSError:
            if not CACHE.is_dir():  # otherwise another process was faster: its copy serves
                raise


def _retrieve(folder: Path) -> None:
    (folder / "ivy.xml").write_text(_IVY_MODULE)
    pattern = f"{folder}/jars/[artifact]-[revision].[ext]"
    command = [java(), "-cp", str(pyspark_jar("ivy")), "org.apache.ivy.Main"]
    command += ["-ivy", str(folder / "ivy.xml"), "-cache", str(folder / "cache"), "-warn"]
    command += ["-retrieve", pattern, "-types", "jar", "bundle"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode or not (folder / f"jars/kafka_2.13-{KAFKA_VERSION}.jar").is_file():
        raise NoJarsError(f"Ivy could not fetch Kafka {KAFKA_VERSION}:\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    print(f"{len(kafka_jars())} jars in {CACHE}")
