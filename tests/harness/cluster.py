"""A standalone Spark cluster on loopback, from the jars that pip's pyspark brings."""

import os
import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

SPARK_HOME = Path(pyspark.__file__).parent
DEPLOY = "org.apache.spark.deploy"
PATIENCE_S = 300
HOSTS = ("127.0.0.1", "localhost")  # one to us; Spark starts no two copies of a task on one host


@contextmanager
def standalone_cluster(
    folder: Path,
    *,
    workers: int = 2,
    cores: int = 1,
    memory: str = "1g",
    environment: Mapping[str, str] = os.environ,
) -> Iterator[str]:
    """Starts a master and its workers, yields the master's URL, and always stops them all.

    Executors get the variables of `environment`.

    Logs and the executors' folders are below `folder`; an executor works in
    `<folder>/worker-<number>/<application>/<executor>`.
    """
    with ExitStack() as stack:
        log = folder / "master.log"
        ports = ["--port", "0", "--webui-port", "0"]
        stack.enter_context(
            _daemon(environment, log, f"{DEPLOY}.master.Master", "--host", HOSTS[0], *ports)
        )
        url = _awaited(log, r"Starting Spark master at (spark://\S+)")[0]
        size = ["-c", str(cores), "-m", memory]
        for number in range(workers):
            place = folder / f"worker-{number}"
            address = ["--host", HOSTS[number % len(HOSTS)], *ports]
            command = [f"{DEPLOY}.worker.Worker", *address, *size, "-d", str(place), url]
            stack.enter_context(_daemon(environment, folder / f"worker-{number}.log", *command))
        _awaited(log, r"Registering worker (\S+)", times=workers)
        yield url


@contextmanager
def _daemon(given: Mapping[str, str], log: Path, *arguments: str) -> Iterator[None]:
    """One of Spark's daemons, in a process group of its own."""
    environment = {**given, "SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_IP": "127.0.0.1"}
    environment["SPARK_CONF_DIR"] = str(log.parent)  # none: Spark's own log settings are relied on
    environment["JDK_JAVA_OPTIONS"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # executors' too
    with log.open("wb") as out:
        process = subprocess.Popen(
            [SPARK_HOME / "bin" / "spark-class", *arguments],
            stdout=out,
            stderr=subprocess.STDOUT,
            env=environment,
        )
    try:
        yield
    finally:
        _stop(process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()  # a worker ends its executors
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _awaited(log: Path, pattern: str, times: int = 1) -> list[str]:
    """What the pattern's group matched, as soon as the log holds it so many times."""
    deadline = time.monotonic() + PATIENCE_S
    while len(found := re.findall(pattern, log.read_text())) < times:
        if time.monotonic() > deadline:
            raise TimeoutError(f"no {pattern!r} in {log}:\n{log.read_text()}")
        time.sleep(0.1)
    return found
