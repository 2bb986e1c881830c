"""What the programs in Python share: the request, the answer, and what was read.

It needs nothing but the standard library: each program runs in an environment of its own.
"""

import json
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tests.clients.program import Record, checksum

WAIT_S = 120
Answer = dict[str, Any]


class Request(NamedTuple):
    """What is asked; fields that an action does not have are empty."""

    servers: str
    deadline: float
    ca: str | None = None
    mechanism: str | None = None
    user: str = ""
    password: str = ""
    topic: str = ""
    group: str = ""
    committed: bool = False
    stop_after: int = 0
    ends: dict[int, int] = {}  # noqa: RUF012  # never changed
    asked: list[tuple[int, int]] = []  # noqa: RUF012  # partitions and times

    @property
    def protocol(self) -> str:
        """Kafka's `security.protocol`."""
        return ("SASL_" if self.mechanism else "") + ("SSL" if self.ca else "PLAINTEXT")

    @property
    def isolation(self) -> str:
        """Kafka's `isolation.level`."""
        return "read_committed" if self.committed else "read_uncommitted"

    def librdkafka_settings(self) -> dict[str, str]:
        """The settings of librdkafka's clients that depend on the request."""
        settings = {"security.protocol": self.protocol, "isolation.level": self.isolation}
        if self.ca:
            settings["ssl.ca.location"] = self.ca
        if self.mechanism:
            settings |= {
                "sasl.mechanism": self.mechanism, "sasl.username": self.user,
                "sasl.password": self.password,
            }  # fmt: skip
        return settings

    def python_settings(self) -> dict[str, Any]:
        """The settings that kafka-python and aiokafka share."""
        settings: dict[str, Any] = {
            "bootstrap_servers": self.servers, "security_protocol": self.protocol,
            "isolation_level": self.isolation, "enable_auto_commit": False,
            "fetch_max_wait_ms": 100,
        }  # fmt: skip
        if self.mechanism:
            settings |= {
                "sasl_mechanism": self.mechanism, "sasl_plain_username": self.user,
                "sasl_plain_password": self.password,
            }  # fmt: skip
        return settings

    def check_time(self, done: object = "") -> None:
        """Give up after the time of the contract."""
        if time.monotonic() > self.deadline:
            raise TimeoutError(f"not over in {WAIT_S} s: {done}")


class Taken:
    """The records that came, by partition."""

    def __init__(self) -> None:
        self.records: dict[int, list[Record]] = {}
        self.count = 0

    def add(self, partition: int, record: Record) -> None:
        """Take one more."""
        self.records.setdefault(partition, []).append(record)
        self.count += 1

    def take(self, batches: dict[Any, list[Any]]) -> None:
        """Take what one call to kafka-python or aiokafka returned."""
        for place, messages in batches.items():
            for m in messages:
                record = Record(m.offset, m.timestamp, m.key, m.value, tuple(map(tuple, m.headers)))
                self.add(place.partition, record)

    def hashed(self, partitions: Mapping[int, int]) -> Answer:
        """The answer to "read"."""
        found = {p: self.records.get(p, []) for p in partitions}
        return {"partitions": {str(p): [len(r), checksum(r)] for p, r in found.items()}}

    def bounds(self) -> Answer:
        """The answer to "group"."""
        rows = {str(p): [len(r), r[0].offset, r[-1].offset] for p, r in self.records.items()}
        return {"partitions": rows}

    def behind(self) -> dict[int, int]:
        """Where each partition goes on."""
        return {p: r[-1].offset + 1 for p, r in self.records.items()}


def answer(actions: Mapping[str, Callable[[Request], Answer]]) -> None:
    """Read one request, carry it out, print the answer."""
    asked = json.load(sys.stdin)
    try:
        found = actions[asked.pop("action")](_request(asked))
    except Exception as error:
        found = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(found), flush=True)


def _request(asked: dict[str, Any]) -> Request:
    security = asked.pop("security")
    ends = {int(p): end for p, end in asked.pop("ends", {}).items()}
    pairs = [(p, t) for p, t in asked.pop("asked", [])]
    return Request(deadline=time.monotonic() + WAIT_S, ends=ends, asked=pairs, **security, **asked)
