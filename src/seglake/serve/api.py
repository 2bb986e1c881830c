"""Define `Api`, one API of the server with its versions and handler, and the server's counts.

Each part (reads, groups, security) returns its `Api`s, and `run` joins them.
"""

import uuid
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from seglake.serve.turns import give_way

_Item = TypeVar("_Item")
_SHOWN = 64  # characters of a text that a client has sent

# A handler gets a decoded request of kafka-python, and the `Connection`. It returns a response of
# kafka-python, which the connection encodes in the version of the request; an encoded `Reply`; or
# None for no answer. It raises CloseConnection to close the connection and log the reason.
Handler = Callable[[Any, Any], Awaitable[Any]]

NODE = 1  # the broker id of this server, the only broker of its cluster
NO_ID = uuid.UUID(int=0)  # the id of an unknown topic; kafka-python decodes it as None


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
        """Return Kafka's number of the API."""
        return int(self.request.API_KEY)

    @property
    def name(self) -> str:
        """Return Kafka's name of the API, such as `ListOffsets`."""
        return str(self.request.name).removesuffix("Request")


class CloseConnection(Exception):
    """The connection must be closed. The message is logged and never sent."""


async def in_turns(items: Iterable[_Item]) -> AsyncIterator[_Item]:
    """Yield the items of a request or an answer; let other requests proceed after each item."""
    for number, item in enumerate(items):
        if number:
            await give_way()
        yield item


def text_for_log(text: str) -> str:
    """Return text from a client for the log: one short line of printable ASCII."""
    return ascii(text[:_SHOWN])[1:-1] + ("…" if len(text) > _SHOWN else "")


# ---------------- counts
# Only the event loop changes the counts; the thread of the metrics page reads them.


@dataclass
class ServerCounts:
    """Counts since the start of the server, for the page of metrics."""

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
    fetched_bytes: Counter[str] = field(default_factory=Counter)  # by topic, with its windows
    damaged_batches: int = 0
    refreshes: int = 0
    failed_refreshes: int = 0
    logins: int = 0
    group_members: dict[str, int] = field(default_factory=dict)  # by group
    rebalances: int = 0
    offset_commits: int = 0
