"""Clients of Kafka as programs: each reads one request from its stdin and prints one answer.

A request and an answer are one JSON object each. Every request has:

    servers         "host:port"
    security        {} or {"ca": path of a PEM file or null, "mechanism": null or one of PLAIN,
                    SCRAM-SHA-256 and SCRAM-SHA-512, "user": name, "password": text}
    action          one of these:

    "read"          topic, committed (read_committed or not), ends {"0": end offset, ...}
                    From the first offset of each partition on, until the client's position has
                    reached the end. Answer: {"partitions": {"0": [records, sha256], ...}}
    "lookup"        topic, asked [[partition, timestamp_ms], ...]
                    Answer: {"offsets": [offset, or -1 where no record is that late, ...]}
    "group"         topic, group, committed, stop_after
                    A member of the group reads by subscription from what is committed, or the
                    begin, until it has `stop_after` records; commits what it has read, and leaves.
                    Answer: {"partitions": {"0": [records, first offset, last offset], ...}}
    "topics"        Answer: {"topics": {name: partitions, ...}}

A failure is {"error": text}; the program ends with 0 nevertheless. It waits two minutes at most.

The hash is over each record in the order of offsets: offset and timestamp_ms as int64, key and
value as `bytes`, the number of headers as int32, and each header's name and value as `bytes`. Here
`bytes` are an int32 length and the bytes, or the length -1 for null. Integers are big-endian.
"""

import json
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import sha256
from struct import pack
from typing import Any, NamedTuple

PATIENCE_S = 300  # for one answer, on a machine that is busy


class NoToolError(RuntimeError):
    """What builds or runs the program is not on this machine and cannot be fetched."""


class Record(NamedTuple):
    """A record, as a client hands it out."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


Seen = Callable[[Record], Record]
Refuses = Callable[[Record], bool]


@dataclass(frozen=True)
class Program:
    """A client. `built` gives its command, and raises NoToolError.

    `seen` says how the client shows a record, where it differs by itself: with a broker, too.
    `refuses` says whether a record is an error to the client, and with it all that comes beside it.
    `actions` and `mechanisms` are those that it has. One that does not know the time of appending
    gives that of creation instead. It `fails` checks of these names with a broker, too: a remark
    says why.
    """

    name: str
    built: Callable[[], list[str]]
    seen: Seen = lambda record: record
    refuses: Refuses = lambda record: False
    actions: frozenset[str] = frozenset({"read", "lookup", "group", "topics"})
    mechanisms: tuple[str, ...] = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
    reads_committed: bool = True
    knows_append_time: bool = True
    fails: frozenset[str] = frozenset()
    remarks: tuple[str, ...] = ()

    def ask(self, action: str, servers: str, **more: Any) -> dict[str, Any]:
        """The answer to a request; AssertionError if the program gives none."""
        request = {"action": action, "servers": servers, "security": {}, **more}
        done = subprocess.run(
            self.built(), input=json.dumps(request), capture_output=True, text=True, check=False,
            timeout=PATIENCE_S,
        )  # fmt: skip
        assert done.returncode == 0, f"{self.name}: {done.stderr[-4000:]}"
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return answer


def checksum(records: Iterable[Record]) -> str:
    """The hash of records in the order of offsets, as every program takes it."""
    taken = sha256()
    for record in records:
        taken.update(pack(">qq", record.offset, record.timestamp_ms))
        taken.update(_nullable(record.key) + _nullable(record.value))
        taken.update(pack(">i", len(record.headers)))
        for name, value in record.headers:
            taken.update(_nullable(name.encode()) + _nullable(value))
    return taken.hexdigest()


def _nullable(data: bytes | None) -> bytes:
    return pack(">i", -1) if data is None else pack(">i", len(data)) + data
