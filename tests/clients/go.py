"""Clients of Go, as programs: each in a folder of `go`, beside what they share.

Those of Confluent have librdkafka in them, of their own version.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from tests.clients.building import HERE, built
from tests.clients.program import Program, Record

_FIRST_SCRAM = (2, 6, 1)  # of librdkafka
_OLD_SCRAM = "SCRAM fails"


def _command(folder: str, modules: str, *arguments: str) -> list[str]:
    command = ["build", "-C", folder, f"-modfile={modules}", "-o", "program", "."]
    result, part = f"{folder}/program", f"{folder}-{modules.removesuffix('.mod')}"
    return [str(built("go", "go", command, result, part=part) / result), *arguments]


def _of(folder: str, *arguments: str, modules: str = "go.mod") -> Callable[[], list[str]]:
    return partial(_command, folder, modules, *arguments)


def _version(folder: str, module: str) -> str:
    """The version of a module that go.mod asks for."""
    text = (HERE / "go" / folder / "go.mod").read_text()
    found = re.search(rf"{re.escape(module)} v(\S+)", text)
    assert found is not None
    return found[1]


def _null_is_empty(record: Record) -> Record:
    """An empty key, value or header cannot be told from one that is null."""
    headers = tuple((name, value or b"") for name, value in record.headers)
    return record._replace(key=record.key or b"", value=record.value or b"", headers=headers)


def _confluent(version: str, modules: str) -> Program:
    name, build = f"confluent-kafka-go {version}", _of("librdkafka", modules=modules)
    if tuple(map(int, version.split("."))) >= _FIRST_SCRAM:
        return Program(name, build)
    return Program(name, build, mechanisms=("PLAIN",), remarks=(_OLD_SCRAM,))


_SARAMA = f"sarama {_version('sarama', 'github.com/IBM/sarama')}"
_NEWEST = _version("librdkafka", "github.com/confluentinc/confluent-kafka-go/v2")

FRANZ = Program(f"franz-go {_version('franz', 'github.com/twmb/franz-go')}", _of("franz"))

PROGRAMS = [
    FRANZ,
    Program(_SARAMA, _of("sarama"), remarks=("the protocol of Kafka 2.8, its default",)),
    Program(f"{_SARAMA} newest", _of("sarama", "newest"), remarks=("the protocol of Kafka 4.3",)),
    Program(
        f"kafka-go {_version('kafkago', 'github.com/segmentio/kafka-go')}",
        _of("kafkago"),
        seen=_null_is_empty,
        knows_append_time=False,
        remarks=(
            "batches without records: on a broker it panics, or reads from offset 1 forever",
            "null keys, values and headers are empty",
            "LogAppendTime: returns the time of creation",
        ),
    ),
    replace(
        _confluent("1.8.2", "v1.8.2.mod"),
        fails=frozenset({"times"}),
        remarks=(_OLD_SCRAM, "a lookup by time takes ten seconds"),
    ),
    _confluent("2.3.0", "v2.3.0.mod"),
    _confluent("2.11.1", "v2.11.1.mod"),
    _confluent(_NEWEST, "go.mod"),
]
