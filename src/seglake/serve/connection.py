"""One client's connection: requests in, responses out, in the order of the requests.

One request is handled at a time, as a broker does; the next one is read meanwhile. A handler that
waits (a Fetch at the end of the log) watches `next_request`, and answers early when that request is
there: so no client waits for its own long poll.
"""

from __future__ import annotations

import asyncio
import logging
import os
import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from time import perf_counter
from typing import Any, NamedTuple

from seglake.serve.api import Api, Refused
from seglake.serve.codes import Code
from seglake.serve.counts import Counts
from seglake.serve.frames import Header, Malformed, decode, encode, header_of
from seglake.serve.records.files import FileSpan
from seglake.serve.settings import Server

_log = logging.getLogger(__name__)

_LOGIN_BYTES = 512 * 1024  # a frame before the login: Kafka's sasl.server.max.receive.size
_SIZE = struct.Struct(">i")
_API_VERSIONS = 18
_COPY_BYTES = 256 * 1024  # of a file, read at once


Part = bytes | bytearray | memoryview | FileSpan


class Reply(NamedTuple):
    """A response that a handler has encoded: the parts of its frame, without the leading size.

    The header of the response is among the parts. Files are sent without a copy.
    """

    parts: Sequence[Part]


class QueuedBytes:
    """Bounds the bytes of requests that are in memory at once, over all connections."""

    def __init__(self, limit: int) -> None:
        self._left, self._changed = limit, asyncio.Condition()

    async def take(self, size: int) -> None:
        """Wait until there is room."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._left >= size)
            self._left -= size

    async def give_back(self, size: int) -> None:
        """Give back the bytes of a request that is no longer in memory."""
        async with self._changed:
            self._left += size
            self._changed.notify_all()


class Connection:
    """A client, and the loop that serves it.

    `principal` is the name of the client once it has logged in, None before, "ANONYMOUS" where no
    login is needed. The security part keeps its state between requests in `login`.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        apis: Mapping[int, Api],
        settings: Server,
        counts: Counts,
        queued: QueuedBytes,
        *,
        must_log_in: bool = False,
    ) -> None:
        self._reader, self._writer, self._apis = reader, writer, apis
        self._settings, self.counts, self._queued = settings, counts, queued
        peer = writer.get_extra_info("peername")
        self.host = str(peer[0]) if peer else "?"
        self.peer = f"{self.host}:{peer[1]}" if peer else "?"
        self.secure = writer.get_extra_info("ssl_object") is not None
        self.client_id: str | None = None
        self.software = ""  # name and version, from ApiVersions
        self.principal: str | None = None if must_log_in else "ANONYMOUS"
        self.login: Any = None
        self.version = 0  # of the request that is handled
        self.correlation_id = 0
        self.next_request: asyncio.Task[memoryview | None] | None = None
        self._finishing = False

    @property
    def api_keys(self) -> Mapping[int, Api]:
        """Every API that this server has."""
        return self._apis

    def finish(self) -> None:
        """Answer the request that is handled, early if it waits, and take no other."""
        self._finishing = True
        if self.next_request is not None:
            self.next_request.cancel()

    async def serve(self) -> None:
        """Answer requests until the client goes, is idle for too long, or breaks the rules."""
        try:
            await self._serve()
        except (Refused, Malformed) as why:
            if isinstance(why, Malformed):
                self.counts.malformed_requests += 1
            _log.warning("%s: connection closed: %s", self, why)
        except (ConnectionError, asyncio.IncompleteReadError, TimeoutError):
            pass  # the client closed the connection meanwhile
        except asyncio.CancelledError:
            if not self._finishing:
                raise
        except Exception:
            _log.exception("%s: connection closed", self)
        finally:
            await self._end()

    def __str__(self) -> str:
        return f"{self.peer} ({self.client_id or '?'})"

    async def _serve(self) -> None:
        self.next_request = asyncio.create_task(self._frame())
        while not self._finishing and (frame := await self.next_request) is not None:
            self.next_request = asyncio.create_task(self._frame())
            try:
                await self._answer(frame)
            finally:
                await self._queued.give_back(len(frame))

    async def _frame(self) -> memoryview | None:
        """The next request; None when the client has left or was idle for too long."""
        try:
            async with asyncio.timeout(self._settings.idle_ms / 1000):
                head = await self._reader.readexactly(_SIZE.size)
        except (asyncio.IncompleteReadError, ConnectionError, TimeoutError):
            return None
        (size,) = _SIZE.unpack(head)
        limit = self._settings.request_bytes
        if self.principal is None:
            limit = min(limit, _LOGIN_BYTES)
        if not 0 <= size <= limit:
            raise Refused(f"a request of {size} bytes; socket.request.max.bytes allows {limit}")
        await self._queued.take(size)
        try:
            async with asyncio.timeout(self._settings.idle_ms / 1000):
                frame = await self._reader.readexactly(size)
        except BaseException:
            await self._queued.give_back(size)
            raise
        self.counts.received_bytes += size + _SIZE.size
        return memoryview(frame)

    async def _answer(self, frame: memoryview) -> None:
        header = header_of(frame)
        api = self._api(header)
        self.client_id, self.version = header.client_id, header.version
        self.correlation_id = header.correlation_id
        self.counts.requests[api.name] += 1
        if api.low <= header.version <= api.high:
            request = decode(api, header, frame)
        elif header.key == _API_VERSIONS:  # answered in version 0: the client learns ours (KIP-511)
            request, header = None, header._replace(version=0)
        else:
            what = f"{api.name} of version {header.version}; {api.low} to {api.high} are known"
            raise Refused(what)
        started = perf_counter()
        response = await self._handled(api, request)
        self.counts.seconds[api.name] += perf_counter() - started
        if isinstance(response, Reply):
            size = sum(p.size if isinstance(p, FileSpan) else len(p) for p in response.parts)
            await self._send([_SIZE.pack(size), *response.parts])
        elif response is not None:
            await self._send([encode(response, header.version, header.correlation_id)])

    async def _handled(self, api: Api, request: Any) -> Any:
        try:
            return await api.handle(request, self)
        except Refused:
            raise
        except Exception as error:
            _log.exception("%s: %s failed", self, api.name)
            raise Refused(f"{api.name} failed: {error}") from error

    def _api(self, header: Header) -> Api:
        api = self._apis.get(header.key)
        if api is None:
            raise Refused(f"a request with the API key {header.key}, which is not served")
        if self.principal is None and not api.before_login:
            raise Refused(f"{api.name} before the login")
        return api

    def count_error(self, api: str, code: Code) -> None:
        """Count an error that a response has."""
        self.counts.errors[api, code.name] += 1

    def _write(self, data: bytes | bytearray | memoryview) -> None:
        self._writer.write(data)
        self.counts.sent_bytes += len(data)

    async def _send(self, parts: Sequence[Part]) -> None:
        """Write the parts, files by sendfile; TimeoutError if the client does not take one."""
        for part in parts:
            async with asyncio.timeout(self._settings.idle_ms / 1000):
                if isinstance(part, FileSpan):
                    await self._send_file(part)
                else:
                    self._write(part)
                    await self._writer.drain()

    async def _send_file(self, span: FileSpan) -> None:
        if self.secure:
            await self._copy_file(span)
            return
        loop = asyncio.get_running_loop()
        try:
            sent = await loop.sendfile(
                self._writer.transport, span.file, span.start, span.size, fallback=False
            )
        except asyncio.SendfileNotAvailableError:  # a file system without it
            await self._copy_file(span)
            return
        self.counts.sent_bytes += sent
        if sent != span.size:
            raise Refused(f"{span.file.name} is shorter than it was: {sent} bytes of {span.size}")

    async def _copy_file(self, span: FileSpan) -> None:
        """Read it piece by piece: asyncio's fallback would move the file's shared position."""
        loop, file = asyncio.get_running_loop(), span.file.fileno()
        at, end = span.start, span.start + span.size
        while at < end:
            size = min(_COPY_BYTES, end - at)
            piece = await loop.run_in_executor(None, os.pread, file, size, at)
            if not piece:
                raise Refused(f"{span.file.name} is shorter than it was: it ends at byte {at}")
            self._write(piece)
            await self._writer.drain()
            at += len(piece)

    async def _end(self) -> None:
        ahead = self.next_request
        if ahead is not None:
            ahead.cancel()
            with suppress(asyncio.CancelledError, Exception):
                frame = await ahead
                if frame is not None:
                    await self._queued.give_back(len(frame))
        self._writer.close()
        with suppress(ConnectionError, TimeoutError, OSError):
            await self._writer.wait_closed()
