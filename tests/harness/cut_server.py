"""An S3 server in memory, on loopback, that ends connections at any stage of any request.

It does what a store asks of S3, and checks no signature. Unlike a proxy it knows how far a request
came, so it also ends one that it has half read, and a reply in the middle of its head.
"""

from __future__ import annotations

import re
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from email.utils import formatdate
from enum import Enum
from hashlib import md5
from http.server import BaseHTTPRequestHandler
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

from tests.harness.listening import listening

BUCKET = "bucket"


class Cut(Enum):
    """Where a connection ends."""

    UNREAD = "before the request is read"
    HALF_READ = "in the middle of the request"
    UNDONE = "before the request is done"
    UNDONE_RESET = "before the request is done, by a reset"
    DONE = "the request is done, and there is no reply"
    DONE_RESET = "the request is done, and a reset is the reply"
    STATUS = "in the middle of the reply's first line"
    HEAD = "in the middle of the reply's headers"
    BODY = "in the middle of the reply's body"


class Asked(NamedTuple):
    """A request: what it is, and of which object."""

    kind: str  # its method, or what S3 calls it
    key: str


Choice = Callable[[Asked], Cut | None]


class CutServer:
    """A running server: its `objects`, the requests that it got, and `choice`, which cuts them.

    An upload has at most `most_parts`.
    """

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.asked: list[Asked] = []
        self.choice: Choice = lambda _asked: None
        self.most_parts = 10_000
        self.lock = threading.RLock()
        self.endpoint = ""

    @property
    def root(self) -> str:
        """The URI of all objects."""
        return f"s3://{BUCKET}"

    @property
    def options(self) -> dict[str, str]:
        """Storage options for a client."""
        return {
            "endpoint": self.endpoint, "region": "us-east-1", "allow_http": "true",
            "skip_signature": "true", "timeout": "20s",
        }  # fmt: skip

    def count(self, kind: str) -> int:
        """How many requests of this kind came."""
        return sum(asked.kind == kind for asked in self.asked)


@contextmanager
def cut_server() -> Iterator[CutServer]:
    """A server without objects, on a free port."""
    served = CutServer()
    handler = type("Handler", (_Handler,), {"served": served})
    with listening(handler) as served.endpoint:
        yield served


class _Reply(NamedTuple):
    status: int
    body: bytes = b""
    headers: Mapping[str, str] = MappingProxyType({})


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    served: CutServer

    def parse_request(self) -> bool:
        """Every method is served alike."""
        good = super().parse_request()
        setattr(self, f"do_{self.command}", self._serve)
        return good

    def log_message(self, *_: object) -> None:
        """Nothing."""

    def _serve(self) -> None:
        url = urlsplit(self.path)
        self._query = parse_qs(url.query, keep_blank_values=True)
        self._key = unquote(url.path).removeprefix(f"/{BUCKET}").strip("/")
        asked = Asked(self._kind(), self._key)
        with self.served.lock:
            self.served.asked.append(asked)
            cut = self.served.choice(asked)
        length = int(self.headers.get("Content-Length") or 0)
        if cut is Cut.UNREAD:
            return self._hang_up()
        body = self.rfile.read(length // 2 if cut is Cut.HALF_READ else length)
        if cut in {Cut.HALF_READ, Cut.UNDONE, Cut.UNDONE_RESET}:
            return self._hang_up(reset=cut is Cut.UNDONE_RESET)
        with self.served.lock:
            reply: _Reply = getattr(self, f"_{asked.kind.lower()}")(body)
        if cut in {Cut.DONE, Cut.DONE_RESET}:
            return self._hang_up(reset=cut is Cut.DONE_RESET)
        return self._send(reply, cut)

    def _kind(self) -> str:
        names = {
            ("GET", "list-type"): "LIST", ("POST", "delete"): "DELETE",
            ("POST", "uploads"): "BEGIN", ("PUT", "partNumber"): "PART",
            ("POST", "uploadId"): "COMPLETE", ("DELETE", "uploadId"): "ABORT",
        }  # fmt: skip
        found = (name for (method, key), name in names.items()
                 if method == self.command and key in self._query)  # fmt: skip
        kind = next(found, self.command)
        return "CREATE" if kind == "PUT" and "If-None-Match" in self.headers else kind

    def _send(self, reply: _Reply, cut: Cut | None) -> None:
        headers = {"Content-Length": str(len(reply.body)), **reply.headers}
        lines = [f"HTTP/1.1 {reply.status} Told", *(f"{k}: {v}" for k, v in headers.items())]
        body = b"" if self.command == "HEAD" else reply.body
        head = "\r\n".join([*lines, "", ""]).encode()
        ends = {Cut.STATUS: 6, Cut.HEAD: len(head) // 2, Cut.BODY: len(head) + len(body) // 2}
        self.wfile.write((head + body)[: ends[cut] if cut else None])
        if cut:
            self._hang_up()

    def _hang_up(self, *, reset: bool = False) -> None:
        self.close_connection = True
        if reset:  # closing with nothing lingering sends RST
            linger = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.connection.close()
        else:
            self.connection.shutdown(socket.SHUT_RDWR)

    def _found(self) -> tuple[bytes | None, dict[str, str]]:
        data = self.served.objects.get(self._key)
        tag = f'"{md5(data or b"", usedforsecurity=False).hexdigest()}"'
        return data, {"Last-Modified": formatdate(1_700_000_000, usegmt=True), "ETag": tag}

    def _get(self, _body: bytes) -> _Reply:
        data, headers = self._found()
        if data is None:
            return _Reply(404, b"<Error><Code>NoSuchKey</Code></Error>")
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if not asked:
            return _Reply(200, data, headers)
        start, end = int(asked[1]), min(len(data), int(asked[2] or len(data)) + 1)
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(data)}"
        return _Reply(206, data[start:end], headers)

    def _head(self, _body: bytes) -> _Reply:
        data, headers = self._found()
        return _Reply(404) if data is None else _Reply(200, data, headers)

    def _put(self, body: bytes) -> _Reply:
        self.served.objects[self._key] = body
        return _Reply(200, headers={"ETag": self._found()[1]["ETag"]})

    def _create(self, body: bytes) -> _Reply:
        if self._key in self.served.objects:
            return _Reply(412, b"<Error><Code>PreconditionFailed</Code></Error>")
        return self._put(body)

    def _list(self, _body: bytes) -> _Reply:
        prefix = self._query.get("prefix", [""])[0]
        after = self._query.get("start-after", [""])[0]
        items = [
            f"<Contents><Key>{escape(key)}</Key><Size>{len(data)}</Size><ETag>1</ETag>"
            "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
            for key, data in sorted(self.served.objects.items())
            if key.startswith(prefix) and key > after
        ]
        return _Reply(200, f"<ListBucketResult>{''.join(items)}</ListBucketResult>".encode())

    def _delete(self, body: bytes) -> _Reply:
        keys = [unescape(key) for key in re.findall(r"<Key>(.*?)</Key>", body.decode())]
        gone = "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in keys)
        for key in keys:
            self.served.objects.pop(key, None)
        return _Reply(200, f"<DeleteResult>{gone}</DeleteResult>".encode())

    def _begin(self, _body: bytes) -> _Reply:
        name = f"upload-{len(self.served.uploads)}"
        self.served.uploads[name] = {}
        found = f"<UploadId>{name}</UploadId>"
        return _Reply(200, f"<InitiateMultipartUploadResult>{found}"
                           "</InitiateMultipartUploadResult>".encode())  # fmt: skip

    def _part(self, body: bytes) -> _Reply:
        upload, number = self._query["uploadId"][0], int(self._query["partNumber"][0])
        if number > self.served.most_parts:
            return _Reply(400, b"<Error><Code>InvalidArgument</Code></Error>")
        self.served.uploads[upload][number] = body
        return _Reply(200, headers={"ETag": f'"{number}"'})

    def _complete(self, _body: bytes) -> _Reply:
        parts = self.served.uploads.pop(self._query["uploadId"][0], None)
        if parts is None:
            return _Reply(404, b"<Error><Code>NoSuchUpload</Code></Error>")
        self.served.objects[self._key] = b"".join(parts[number] for number in sorted(parts))
        return _Reply(200, b"<CompleteMultipartUploadResult><ETag>1</ETag>"
                           b"</CompleteMultipartUploadResult>")  # fmt: skip

    def _abort(self, _body: bytes) -> _Reply:
        self.served.uploads.pop(self._query["uploadId"][0], None)
        return _Reply(204)
