"""One API of Kafka's protocol as this server has it, and how a part of the server offers some.

A part (reading, groups, security) has a function that returns its `Api`s; the server joins them.
"""

import uuid
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from seglake.serve.turns import give_way

_Item = TypeVar("_Item")
_SHOWN = 64  # characters of a text that a client has sent

# A handler gets a decoded request of kafka-python, and the `Connection`. It returns kafka-python's
# response of any version (the connection encodes it in the request's), a `Reply`, or None for no
# answer. It raises Refused to close the connection with a line in the log.
Handler = Callable[[Any, Any], Awaitable[Any]]

NODE = 1  # the broker id of this server, the only broker of its cluster
NO_ID = uuid.UUID(int=0)  # of no topic; kafka-python decodes it as None


class Api(NamedTuple):
    """An API: kafka-python's class of a request, and what answers one.

    `before_login`: it is answered on a connection whose client has not shown who it is.
    """

    request: Any
    handle: Handler
    before_login: bool = False

    @property
    def low(self) -> int:
        """The lowest version that is advertised."""
        return VERSIONS[self.name][0]

    @property
    def high(self) -> int:
        """The highest version that is advertised."""
        return VERSIONS[self.name][1]

    @property
    def key(self) -> int:
        """Kafka's number of the API."""
        return int(self.request.API_KEY)

    @property
    def name(self) -> str:
        """Kafka's name, as in `ListOffsets`."""
        return str(self.request.name).removesuffix("Request")


class Refused(Exception):
    """The connection must be closed; the text says why, for the log."""


async def in_turns(items: Iterable[_Item]) -> AsyncIterator[_Item]:
    """Yield the items of a request or an answer, and let other requests proceed between two."""
    for number, item in enumerate(items):
        if number:
            await give_way()
        yield item


def shown(text: str) -> str:
    """What a client has sent, as it may stand in a log: on one line, and not long."""
    return ascii(text[:_SHOWN])[1:-1] + ("…" if len(text) > _SHOWN else "")


# ---------------- versions
# The APIs of Kafka's protocol that the server has, each from its lowest to its highest version.
#
# A client asks for them first (`reads/greeting`). kafka-python decodes and encodes each of them;
# the module that answers an API says what differs between its versions.

VERSIONS = {
    # for everybody, before a login too
    "ApiVersions": (0, 4),
    "SaslHandshake": (0, 1),
    "SaslAuthenticate": (0, 2),
    # reads
    "Metadata": (0, 13),
    "DescribeCluster": (0, 2),
    "DescribeTopicPartitions": (0, 0),
    "DescribeConfigs": (1, 4),
    "DescribeLogDirs": (1, 4),
    "ListOffsets": (1, 11),
    "OffsetForLeaderEpoch": (2, 4),
    "Fetch": (4, 18),
    # groups
    "FindCoordinator": (0, 6),
    "JoinGroup": (0, 9),
    "SyncGroup": (0, 5),
    "Heartbeat": (0, 4),
    "LeaveGroup": (0, 5),
    "OffsetCommit": (2, 9),
    "OffsetFetch": (1, 9),
    "OffsetDelete": (0, 0),
    "ListGroups": (0, 5),
    "DescribeGroups": (0, 6),
    "DeleteGroups": (0, 2),
    # answered with a refusal, because nothing is written here
    "DescribeAcls": (1, 3),
    "CreateAcls": (1, 3),
    "DeleteAcls": (1, 3),
    "Produce": (0, 9),
    "InitProducerId": (0, 5),
    "CreateTopics": (2, 7),
    "DeleteTopics": (1, 6),
    "CreatePartitions": (0, 3),
    "DeleteRecords": (0, 2),
    "AlterConfigs": (0, 2),
    "IncrementalAlterConfigs": (0, 1),
}


# ---------------- counts
# Counters of a server, as plain numbers. Only the event loop changes them.


@dataclass
class ServerCounts:
    """Counts since the start, which the page of metrics shows."""

    connections: int = 0
    open_connections: int = 0
    refused_connections: int = 0
    failed_logins: int = 0
    malformed_requests: int = 0
    received_bytes: int = 0
    sent_bytes: int = 0
    requests: Counter[str] = field(default_factory=Counter)  # by the API's name
    errors: Counter[tuple[str, str]] = field(default_factory=Counter)  # API, Kafka's error name
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    fetched_bytes: Counter[str] = field(default_factory=Counter)  # by topic; windows as their topic
    damaged_batches: int = 0
    refreshes: int = 0
    failed_refreshes: int = 0
    logins: int = 0
    group_members: dict[str, int] = field(default_factory=dict)  # by group
    rebalances: int = 0
    offset_commits: int = 0
