"""Accept connections within the limits, and serve them until the server stops."""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import socket
import ssl
from collections import Counter
from collections.abc import Iterable

from seglake.errors import ConfigError
from seglake.serve.api import Api, ServerCounts
from seglake.serve.connection import Connection, ConnectionContext
from seglake.serve.settings import Address, Settings

_log = logging.getLogger(__name__)

_GRACE_S = 5.0  # the time for answers in progress when the server stops
_BACKLOG = 1024
_OTHER_FILES = 600  # descriptors besides connections: log files, the groups' file, listeners
_NO_ROOM = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


def raise_file_limit(connections: int) -> None:
    """Let this process open a file for each connection. Raises ConfigError if it may not."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = connections + _OTHER_FILES
    if soft == resource.RLIM_INFINITY or soft >= files:
        return
    if hard != resource.RLIM_INFINITY and hard < files:
        raise ConfigError(
            f"server.max.connections: {connections} connections need {files} open files, but "
            f"this process may have only {hard}. Raise its limit (ulimit -n), or set fewer "
            f"connections"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))


class Listener:
    """Accepts connections and serves each in a separate task, within the limits.

    A connection counts as soon as it is accepted, before its TLS handshake.
    """

    def __init__(
        self,
        settings: Settings,
        counts: ServerCounts,
        *,
        tls: ssl.SSLContext | None = None,
        must_log_in: bool = False,
    ) -> None:
        self._settings, self.counts = settings.server, counts
        self._apis = dict[int, Api]()
        self._tls, self._must_log_in = tls, must_log_in
        self._shared = ConnectionContext(settings.server.queued_bytes)
        self._tasks = set[asyncio.Task[None]]()
        self._connections = set[Connection]()
        self._by_host = Counter[str]()
        self._accepting = list[asyncio.Task[None]]()

    def add_apis(self, apis: Iterable[Api]) -> None:
        """Add APIs. Before the first call, the server has no APIs."""
        self._apis |= {api.key: api for api in apis}

    async def start(self) -> Address:
        """Start to listen. Return the address, with the actual port if the setting is 0.

        Raises OSError, and ConfigError for more connections than this process may have.
        """
        raise_file_limit(self._settings.max_connections)
        host, port = self._settings.listen
        loop = asyncio.get_running_loop()
        addresses = await loop.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, *_, where in dict.fromkeys(addresses):
            place = (str(where[0]), port, *where[2:])
            listening = socket.create_server(place, family=family, backlog=_BACKLOG)
            listening.setblocking(False)
            port = int(listening.getsockname()[1])
            self._accepting.append(asyncio.create_task(self._accept(listening)))
        return Address(host, port)

    async def stop(self) -> None:
        """Stop accepting, wait some seconds for answers in progress, then close all connections."""
        for task in self._accepting:
            task.cancel()
        await asyncio.gather(*self._accepting, return_exceptions=True)
        for connection in self._connections:
            connection.finish()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=_GRACE_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        self._shared.close()

    async def _accept(self, listening: socket.socket) -> None:
        loop, full = asyncio.get_running_loop(), False
        with listening:
            while True:
                try:
                    accepted, peer = await loop.sock_accept(listening)
                    full = False
                except OSError as error:  # The client left, or there are no descriptors or memory.
                    if error.errno in _NO_ROOM:
                        if not full:
                            _log.error("cannot accept connections: %s", error)
                        full = True
                        await asyncio.sleep(1)
                    continue
                self._admit(accepted, str(peer[0]), int(peer[1]))

    def _admit(self, accepted: socket.socket, host: str, port: int) -> None:
        """Serve a connection, or close it immediately if there are too many."""
        counts = self.counts
        if (
            counts.open_connections >= self._settings.max_connections
            or self._by_host[host] >= self._settings.connections_per_ip
        ):
            counts.refused_connections += 1
            _log.warning("%s:%d: refused: too many connections", host, port)
            accepted.close()
            return
        counts.connections += 1
        counts.open_connections += 1
        self._by_host[host] += 1
        task = asyncio.create_task(self._serve(accepted, f"{host}:{port}"))
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._ended(done, host))

    def _ended(self, task: asyncio.Task[None], host: str) -> None:
        self._tasks.discard(task)
        self.counts.open_connections -= 1
        self._by_host[host] -= 1
        if not self._by_host[host]:
            del self._by_host[host]
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a connection failed", exc_info=error)

    async def _serve(self, accepted: socket.socket, peer: str) -> None:
        try:
            reader, writer = await self._opened(accepted)
        except (OSError, TimeoutError) as error:  # The client has no TLS, or disconnected.
            _log.warning("%s: TLS handshake failed: %s", peer, error)
            return
        connection = Connection(
            reader, writer, self._apis, self._settings, self.counts, self._shared,
            must_log_in=self._must_log_in,
        )  # fmt: skip
        self._connections.add(connection)
        try:
            await connection.serve()
        finally:
            self._connections.discard(connection)

    async def _opened(
        self, accepted: socket.socket
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return the streams of a connection after its TLS handshake."""
        loop = asyncio.get_running_loop()
        accepted.setblocking(False)
        # asyncio sets this only for its own sockets. Without it a small answer waits 40 ms for an
        # ACK.
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        limit_s = None if self._tls is None else self._settings.login_ms / 1000
        transport, _ = await loop.connect_accepted_socket(
            lambda: protocol, accepted, ssl=self._tls, ssl_handshake_timeout=limit_s
        )
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)
