"""The listener: it accepts connections within the limits, and serves them until it is stopped.

The parts (reading, groups, security) give it their APIs.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections import Counter
from collections.abc import Iterable

from seglake.serve.api import Api
from seglake.serve.connection import Connection, QueuedBytes
from seglake.serve.counts import Counts
from seglake.serve.settings import Address, Settings

_log = logging.getLogger(__name__)

_GRACE_S = 5.0  # for answers under way when the server stops


class Listener:
    """Accepts connections and serves each in a task of its own, within the limits."""

    def __init__(
        self,
        settings: Settings,
        counts: Counts,
        *,
        tls: ssl.SSLContext | None = None,
        must_log_in: bool = False,
    ) -> None:
        self._settings, self.counts = settings.server, counts
        self._apis = dict[int, Api]()
        self._tls, self._must_log_in = tls, must_log_in
        self._queued = QueuedBytes(settings.server.queued_bytes)
        self._tasks = set[asyncio.Task[None]]()
        self._connections = set[Connection]()
        self._by_host = Counter[str]()
        self._server: asyncio.Server | None = None

    def offer(self, apis: Iterable[Api]) -> None:
        """The APIs that clients get; before that, they get none."""
        self._apis |= {api.key: api for api in apis}

    async def start(self) -> Address:
        """Listen; returns the address, with the port that was free if it was 0."""
        host, port = self._settings.listen
        self._server = await asyncio.start_server(self._accepted, host, port, ssl=self._tls)
        found = self._server.sockets[0].getsockname()
        return Address(host, int(found[1]))

    async def stop(self) -> None:
        """Accept no more; give answers that are under way a moment, then close every connection."""
        if self._server is not None:
            self._server.close()
        for connection in self._connections:
            connection.finish()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=_GRACE_S)
            for task in late:
                task.cancel()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if (task := asyncio.current_task()) is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        with contextlib.suppress(asyncio.CancelledError):
            await self._within_limits(reader, writer)

    async def _within_limits(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        connection = Connection(
            reader, writer, self._apis, self._settings, self.counts, self._queued,
            must_log_in=self._must_log_in,
        )  # fmt: skip
        host, counts = connection.host, self.counts
        if (
            counts.open_connections >= self._settings.max_connections
            or self._by_host[host] >= self._settings.max_connections_per_ip
        ):
            counts.refused_connections += 1
            _log.warning("%s: refused: too many connections", connection.peer)
            writer.close()
            return
        counts.connections += 1
        counts.open_connections += 1
        self._by_host[host] += 1
        self._connections.add(connection)
        try:
            await connection.serve()
        finally:
            self._connections.discard(connection)
            counts.open_connections -= 1
            self._by_host[host] -= 1
            if not self._by_host[host]:
                del self._by_host[host]
