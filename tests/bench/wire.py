"""A wire between clients and a server on loopback, on which every request takes some ms longer.

`python -m tests.bench.wire HOST:PORT DELAY_MS` prints its own address and passes everything on. A
request is what a client sends after a reply. Whoever connects to the second address that it prints
gets the requests since the last time, as JSON: [begin, end, bytes to the server, bytes back].
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

PIECE_BYTES = 1 << 20


class Request(NamedTuple):
    """A request on the wire: seconds of its begin and of the end of its reply, bytes."""

    begin: float
    end: float
    sent: int
    received: int


class Wire:
    """A running wire, seen from the process that started it."""

    def __init__(self, address: str, control: str, pid: int) -> None:
        self.endpoint, self._control, self.pid = f"http://{address}", _place(control), pid

    def requests(self) -> list[Request]:
        """The requests since this was last asked for, in the order in which they began."""
        with socket.create_connection(self._control) as asked:
            told = b"".join(iter(lambda: asked.recv(PIECE_BYTES), b""))
        return sorted(Request(*each) for each in json.loads(told))


def depth(requests: list[Request]) -> int:
    """How many requests had to wait for each other, one after another, at the most."""
    found, until = 0, 0.0
    for request in sorted(requests, key=lambda each: each.end):
        if request.begin >= until:
            found, until = found + 1, request.end
    return found


@contextmanager
def wire(endpoint: str, delay_ms: int) -> Iterator[Wire]:
    """A wire to the server at this endpoint, in a process of its own."""
    command = [sys.executable, "-m", "tests.bench.wire", endpoint.removeprefix("http://")]
    running = subprocess.Popen([*command, str(delay_ms)], stdout=subprocess.PIPE, text=True)
    try:
        assert running.stdout is not None
        address, control = running.stdout.readline().split()
        yield Wire(address, control, running.pid)
    finally:
        running.kill()
        running.wait()


def _place(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


class _Server:
    """The wire's own side: a thread for each direction of each connection."""

    def __init__(self, upstream: str, delay_ms: int) -> None:
        self._upstream, self._delay_s = _place(upstream), delay_ms / 1000
        self._seen: list[list[float]] = []
        self._lock = threading.Lock()
        self._wire, self._control = (socket.create_server(("127.0.0.1", 0)) for _ in range(2))

    def run(self) -> None:
        addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in (self._wire, self._control)]
        print(*addresses, flush=True)
        threading.Thread(target=self._tell, daemon=True).start()
        while True:
            client, _ = self._wire.accept()
            server = socket.create_connection(self._upstream)
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            exchange = _Exchange()
            for pass_on in (self._send, self._receive):
                threading.Thread(
                    target=pass_on, args=(client, server, exchange), daemon=True
                ).start()

    def _tell(self) -> None:
        while True:
            asked, _ = self._control.accept()
            with self._lock:
                told, self._seen = self._seen, []
            with asked:
                asked.sendall(json.dumps(told).encode())

    def _send(self, client: socket.socket, server: socket.socket, exchange: _Exchange) -> None:
        """What the client says; the first bytes of a request are held back."""
        buffer = memoryview(bytearray(PIECE_BYTES))
        while size := _received(client, buffer):
            if exchange.answered:
                exchange.answered = False
                exchange.request = [time.monotonic(), 0.0, 0, 0]
                with self._lock:
                    self._seen.append(exchange.request)
                time.sleep(self._delay_s)
            exchange.request[2] += size
            if not _sent(server, buffer[:size]):
                break
        _shut(server)

    def _receive(self, client: socket.socket, server: socket.socket, exchange: _Exchange) -> None:
        """What the server says."""
        buffer = memoryview(bytearray(PIECE_BYTES))
        while size := _received(server, buffer):
            exchange.answered = True
            exchange.request[1] = time.monotonic()
            exchange.request[3] += size
            if not _sent(client, buffer[:size]):
                break
        _shut(client)


class _Exchange:
    """What goes on on a connection."""

    answered = True

    def __init__(self) -> None:
        self.request: list[float] = [0.0] * 4


def _received(source: socket.socket, buffer: memoryview) -> int:
    try:
        return source.recv_into(buffer)
    except OSError:
        return 0


def _sent(target: socket.socket, data: memoryview) -> bool:
    try:
        target.sendall(data)
    except OSError:
        return False
    return True


def _shut(end: socket.socket) -> None:
    try:
        end.shutdown(socket.SHUT_WR)
    except OSError:
        end.close()


if __name__ == "__main__":
    _Server(sys.argv[1], int(sys.argv[2])).run()
