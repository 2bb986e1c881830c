"""Input files as streams of bytes: opened through a store, decompressed, taken out of archives."""

from __future__ import annotations

import io
import os
import re
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import pyarrow as pa

from seglake.config import Pipeline
from seglake.errors import InputError, StoreError
from seglake.store import open_store

if TYPE_CHECKING:
    from typing_extensions import Buffer

_MAGIC = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\x28\xb5\x2f\xfd": "zstd"}
_REFUSED = {b"PK\x03\x04": "a zip archive", b"\xfd7zXZ": "xz", b"\x04\x22\x4d\x18": "lz4"}
_READ_BYTES = 1 << 20  # how much of a compressed file is asked for at once
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
    """An input file as a seekable binary file, up to the size it was listed with."""

    def __init__(self, file: SourceFile, pipeline: Pipeline, start: int = 0) -> None:
        root, self._key = locate(file.path)
        self._store = open_store(root, pipeline.storage)
        self._file, self._position = file, start

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        origin = (0, self._position, self._file.size)[whence]
        self._position = origin + offset
        return self._position

    def readinto(self, target: Buffer) -> int:
        view = memoryview(target).cast("B")
        end = min(self._position + len(view), self._file.size)
        if end <= self._position:
            return 0
        try:
            data = self._store.read(self._key, self._position, end)
        except StoreError as problem:
            path = self._file.path
            raise InputError(f"{path}: cannot be read: {problem}; was it changed?") from problem
        view[: end - self._position] = memoryview(data)
        size, self._position = end - self._position, end
        return size


class _Unpacked:
    """The decompressed bytes of a file; concatenated members and frames follow one another.

    Memory is bounded whatever the ratio, since only what was asked for is decompressed.
    """

    def __init__(self, raw: RawFile, path: str, codec: str) -> None:
        self._raw, self._path, self._codec = raw, path, codec
        buffered = io.BufferedReader(raw, _READ_BYTES)
        with self._errors():
            self._stream = pa.CompressedInputStream(pa.PythonFile(buffered, "r"), codec)

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
        except (OSError, pa.ArrowException) as problem:
            raise InputError(
                f"{self._path}: {self._codec} data is damaged or cut off, noticed after reading "
                f"{self._raw.tell()} of its bytes: {problem}; write the file again"
            ) from problem


def open_parts(file: SourceFile, pipeline: Pipeline) -> Iterator[tuple[str, Stream]]:
    """The content of a whole file: (path, stream), or one such pair per member of a tar archive.

    A member's path is "<path of the archive>!<name of the member>". Each stream must be used up
    before the next is taken.

    Raises:
        InputError: the compression is not supported, or bytes are damaged; also while reading.
    """
    codec = find_codec(file, pipeline)
    if _is_tar(_open(file, pipeline, codec)):
        yield from _members(file.path, _open(file, pipeline, codec))
    else:
        yield file.path, _open(file, pipeline, codec)


def find_codec(file: SourceFile, pipeline: Pipeline) -> str | None:
    """The codec of a file: what the settings say or else its first bytes; None: not compressed."""
    if pipeline.input.compression != "auto":
        given = pipeline.input.compression
        return None if given == "none" else given
    head = RawFile(file, pipeline).read(8) or b""
    for magic, name in _REFUSED.items():
        if head.startswith(magic):
            raise InputError(f"{file.path}: is {name}; give gzip, bz2, zstd, tar or plain files")
    return next((name for magic, name in _MAGIC.items() if head.startswith(magic)), None)


def is_archive(file: SourceFile, pipeline: Pipeline) -> bool:
    """Whether an uncompressed file is a tar archive."""
    return _is_tar(RawFile(file, pipeline))


def _open(file: SourceFile, pipeline: Pipeline, codec: str | None) -> RawFile | _Unpacked:
    raw = RawFile(file, pipeline)
    return _Unpacked(raw, file.path, codec) if codec else raw


def _is_tar(stream: RawFile | _Unpacked) -> bool:
    head = b""
    while len(head) < 512 and (more := stream.read(512 - len(head))):
        head += more
    return head[_TAR_MAGIC_AT:].startswith(_TAR_MAGIC)


def _members(path: str, stream: RawFile | _Unpacked) -> Iterator[tuple[str, Stream]]:
    try:
        with tarfile.open(fileobj=stream, mode="r|") as archive:  # type: ignore[call-overload]  # read() is all that "r|" uses
            for member in archive:
                content = archive.extractfile(member) if member.isreg() else None
                if content is not None:
                    yield f"{path}!{member.name}", content  # type: ignore[misc]  # typeshed: IO[bytes] lacks readinto
    except tarfile.TarError as problem:
        raise InputError(f"{path}: tar archive is damaged: {problem}; write it again") from problem
