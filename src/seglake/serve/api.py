"""One API of Kafka's protocol as this server has it, and how a part of the server offers some.

A part (reading, groups, security) has a function that returns its `Api`s; the server joins them.
"""

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any, NamedTuple, TypeVar

from seglake.serve.turns import give_way
from seglake.serve.versions import VERSIONS

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
