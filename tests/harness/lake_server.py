"""`seglake serve` in this process, on a thread of its own; and a client that speaks its protocol.

The client is as thin as can be: kafka-python's messages over a socket, so that a test sees what the
server sends and not what a clever client makes of it.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import seglake
from seglake.serve.run import running
from seglake.serve.settings import Address, load
from seglake.serve.topics.catalog import ServedTopics

PATIENCE_S = 120


class Serving:
    """A running server: its address, and its topics."""

    def __init__(
        self, address: Address, topics: ServedTopics, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.address, self.topics, self._loop = address, topics, loop

    def __str__(self) -> str:
        return str(self.address)

    def refresh(self) -> None:
        """Look for a newer version now."""
        asyncio.run_coroutine_threadsafe(self.topics.refresh(), self._loop).result(PATIENCE_S)


@contextmanager
def serving(
    root: Path | str | seglake.Lake, others: Mapping[str, object] | None = None, **changes: object
) -> Iterator[Serving]:
    """A server of a lake, or of the one at `root`, on a free port.

    `changes` are settings of `[server]`; a double underscore in a name of theirs stands for a dot.
    `others` has settings of other tables, as {"groups.file": …}; what groups commit is in memory
    unless it says so.
    """
    given = {f"server.{name.replace('__', '.')}": value for name, value in changes.items()}
    ours = {"server.listen": "127.0.0.1:0", "server.refresh_ms": 50, "groups.file": ":memory:"}
    settings = load(None, {**ours, **given, **(others or {})})
    started, ended = threading.Event(), list[BaseException]()
    found = list[Serving]()
    stop: asyncio.Event

    async def run() -> None:
        nonlocal stop
        stop = asyncio.Event()
        lake = root if isinstance(root, seglake.Lake) else seglake.open(str(root))
        async with running(lake, settings) as (address, topics):
            found.append(Serving(address, topics, asyncio.get_running_loop()))
            started.set()
            await stop.wait()

    def work() -> None:
        try:
            asyncio.run(run())
        except BaseException as error:
            ended.append(error)
        finally:
            started.set()

    thread = threading.Thread(target=work, name="lake-server")
    thread.start()
    assert started.wait(PATIENCE_S)
    if ended:
        raise ended[0]
    try:
        yield found[0]
    finally:
        found[0]._loop.call_soon_threadsafe(stop.set)
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    if ended:
        raise ended[0]


@contextmanager
def holds(server: Serving) -> Iterator[list[float]]:
    """The processor time (s) of each callback of the server's loop: of one turn of a request."""
    found, run = [0.0], asyncio.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        before = time.thread_time()
        run(handle)
        if asyncio.get_running_loop() is server._loop:
            found.append(time.thread_time() - before)

    gc.freeze()  # as the server's process does when it has started
    try:
        with patch.object(asyncio.Handle, "_run", timed):
            yield found
    finally:
        gc.unfreeze()


class Wire:
    """One connection to a server."""

    def __init__(self, address: Address, timeout_s: float = PATIENCE_S) -> None:
        self._socket = socket.create_connection(address, timeout_s)
        self._correlation_id = 0

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def send(self, request: Any, version: int) -> int:
        """Send a request of kafka-python's class; returns its correlation id."""
        self._correlation_id += 1
        request.API_VERSION = version
        request.with_header(self._correlation_id, client_id="wire")
        self._socket.sendall(request.encode(header=True, framed=True))
        return self._correlation_id

    def send_bytes(self, frame: bytes) -> None:
        """Send any bytes as a frame."""
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)

    def send_raw(self, data: bytes) -> None:
        """Send any bytes."""
        self._socket.sendall(data)

    def receive(self) -> bytes | None:
        """The next frame; None if the server closed the connection."""
        try:
            head = self._exactly(4)
            return None if head is None else self._exactly(struct.unpack(">i", head)[0])
        except ConnectionError:
            return None

    def ask(self, request: Any, response: Any, version: int) -> Any:
        """The decoded response of a request. Fails if it is none of this request."""
        correlation_id = self.send(request, version)
        frame = self.receive()
        assert frame is not None, "the server closed the connection"
        assert struct.unpack(">i", frame[:4])[0] == correlation_id
        return response.decode(frame, version=version, header=True)

    def _exactly(self, size: int) -> bytes | None:
        data = bytearray()
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            if not more:
                return None
            data += more
        return bytes(data)


def until(done: Callable[[], bool]) -> None:
    """Wait for a condition, with patience: others may have this machine's time."""
    deadline = time.monotonic() + 300
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@contextmanager
def no_failure() -> Iterator[None]:
    """In the block, nothing is logged with a traceback."""
    failures = _Failures()
    logging.getLogger().addHandler(failures)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(failures)
    assert failures.told == []


class _Failures(logging.Handler):
    """Log records that have a traceback: no code expected these errors."""

    def __init__(self) -> None:
        super().__init__()
        self.told = list[str]()

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.told.append(logging.Formatter().format(record))
