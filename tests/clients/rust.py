"""rskafka, a client of Rust without groups, as a program."""

from __future__ import annotations

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
            "it has no consumer groups and no subscriptions",
            "headers: sorted by name; of a repeated name the last value is left",
            "a header without a value: the whole fetch is an error",
            "it asks for committed records, always, and hands out those of aborted transactions",
            "offsets at the end that no record has: it gets no position behind them",
            "batches without records: it asks again from there, and stays there with a broker",
            "the time of appending (LogAppendTime): it gives the time of creation instead",
        ),
    )
]
