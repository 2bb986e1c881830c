"""A small object store on loopback, in this process: the files below a folder, as S3 serves them.

It serves reads alone, checks no signature, and needs nothing but Python: for tests of what clients
ask for. `tests.harness.s3_server` is a real server.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from tests.harness.listening import listening

BUCKET = "bucket"


class Asked(NamedTuple):
    """A request: its method, its object or `?list`, and the bytes of its answer."""

    method: str
    key: str
    size: int


@dataclass
class ObjectServer:
    """A running server. `cut` says of which answers only the first half is sent."""

    folder: Path
    endpoint: str = ""
    asked: list[Asked] = field(default_factory=list)
    cut: Callable[[Asked], bool] = lambda _asked: False

    @property
    def root(self) -> str:
        """The URI of the folder."""
        return f"s3://{BUCKET}"

    @property
    def options(self) -> dict[str, str]:
        """Storage options for a client."""
        return {
            "endpoint": self.endpoint, "region": "us-east-1", "allow_http": "true",
            "skip_signature": "true", "timeout": "10s",
        }  # fmt: skip


@contextmanager
def object_server(folder: Path) -> Iterator[ObjectServer]:
    """A server of the files below `folder`, on a free port."""
    served = ObjectServer(folder)
    handler = type("Handler", (_Handler,), {"served": served})
    with listening(handler) as served.endpoint:
        yield served


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    served: ObjectServer

    def log_message(self, *_: object) -> None:
        """Nothing."""

    def do_HEAD(self) -> None:  # http.server's name
        self.do_GET()

    def do_GET(self) -> None:  # http.server's name
        url = urlsplit(self.path)
        key = unquote(url.path).removeprefix(f"/{BUCKET}").strip("/")
        path = self.served.folder / key
        if url.query:
            self._reply(200, "?list", self._listing(parse_qs(url.query)))
        elif path.is_file():
            self._object(key, path)
        else:
            self._reply(404, key, b"<Error><Code>NoSuchKey</Code></Error>")

    def _object(self, key: str, path: Path) -> None:
        size, start, end = path.stat().st_size, 0, path.stat().st_size
        headers = {"Last-Modified": formatdate(path.stat().st_mtime, usegmt=True), "ETag": '"1"'}
        if asked := re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", "")):
            start = int(asked[1]) if asked[1] else size - int(asked[2])
            end = min(size, int(asked[2]) + 1) if asked[1] and asked[2] else size
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
        with path.open("rb") as file:
            file.seek(start)
            self._reply(206 if asked else 200, key, file.read(max(0, end - start)), headers)

    def _listing(self, query: dict[str, list[str]]) -> bytes:
        prefix, after = query.get("prefix", [""])[0], query.get("start-after", [""])[0]
        files = {p.relative_to(self.served.folder).as_posix(): p.stat()
                 for p in self.served.folder.rglob("*") if p.is_file()}  # fmt: skip
        items = [
            f"<Contents><Key>{escape(key)}</Key><Size>{found.st_size}</Size><ETag>1</ETag>"
            "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
            for key, found in sorted(files.items())
            if key.startswith(prefix) and key > after
        ]
        return f"<ListBucketResult>{''.join(items)}</ListBucketResult>".encode()

    def _reply(
        self, status: int, key: str, data: bytes, headers: dict[str, str] | None = None
    ) -> None:
        asked = Asked(self.command, key, len(data) if self.command == "GET" else 0)
        cut = self.command == "GET" and len(data) > 1 and self.served.cut(asked)
        self.served.asked.append(asked)
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data[: len(data) // 2] if cut else data)
        self.close_connection = cut or self.close_connection
