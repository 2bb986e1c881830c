"""A small object store on loopback, in this process: the files below a folder, as S3 serves them.

It serves reads alone, checks no signature, and needs nothing but Python: for tests of what clients
ask for. `tests.harness.s3_server` is a real server.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from threading import Lock
from time import sleep
from typing import Any, NamedTuple
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
    """A running server.

    `cut` says of which answers only the first half is sent. A listing has so many keys a `page`,
    and each request takes `wait_s` more.
    """

    folder: Path
    endpoint: str = ""
    asked: list[Asked] = field(default_factory=list)
    cut: Callable[[Asked], bool] = lambda _asked: False
    page: int = 1000
    wait_s: float = 0
    running: int = 0
    at_once: int = 0  # requests, at most
    lock: Any = field(default_factory=Lock)

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
        with self._counted():
            sleep(self.served.wait_s)
            self._answer()

    @contextmanager
    def _counted(self) -> Iterator[None]:
        served = self.served
        with served.lock:
            served.running += 1
            served.at_once = max(served.at_once, served.running)
        try:
            yield
        finally:
            with served.lock:
                served.running -= 1

    def _answer(self) -> None:
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
        """A page; a token is the last key of the page before."""
        asked = defaultdict(str, {name: values[0] for name, values in query.items()})
        prefix, after = asked["prefix"], asked["continuation-token"] or asked["start-after"]
        files = {p.relative_to(self.served.folder).as_posix(): p.stat()
                 for p in self.served.folder.rglob("*") if p.is_file()}  # fmt: skip
        items = dict[str, str]()
        for key in sorted(each for each in files if each.startswith(prefix)):
            below, delimiter, _ = key.removeprefix(prefix).partition(asked["delimiter"] or "\n")
            name = prefix + below + delimiter
            items[name] = _folder(name) if delimiter else _object(name, files[key].st_size)
        names = [name for name in items if name > after]
        page = names[: self.served.page]
        body = "".join(items[name] for name in page)
        if len(page) < len(names):
            body += f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>"
        return f"<ListBucketResult>{body}</ListBucketResult>".encode()

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


def _object(key: str, size: int) -> str:
    return (
        f"<Contents><Key>{escape(key)}</Key><Size>{size}</Size><ETag>1</ETag>"
        "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
    )


def _folder(name: str) -> str:
    return f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>"
