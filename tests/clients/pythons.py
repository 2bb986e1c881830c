"""The programs in Python, and kcat: newest versions, and those that people still have.

The newest of librdkafka and of aiokafka are those of the development environment.
"""

import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path

from tests.clients.program import NoToolError, Program, Record
from tests.harness.debian import NoPackageError
from tests.harness.kcat import kcat_program
from tests.harness.python_environment import NoEnvironmentError, python_with

PROJECT = Path(__file__).resolve().parents[2]
CODECS = ("python-snappy==0.7.3", "lz4==4.4.5", "zstandard==0.25.0")

OLD_SCRAM = "SCRAM fails"


def reader(module: str, requirements: Sequence[str] = ()) -> list[str]:
    """The command of a module of tests/clients/readers, in an environment of its own."""
    try:
        python = str(python_with(requirements)) if requirements else sys.executable
    except NoEnvironmentError as error:
        raise NoToolError(str(error)) from error
    path = f"PYTHONPATH={PROJECT}"
    return ["env", path, python, "-m", f"tests.clients.readers.{module}"]


def kcat() -> list[str]:
    """The command of kcat's reader."""
    try:
        kcat_program()
    except NoPackageError as error:
        raise NoToolError(str(error)) from error
    return reader("kcat_reader")


def of(module: str, *requirements: str) -> Callable[[], list[str]]:
    """`built` of a program in Python."""
    return partial(reader, module, requirements)


def as_kcat_prints(record: Record) -> Record:
    """kcat prints a header without a value as NULL."""
    headers = tuple((name, b"NULL" if value is None else value) for name, value in record.headers)
    return record._replace(headers=headers)


PROGRAMS = [
    Program(f"confluent-kafka {version('confluent-kafka')}", of("confluent_reader")),
    Program("confluent-kafka 2.10.1", of("confluent_reader", "confluent-kafka==2.10.1")),
    Program(
        "confluent-kafka 2.3.0",
        of("confluent_reader", "confluent-kafka==2.3.0"),
        mechanisms=("PLAIN",),
        remarks=(OLD_SCRAM,),
    ),
    Program(f"aiokafka {version('aiokafka')}", of("aiokafka_reader")),
    Program(
        "aiokafka 0.8.1", of("aiokafka_reader", "aiokafka==0.8.1", "kafka-python==2.0.2", *CODECS)
    ),
    Program("kafka-python 3.0.12", of("kafka_python_reader", "kafka-python==3.0.12", *CODECS)),
    Program(
        "kafka-python 2.0.2",
        of("kafka_python_reader", "kafka-python==2.0.2", *CODECS),
        reads_committed=False,
        fails=frozenset({"key"}),
        remarks=(
            "no read_committed",
            "poll() raises IndexError if all batches are without records",
        ),
    ),
]
COMMANDS = [
    Program(
        "kcat 1.7.1",
        kcat,
        seen=as_kcat_prints,
        mechanisms=("PLAIN",),
        remarks=("prints headers without a value as NULL", OLD_SCRAM),
    )
]
