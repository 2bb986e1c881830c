"""kafkajs, the client of Node, as a program. Its codecs beside gzip are packages of JavaScript."""

import shutil

from tests.clients.building import built
from tests.clients.program import NoToolError, Program, Record

_LARGEST_INDEX = 2**32 - 2  # of a JavaScript array; a name that is one comes before all others


def _command() -> list[str]:
    node = shutil.which("node")
    if node is None:
        raise NoToolError("kafkajs runs in Node, and there is no node in PATH")
    folder = built("node", "npm", ["ci", "--ignore-scripts", "--no-audit"], "node_modules/kafkajs")
    return [node, str(folder / "program.js")]


def _seen(record: Record) -> Record:
    """Headers are an object of JavaScript, in which a repeated name has all of its values."""
    values: dict[str, list[bytes | None]] = {}
    for name, value in record.headers:
        values.setdefault(name, []).append(value)
    names = sorted(values, key=_place)
    return record._replace(headers=tuple((name, value) for name in names for value in values[name]))


def _place(name: str) -> tuple[bool, int]:
    digits = name.isascii() and name.isdigit() and (name == "0" or name[0] != "0")
    index = digits and int(name) <= _LARGEST_INDEX
    return (not index, int(name) if index else 0)


PROGRAMS = [
    Program(
        "kafkajs 2.2.4",
        _command,
        seen=_seen,
        remarks=(
            "values of a repeated header are together, at its first position",
            "headers with integer names are first",
            "a lookup of a time after all records returns the end offset",
            "has no position after offsets without records at the end",
            "does not pass batches without records on a broker",
            "does not verify checksums",
        ),
    )
]
