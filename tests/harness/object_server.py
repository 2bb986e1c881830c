"""An S3 server on loopback that ends connections at any stage of any request.

It serves objects in memory, or the files below a folder, does what a store asks of S3, and checks
no signature. Unlike a proxy it knows how far a request came, so it also ends one that it has half
read, and a reply in the middle of its head. `tests.harness.s3_server` is a real server.
"""

import mmap
import os
import re
import threading
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from email.utils import formatdate
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

from tests.harness.listening import Handler, listening

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


class ObjectServer:
    """A running server: the requests that it got, and `choice`, which cuts them.

    An upload has at most `most_parts`, a listing has so many keys a `page`, and each request takes
    `wait_s` more.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or Path()
        self.objects: Any = {} if folder is None else _Files(folder)
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.asked: list[Asked] = []
        self.sent: list[int] = []  # bytes of objects, by request
        self.choice: Choice = lambda _asked: None
        self.most_parts, self.page, self.wait_s = 10_000, 1000, 0.0
        self.running = self.at_once = 0  # requests now, and at most
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


class _Files(Mapping[str, Any]):
    """The files below a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __getitem__(self, key: str) -> Any:
        path = self._folder / key
        if not path.is_file():
            raise KeyError(key)
        if not path.stat().st_size:
            return b""
        with path.open("rb") as file:  # only what is sent is read
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def __iter__(self) -> Iterator[str]:
        for place, _, names in os.walk(self._folder):
            below = os.path.relpath(place, self._folder)
            yield from names if below == "." else (f"{below}/{name}" for name in names)

    def __len__(self) -> int:
        return sum(1 for _ in self)


@contextmanager
def object_server(folder: Path | None = None) -> Iterator[ObjectServer]:
    """A server of the files below `folder`, or without objects, on a free port."""
    served = ObjectServer(folder)
    handler = type("Handler", (_Handler,), {"served": served})
    with listening(handler) as served.endpoint:
        yield served


class _Reply(NamedTuple):
    status: int
    body: bytes = b""
    headers: Mapping[str, str] = MappingProxyType({})


class _Handler(Handler):
    served: ObjectServer

    def serve(self) -> None:
        served = self.served
        with served.lock:
            served.running += 1
            served.at_once = max(served.at_once, served.running)
        try:
            time.sleep(served.wait_s)
            self._answer()
        finally:
            with served.lock:
                served.running -= 1

    def _answer(self) -> None:
        url = urlsplit(self.path)
        self._query = parse_qs(url.query, keep_blank_values=True)
        self._key = unquote(url.path).removeprefix(f"/{BUCKET}").strip("/")
        asked = Asked(self._kind(), self._key)
        with self.served.lock:
            self.served.asked.append(asked)
            cut = self.served.choice(asked)
        length = int(self.headers.get("Content-Length") or 0)
        if cut is Cut.UNREAD:
            return self.hang_up()
        body = self.rfile.read(length // 2 if cut is Cut.HALF_READ else length)
        if cut in {Cut.HALF_READ, Cut.UNDONE, Cut.UNDONE_RESET}:
            return self.hang_up(reset=cut is Cut.UNDONE_RESET)
        with self.served.lock:
            reply: _Reply = getattr(self, f"_{asked.kind.lower()}")(body)
        if cut in {Cut.DONE, Cut.DONE_RESET}:
            return self.hang_up(reset=cut is Cut.DONE_RESET)
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
            self.hang_up()

    def _found(self) -> tuple[Any, dict[str, str]]:
        data = self.served.objects.get(self._key)
        tag = f'"{zlib.crc32((data or b"")[: 1 << 16])}"'  # of a large file this is enough
        return data, {"Last-Modified": formatdate(1_700_000_000, usegmt=True), "ETag": tag}

    def _get(self, _body: bytes) -> _Reply:
        data, headers = self._found()
        if data is None:
            return _Reply(404, b"<Error><Code>NoSuchKey</Code></Error>")
        start, end, status = 0, len(data), 200
        if asked := re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", "")):
            start = int(asked[1]) if asked[1] else end - int(asked[2])
            end = min(end, int(asked[2]) + 1) if asked[1] and asked[2] else end
            headers["Content-Range"], status = f"bytes {start}-{end - 1}/{len(data)}", 206
        self.served.sent.append(max(0, end - start))
        return _Reply(status, data[start:end], headers)

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
        """A page; a token is the last key of the page before."""
        asked = defaultdict(str, {name: values[0] for name, values in self._query.items()})
        prefix, after = asked["prefix"], asked["continuation-token"] or asked["start-after"]
        folders = dict[str, str]()  # by name, the part of the name that is a folder
        for key in sorted(each for each in self.served.objects if each.startswith(prefix)):
            below, delimiter, _ = key.removeprefix(prefix).partition(asked["delimiter"] or "\n")
            folders[prefix + below + delimiter] = delimiter
        names = [name for name in folders if name > after]
        page = names[: self.served.page]
        body = "".join(
            _folder(n) if folders[n] else _object(n, self.served.objects[n]) for n in page
        )
        if len(page) < len(names):
            body += f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>"
        return _Reply(200, f"<ListBucketResult>{body}</ListBucketResult>".encode())

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


def _object(key: str, data: bytes) -> str:
    return (
        f"<Contents><Key>{escape(key)}</Key><Size>{len(data)}</Size><ETag>1</ETag>"
        "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
    )


def _folder(name: str) -> str:
    return f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>"
