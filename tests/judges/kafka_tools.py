"""Kafka's command-line tools, each a program of its own that asks a server."""

import subprocess

from seglake.session import find_java
from tests.judges.kafka_jars import class_path

TOOLS = "org.apache.kafka.tools."
CONSOLE = f"{TOOLS}consumer.ConsoleConsumer"


def run_tool(program: str, address: object, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A tool, whether it succeeds or not."""
    command = [str(find_java()), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    command += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", class_path(), program]
    command += [*arguments, "--bootstrap-server", str(address)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def printed(program: str, address: object, *arguments: str) -> str:
    """What a tool that succeeds prints."""
    done = run_tool(program, address, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
