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
    """An API: kafka-python's class of a request, and the handler that answers one.

    Versions `low` to `high`, inclusive, are advertised and answered. With `before_login` the API is
    also answered on a connection whose client has not logged in yet.
    """

    request: Any
    low: int
    high: int
    handle: Handler
    before_login: bool = False

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
