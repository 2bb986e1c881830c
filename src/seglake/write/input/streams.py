"""Input files as streams of bytes: opened through a store, decompressed, taken out of archives."""

from __future__ import annotations

import bz2
import io
import os
import re
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import pyarrow as pa

from seglake.config import Pipeline
from seglake.errors import InputError, StoreError
from seglake.store import open_store

if TYPE_CHECKING:
    from typing_extensions import Buffer

Codec = Literal["gzip", "bz2", "zstd"]

_MAGIC: tuple[tuple[re.Pattern[bytes], Codec], ...] = (
    (re.compile(rb"\x1f\x8b\x08"), "gzip"),
    (re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)"), "bz2"),
    (re.compile(rb"\x28\xb5\x2f\xfd"), "zstd"),
)
_REFUSED = {b"PK\x03\x04": "a zip archive", b"\xfd7zXZ\x00": "xz", b"\x04\x22\x4d\x18": "lz4"}
_READ_BYTES = 1 << 20  # how much of a compressed file is asked for at once
_HEADER_BYTES = 2 << 20  # of a member of an archive, at most
_TAR_MAGIC, _TAR_MAGIC_AT = b"ustar", 257


class SourceFile(NamedTuple):
    """An input file. `path` is absolute: a local path, or a URI."""

    path: str
    size: int
    modified_ms: int
    etag: str | None


def locate(path: str) -> tuple[str, str]:
    """A path as (root of a store, key in it): the folder and name, or the bucket and the rest."""
    if "://" in path and not path.startswith("file:"):
        scheme, _, rest = path.partition("://")
        bucket, _, key = rest.partition("/")
        return f"{'s3' if scheme == 's3a' else scheme}://{bucket}", key
    local = Path(os.path.abspath(_local(path)))  # noqa: PTH100  resolve() would follow links
    return str(local.parent), local.name


def _local(path: str) -> str:
    return re.sub(r"^file:(//)?(?=/)", "", path)


class Stream(Protocol):
    """Bytes in order."""

    def readinto(self, target: memoryview) -> int:
        """Fill the beginning of `target`; the count of bytes, 0 at the end."""


class RawFile(io.RawIOBase):
    """An input file as a seekable binary file, up to the size it was listed with.

    A local file is read straight into the caller's memory; a store would hand out a copy.
    """

    def __init__(self, file: SourceFile, pipeline: Pipeline, start: int = 0) -> None:
        root, self._key = locate(file.path)
        self._file, self._position = file, start
        self._store = open_store(root, pipeline.storage)
        self._local = None if "://" in file.path else self._open_local()

    def _open_local(self) -> io.FileIO:
        with self._errors():
            return io.FileIO(self._file.path)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (OSError, EOFError, StoreError) as problem:
            path = self._file.path
            raise InputError(f"{path}: cannot be read: {problem}; was it changed?") from problem

    def close(self) -> None:
        """Let go of a local file."""
        if not self.closed and self._local is not None:
            self._local.close()
        super().close()

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """The position of the next byte."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to a position; see io."""
        origin = (0, self._position, self._file.size)[whence]
        self._position = origin + offset
        return self._position

    def readinto(self, target: Buffer) -> int:
        """Fill the beginning of `target`; see io."""
        view = memoryview(target).cast("B")
        end = min(self._position + len(view), self._file.size)
        if end <= self._position:
            return 0
        with self._errors():
            size = self._read(view[: end - self._position])
        self._position += size
        return size

    def _read(self, view: memoryview) -> int:
        """Fill `view` from the position, or its beginning."""
        if self._local is not None:
            size = os.preadv(self._local.fileno(), [view], self._position)
            if size == 0:
                raise EOFError(f"it ends at byte {self._position}")
            return size
        view[:] = memoryview(
            self._store.read(self._key, self._position, self._position + len(view))
        )
        return len(view)


class _Bz2Streams(io.RawIOBase):
    """The streams of a bz2 file, one behind the other.

    BZ2File takes damage at the beginning of a stream for the end of the file.
    """

    def __init__(self, file: io.BufferedIOBase) -> None:
        self._file, self._unpacker = file, bz2.BZ2Decompressor()

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, target: Buffer) -> int:
        """Fill the beginning of `target`; see io."""
        view, data = memoryview(target).cast("B"), b""
        while not data:
            packed = b""
            if self._unpacker.eof:
                packed = self._unpacker.unused_data or self._file.read(_READ_BYTES)
                if not packed:
                    return 0
                self._unpacker = bz2.BZ2Decompressor()
            elif self._unpacker.needs_input:
                packed = self._file.read(_READ_BYTES)
                if not packed:
                    raise EOFError("the file ends within a stream")
            data = self._unpacker.decompress(packed, len(view))
        view[: len(data)] = data
        return len(data)


class _Checked:
    """A stream whose errors say which file is damaged.

    Memory is bounded whatever the ratio of a compressed file, since what was asked for is
    decompressed and no more.
    """

    def __init__(self, stream: Any, path: str, what: str, raw: RawFile) -> None:
        self._stream, self._path, self._what, self.raw = stream, path, what, raw

    def readinto(self, target: memoryview) -> int:
        with self._errors():
            return int(self._stream.readinto(target))

    def read(self, size: int) -> bytes:
        with self._errors():
            return bytes(self._stream.read(size))

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except InputError:
            raise
        except (OSError, EOFError, tarfile.TarError, pa.ArrowException) as problem:
            raise InputError(
                f"{self._path}: {self._what} data is damaged or cut off, noticed after reading "
                f"{self.raw.tell()} bytes of the file: {problem}; write the file again"
            ) from problem


def open_parts(file: SourceFile, pipeline: Pipeline) -> Iterator[tuple[str, Stream]]:
    """The content of a whole file: (path, stream), or one such pair per member of a tar archive.

    A member's path is "<path of the archive>!<name of the member>". Each stream must be used up
    before the next is taken.

    Raises:
        InputError: the compression is not supported, or bytes are damaged; also while reading.
    """
    codec = find_codec(file, pipeline)
    if is_archive(file, pipeline, codec):
        yield from _members(file, _open(file, pipeline, codec))
    else:
        yield file.path, _open(file, pipeline, codec)


def find_codec(file: SourceFile, pipeline: Pipeline) -> Codec | None:
    """The codec of a file: what the settings say or else its first bytes; None: not compressed."""
    if pipeline.input.compression != "auto":
        given = pipeline.input.compression
        return None if given == "none" else given
    head = RawFile(file, pipeline).read(16) or b""
    for magic, name in _REFUSED.items():
        if head.startswith(magic):
            raise InputError(f"{file.path}: is {name}; give gzip, bz2, zstd, tar or plain files")
    return next((name for magic, name in _MAGIC if magic.match(head)), None)


def is_archive(file: SourceFile, pipeline: Pipeline, codec: Codec | None) -> bool:
    """Whether the content of a file is a tar archive; with `compression = "none"` it never is."""
    if pipeline.input.compression == "none":
        return False
    stream, head = _open(file, pipeline, codec), b""
    while len(head) < 512 and (more := stream.read(512 - len(head))):
        head += more
    return head[_TAR_MAGIC_AT:].startswith(_TAR_MAGIC)


def _open(file: SourceFile, pipeline: Pipeline, codec: Codec | None) -> RawFile | _Checked:
    raw = RawFile(file, pipeline)
    if codec is None:
        return raw
    buffered = io.BufferedReader(raw, _READ_BYTES)
    if codec == "bz2":  # Arrow's reader fails at an empty stream among several
        return _Checked(io.BufferedReader(_Bz2Streams(buffered)), file.path, codec, raw)
    unpacked = pa.CompressedInputStream(pa.PythonFile(buffered, "r"), codec)
    return _Checked(unpacked, file.path, codec, raw)


class _Bounded:
    """An archive of which no more is read, to find the next member, than `left` bytes.

    A name or a list of holes may be as long as the header says, and is held in memory.
    """

    def __init__(self, stream: Any) -> None:
        self._stream, self.left = stream, _HEADER_BYTES

    def read(self, size: int) -> bytes:
        data: bytes = self._stream.read(size)
        self.left -= len(data)
        if self.left < 0:
            raise tarfile.ReadError(f"a member's header has more than {_HEADER_BYTES} bytes")
        return data


def _members(file: SourceFile, stream: Any) -> Iterator[tuple[str, Stream]]:
    """The regular files of a tar archive."""
    raw = stream if isinstance(stream, RawFile) else stream.raw
    bounded = _Bounded(stream)
    try:
        # the stub asks for all of IO[bytes]; a stream is only read
        with tarfile.open(fileobj=bounded, mode="r|") as archive:  # type: ignore[call-overload]
            while (member := archive.next()) is not None:
                archive.members.clear()  # else it remembers them all
                content = archive.extractfile(member) if member.isreg() else None
                if content is not None:
                    bounded.left = sys.maxsize
                    name = member.name.encode(errors="surrogateescape").decode(errors="replace")
                    yield f"{file.path}!{name}", _Checked(content, file.path, "tar", raw)
                bounded.left = _HEADER_BYTES
    except (tarfile.TarError, ValueError) as problem:
        raise InputError(
            f"{file.path}: tar data is damaged: {problem}; write it again"
        ) from problem
