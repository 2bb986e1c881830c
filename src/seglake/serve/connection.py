"""Serve one client's connection: answer its requests in their order.

Like a broker, it handles one request at a time, and reads the next one at the same time. A handler
that waits (a Fetch at the end of the log) also waits for `next_request`, and answers early when
that request arrives. So no client waits for its own long poll.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import struct
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple, TypeVar

from seglake.errors import UnknownTopic
from seglake.serve.api import Api, CloseConnection, ServerCounts, text_for_log
from seglake.serve.codes import Code
from seglake.serve.frames import Header, MalformedRequest, decode, decode_header, encode
from seglake.serve.records.batch_ranges import FileSpan
from seglake.serve.settings import ServerSettings
from seglake.serve.turns import TURN_BYTES, Turns, begin_request

_log = logging.getLogger(__name__)
_Result = TypeVar("_Result")

_SMALL_BYTES = 8 * 1024  # Up to this, requests are not counted, and allowed before a login.
_PIECE_BYTES = 64 * 1024  # A larger request is counted by such pieces, as they arrive.
_LARGE_BYTES = 16 * 1024  # Larger requests are decoded on a thread.
_LONG_S = 0.01  # If a handler took longer, its answer is encoded on a thread.
_CLOSING_S = 5.0  # The time for a client to read the last answer.
_SIZE = struct.Struct(">i")
_API_VERSIONS = 18
_UNKNOWN_NAMES = 20  # Limit of the names that one connection logs.
_FREE_BYTES = 64 * 1024  # The first bytes of an answer need no turn.
_WAKING_BYTES = 4 * 1024  # Sent to a full socket, to learn when it has more space.
_COPY_BYTES = 256 * 1024  # Part of a file to read where the kernel cannot send it.
_NO_SENDFILE = {errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP}


Part = bytes | bytearray | memoryview | FileSpan


class Reply(NamedTuple):
    """A response that a handler has encoded: the parts of its frame, without the leading size.

    The header of the response is among the parts. Files are sent without a copy.
    """

    parts: Sequence[Part]


class ConnectionContext:
    """The state that all connections of a server share.

    The bytes of all large requests in memory are bounded. A request above the bound is refused; it
    never waits. Large messages are decoded and encoded on a thread, so that they delay no client.
    """

    def __init__(self, queued_bytes: int) -> None:
        self._limit = self._left = queued_bytes
        self._thread = ThreadPoolExecutor(1, "seglake-coding")
        self.turns = Turns()

    def take(self, size: int) -> None:
        """Count bytes of a request. Raises CloseConnection if the sum exceeds the bound."""
        if size > self._left:
            raise CloseConnection(f"requests use queued.max.request.bytes = {self._limit}")
        self._left -= size

    def give_back(self, size: int) -> None:
        """Subtract the bytes of a request after it has left memory."""
        self._left += size

    async def run_codec(self, work: Callable[[], _Result]) -> _Result:
        """Decode or encode a large message on the thread; return the result of `work`."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def close(self) -> None:
        """End the thread that decodes and encodes large messages."""
        self._thread.shutdown(wait=False, cancel_futures=True)


class Connection:
    """A client, and the loop that serves it.

    `principal` is the user after the login, None before it, and "ANONYMOUS" if no login is needed.
    The security part stores the state of a login in `login`. While `tokens` is set, frames are
    messages of a login without a header, and `tokens` answers them.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        apis: Mapping[int, Api],
        settings: ServerSettings,
        counts: ServerCounts,
        shared: ConnectionContext,
        *,
        must_log_in: bool = False,
    ) -> None:
        self._reader, self._writer, self.apis = reader, writer, apis
        self._settings, self.counts, self._shared = settings, counts, shared
        peer = writer.get_extra_info("peername")
        self.host = str(peer[0]) if peer else "?"
        self.peer = f"{self.host}:{peer[1]}" if peer else "?"
        self._copies = writer.get_extra_info("ssl_object") is not None
        if not self._copies:  # `drain` then waits until the socket has taken everything.
            writer.transport.set_write_buffer_limits(0)
        self.client_id: str | None = None
        self.principal: str | None = None if must_log_in else "ANONYMOUS"
        self.login: Any = None
        self.tokens: Callable[[bytes, Connection], Awaitable[bytes]] | None = None
        self.ends: dict[tuple[str, int], int] = {}  # see `reads.fetch`
        self.api, self.version = "", 0  # API and version of the current request
        self.correlation_id = 0
        self.next_request: asyncio.Task[memoryview | None] | None = None
        self._turns = begin_request(shared.turns)
        self._unknown = set[str]()  # names of topics that are in the log
        self._finishing = self._unheard = False
        self._login_ends = asyncio.get_running_loop().time() + settings.login_ms / 1000

    def finish(self) -> None:
        """Answer the current request, early if it waits. Then read no more requests."""
        self._finishing = True
        if self.next_request is not None:
            self.next_request.cancel()

    async def serve(self) -> None:
        """Answer requests until the client disconnects, is idle for too long, or is refused."""
        try:
            await self._serve()
        except (CloseConnection, MalformedRequest) as why:
            if isinstance(why, MalformedRequest):
                self.counts.malformed_requests += 1
            _log.warning("%s: connection closed: %s", self, why)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client closed the connection in the meantime
        except TimeoutError:
            self._unheard = True
        except asyncio.CancelledError:
            if not self._finishing:
                raise
        except Exception:
            _log.exception("%s: connection closed", self)
        finally:
            await self._end()

    def __str__(self) -> str:
        return f"{self.peer} ({text_for_log(self.client_id or '?')})"

    async def _serve(self) -> None:
        self.next_request = asyncio.create_task(self._frame())
        while not self._finishing and (frame := await self.next_request) is not None:
            self.next_request = asyncio.create_task(self._frame())
            try:
                await self._answer(frame)
            finally:
                self._let_go(frame)

    async def _frame(self) -> memoryview | None:
        """Return the next request; None if the client disconnected, was idle or was too slow."""
        try:
            (size,) = _SIZE.unpack(await self._head())
            limit = self._settings.request_bytes
            if self.principal is None:
                limit = min(limit, _SMALL_BYTES)
            if not 0 <= size <= limit:
                what = "socket.request.max.bytes is" if self.principal else "the login limit is"
                raise CloseConnection(f"a request has {size} bytes, and {what} {limit}")
            async with asyncio.timeout_at(self._deadline(self._settings.request_ms)):
                frame = await self._body(size)
        except (asyncio.IncompleteReadError, ConnectionError, TimeoutError):
            return None
        self.counts.received_bytes += size + _SIZE.size
        return frame

    async def _head(self) -> bytes:
        """Return the size field of the next request.

        If the login ends during the wait, its deadline no longer applies, and the wait begins
        again with the limit of an idle connection.
        """
        while True:
            logging_in = self.principal is None
            try:
                async with asyncio.timeout_at(self._deadline(self._settings.idle_ms)):
                    return await self._reader.readexactly(_SIZE.size)
            except TimeoutError:
                if not logging_in or self.principal is None:
                    raise

    def _deadline(self, wait_ms: int) -> float:
        """Return the event-loop time by which the client must send.

        All requests of a login share one deadline.
        """
        deadline = asyncio.get_running_loop().time() + min(wait_ms, self._settings.idle_ms) / 1000
        return deadline if self.principal is not None else min(deadline, self._login_ends)

    async def _body(self, size: int) -> memoryview:
        """Return a request. Only bytes that have arrived are counted, not the announced size."""
        if size <= _SMALL_BYTES:
            return memoryview(await self._reader.readexactly(size))
        body = bytearray()
        try:
            while len(body) < size:
                piece = await self._reader.readexactly(min(_PIECE_BYTES, size - len(body)))
                self._shared.take(len(piece))
                body += piece
        except BaseException:
            self._shared.give_back(len(body))
            raise
        return memoryview(body)

    def _let_go(self, frame: memoryview) -> None:
        if len(frame) > _SMALL_BYTES:
            self._shared.give_back(len(frame))

    async def _answer(self, frame: memoryview) -> None:
        self._turns = begin_request(self._shared.turns)
        if self.tokens is not None:
            token = await self.tokens(bytes(frame), self)
            await self._send([_SIZE.pack(len(token)), token])
            return
        header = decode_header(frame)
        api = self._api(header)
        self.client_id, self.api, self.version = header.client_id, api.name, header.version
        self.correlation_id = header.correlation_id
        self.counts.requests[api.name] += 1
        if api.low <= header.version <= api.high:
            work = partial(decode, api, header, frame)
            request = work() if len(frame) <= _LARGE_BYTES else await self._shared.run_codec(work)
        elif header.key == _API_VERSIONS:  # answered in version 0: the client learns ours (KIP-511)
            request, header = None, header._replace(version=0)
        else:
            supported = f"{api.low} to {api.high}"
            raise CloseConnection(f"{api.name} has version {header.version}, not {supported}")
        started = perf_counter()
        response = await self._handled(api, request)
        took = perf_counter() - started
        self.counts.seconds[api.name] += took
        if isinstance(response, Reply):
            size = sum(p.size if isinstance(p, FileSpan) else len(p) for p in response.parts)
            await self._send([_SIZE.pack(size), *response.parts])
        elif response is not None:
            encoding = partial(encode, response, header.version, header.correlation_id)
            small = took < _LONG_S and len(frame) <= _LARGE_BYTES
            await self._send([encoding() if small else await self._shared.run_codec(encoding)])

    async def _handled(self, api: Api, request: Any) -> Any:
        try:
            return await api.handle(request, self)
        except CloseConnection:
            raise
        except Exception as error:
            _log.exception("%s: %s failed", self, api.name)
            raise CloseConnection(f"{api.name} failed: {error}") from error

    def _api(self, header: Header) -> Api:
        api = self.apis.get(header.key)
        if api is None:
            raise CloseConnection(f"the server does not support the API key {header.key}")
        if self.principal is None and not api.before_login:
            raise CloseConnection(f"the client sent {api.name} before its login")
        return api

    def log_unknown(self, name: str, error: UnknownTopic) -> None:
        """Log that a client requests an unknown topic: each name once, and at most 20 names.

        Clients repeat such a request, and some wait for a mistyped name without a message.
        """
        if name not in self._unknown and len(self._unknown) < _UNKNOWN_NAMES:
            self._unknown.add(name)
            _log.info("%s: %s", self, error)

    def count_error(self, code: Code) -> None:
        """Count an error code in the response to the current request. NONE is not counted."""
        if code:
            self.counts.errors[self.api, code.name] += 1

    async def _send(self, parts: Sequence[Part]) -> None:
        """Write the parts in turns. Raises TimeoutError if the client does not take one.

        The first bytes of an answer need no turn.
        """
        free = _FREE_BYTES
        for part in parts:
            at, end = 0, part.size if isinstance(part, FileSpan) else len(part)
            async with asyncio.timeout(self._settings.idle_ms / 1000):
                while at < end:
                    size = min(free or TURN_BYTES, end - at)
                    if free:
                        free -= size
                    else:
                        await self._turns.next()
                    sent = 0 if self._copies else self._send_now(part, at, size)
                    at += sent
                    if sent < size:  # The socket is full, so wait until the client takes bytes.
                        size = min(size - sent, _COPY_BYTES if self._copies else _WAKING_BYTES)
                        await self._write(part, at, size)
                        at += size

    def _send_now(self, part: Part, at: int, size: int) -> int:
        """Send as many of `size` bytes of a part as the socket takes now. Return their number."""
        transport = self._writer.transport
        if transport.is_closing():
            raise ConnectionResetError
        to = transport.get_extra_info("socket").fileno()
        try:
            if isinstance(part, FileSpan):
                sent = os.sendfile(to, part.file.fileno(), part.start + at, size)
                if not sent:
                    raise _shortened(part, at)
            else:
                sent = os.write(to, memoryview(part)[at : at + size])
        except BlockingIOError:
            return 0
        except OSError as error:
            if error.errno not in _NO_SENDFILE:
                raise
            self._copies = True
            return 0
        self.counts.sent_bytes += sent
        return sent

    async def _write(self, part: Part, at: int, size: int) -> None:
        """Write bytes of a part, and wait until the socket has taken them all."""
        if isinstance(part, FileSpan):
            read = partial(os.pread, part.file.fileno(), size, part.start + at)
            small = size <= _WAKING_BYTES
            data = read() if small else await asyncio.get_running_loop().run_in_executor(None, read)
            if len(data) < size:
                raise _shortened(part, at + len(data))
            self._writer.write(data)
        else:
            self._writer.write(memoryview(part)[at : at + size])
        self.counts.sent_bytes += size
        await self._writer.drain()

    async def _end(self) -> None:
        """Close the connection. Bytes that the client does not read in time are dropped."""
        if self.next_request is not None:
            self.next_request.cancel()
            with suppress(asyncio.CancelledError, Exception):
                if (frame := await self.next_request) is not None:
                    self._let_go(frame)
        try:
            if not self._unheard:
                self._writer.close()
                async with asyncio.timeout(_CLOSING_S):
                    await self._writer.wait_closed()
        except OSError:  # includes a lost connection and a timeout
            pass
        finally:
            self._writer.transport.abort()


def _shortened(span: FileSpan, at: int) -> CloseConnection:
    return CloseConnection(
        f"{span.key} became shorter while it was sent: it ends at byte {span.start + at}"
    )
