"""One API of Kafka's protocol as this server has it, and how a part of the server offers some.

A part (reading, groups, security) has a function that returns its `Api`s; the server joins them.
"""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

# A handler gets a decoded request of kafka-python, and the `Connection`. It returns kafka-python's
# response of any version (the connection encodes it in the request's), a `Reply`, or None for no
# answer. It raises Refused to close the connection with a line in the log.
Handler = Callable[[Any, Any], Awaitable[Any]]

NODE = 1  # the broker id of this server, the only broker of its cluster


class Api(NamedTuple):
    """An API: the versions [low, high] that are advertised, and what answers a request.

    `request` is kafka-python's class. `before_login`: it is answered on a connection whose client
    has not shown who it is.
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
