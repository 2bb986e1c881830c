"""rskafka, a client of Rust without groups, as a program."""

from tests.clients.building import built
from tests.clients.program import Program, Record

_RESULT = "bin/seglake-client"
_INSTALL = ("install", "--path", ".", "--root", ".", "--locked", "--debug", "--quiet")


def _command() -> list[str]:
    folder = built("rust", "cargo", _INSTALL, _RESULT)
    return [str(folder / _RESULT)]


def _seen(record: Record) -> Record:
    """Headers are a sorted map: of a repeated name the last value is left."""
    return record._replace(headers=tuple(sorted(dict(record.headers).items())))


def _refuses(record: Record) -> bool:
    """It takes no header without a value."""
    return any(value is None for _, value in record.headers)


PROGRAMS = [
    Program(
        "rskafka 0.6.0",
        _command,
        seen=_seen,
        refuses=_refuses,
        actions=frozenset({"read", "lookup", "topics"}),
        reads_committed=False,
        knows_append_time=False,
        remarks=(
            "no consumer groups, no subscriptions",
            "headers are sorted by name, with the last value of a repeated one",
            "a header without a value fails the fetch",
            "always requests read_committed, but returns aborted records",
            "has no position after offsets without records at the end",
            "does not pass batches without records on a broker",
            "LogAppendTime: returns the time of creation",
        ),
    )
]
