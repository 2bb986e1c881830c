"""A proxy in front of the S3 server that does to some requests what networks and servers do."""

import contextlib
import http.client
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import NamedTuple
from urllib.parse import unquote

from tests.harness.listening import Handler, listening

SLOW_S = 1.2


class Fault(Enum):
    """What happens to a request."""

    BUSY = "503, and nothing was done"
    BUSY_AFTER = "503, although it was done"
    RESET = "the connection is reset, and nothing was done"
    LOST = "done, but the connection ends before the reply"
    SLOW = "the reply comes late"
    CUT = "the reply ends in the middle of its body"
    DENIED = "403, for want of a right"
    FULL = "507, for want of space"
    REFUSED = "400, and the answer repeats the request's credentials, as those of AWS do"


LASTING = (Fault.DENIED, Fault.FULL, Fault.REFUSED)
PASSING = [fault for fault in Fault if fault not in LASTING]  # what may be over next time


class Request(NamedTuple):
    """A request as it went by: where to, what for, and what befell it."""

    method: str
    path: str
    fault: Fault | None


Choice = Callable[[str, str], Fault | None]  # (method, path) → what befalls the request


class Proxy:
    """Requests in the order of their coming are in `seen`; `choice` may be set at any time."""

    def __init__(self, endpoint: str) -> None:
        self.upstream = endpoint.removeprefix("http://")
        self.endpoint = ""
        self.choice: Choice = lambda _method, _path: None
        self.seen: list[Request] = []
        self._lock = threading.Lock()

    def fate(self, method: str, path: str) -> Fault | None:
        """What befalls a request; remembers it."""
        with self._lock:
            fault = self.choice(method, path)
            self.seen.append(Request(method, path, fault))
        return fault

    def faults(self) -> list[Request]:
        """The requests that something befell."""
        return [request for request in self.seen if request.fault]

    def count(self, method: str, path: str) -> int:
        """How many requests went by with this method and a path that holds this expression."""
        return sum(r.method == method and re.search(path, r.path) is not None for r in self.seen)


def nth(fault: Fault, number: int, method: str = ".*", path: str = "", times: int = 1) -> Choice:
    """Befalls so many requests from the `number`-th on, of those that match; counted from 1."""
    matched = 0

    def choice(of: str, where: str) -> Fault | None:
        nonlocal matched
        if not (re.fullmatch(method, of) and re.search(path, where)):
            return None
        matched += 1
        return fault if number <= matched < number + times else None

    return choice


@contextmanager
def faulty(endpoint: str) -> Iterator[Proxy]:
    """A proxy of the server at `endpoint`, on a free port."""
    proxy = Proxy(endpoint)
    with listening(type("Handler", (_Handler,), {"proxy": proxy})) as proxy.endpoint:
        yield proxy


class _Handler(Handler):
    """One connection: each request is sent on as it came, its signature with it."""

    proxy: Proxy

    def serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = self.proxy.fate(self.command, unquote(self.path))
        if fault is Fault.SLOW:
            time.sleep(SLOW_S)
        match fault:
            case Fault.BUSY:
                self._reply(503, [], b"<Error><Code>SlowDown</Code></Error>")
            case Fault.DENIED:
                self._reply(403, [], b"<Error><Code>AccessDenied</Code></Error>")
            case Fault.FULL:
                self._reply(507, [], b"<Error><Code>InsufficientCapacity</Code></Error>")
            case Fault.REFUSED:
                self._reply(400, [], self._refusal())
            case Fault.RESET:
                self.hang_up(reset=True)
            case _:
                self._pass(body, fault)

    def _pass(self, body: bytes, fault: Fault | None) -> None:
        """Let the server do it, whatever becomes of its reply."""
        try:
            status, headers, data = self._forward(body)
        except OSError:  # the server hung up: so does the proxy
            fault = Fault.LOST
        if fault is Fault.LOST:
            self.hang_up()
        elif fault is Fault.BUSY_AFTER:
            self._reply(503, [], b"")
        elif fault is Fault.CUT and len(data) > 1 and self.command != "HEAD":
            self._reply(status, headers, data, sent=len(data) // 2)
            self.hang_up()
        else:
            self._reply(status, headers, data)

    def _refusal(self) -> bytes:
        token = self.headers.get("x-amz-security-token", "")
        return (
            '<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>ExpiredToken</Code>'
            f"<Message>The provided token has expired.</Message><Token-0>{token}</Token-0>"
            f"<CanonicalRequest>{self.headers}</CanonicalRequest></Error>"
        ).encode()

    def _forward(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        upstream = http.client.HTTPConnection(self.proxy.upstream, timeout=30)
        try:
            upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() != "connection":
                    upstream.putheader(name, value)
            upstream.endheaders(body or None)
            reply = upstream.getresponse()
            return reply.status, reply.getheaders(), reply.read()
        finally:
            upstream.close()

    def _reply(
        self, status: int, headers: list[tuple[str, str]], data: bytes, sent: int | None = None
    ) -> None:
        dropped = {"connection", "keep-alive", "transfer-encoding"}
        kept = [(name, value) for name, value in headers if name.lower() not in dropped]
        if not any(name.lower() == "content-length" for name, _ in kept):
            kept.append(("Content-Length", str(len(data))))
        head = [f"HTTP/1.1 {status} {http.client.responses[status]}"]
        head += [f"{name}: {value}" for name, value in kept]
        text = "\r\n".join([*head, "", ""]).encode("latin-1")
        with contextlib.suppress(OSError):  # the client did not wait
            self.wfile.write(text + (b"" if self.command == "HEAD" else data[:sent]))
