"""Compressed input files: the codec of a file, and its content as a stream."""

from __future__ import annotations

import bz2
import io
import re
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from seglake.errors import InputError
from seglake.write.input.streams import RawFile

if TYPE_CHECKING:
    from typing_extensions import Buffer

Codec = Literal["gzip", "bz2", "zstd"]

HEAD_BYTES = 16
_MAGIC: tuple[tuple[re.Pattern[bytes], Codec], ...] = (
    (re.compile(rb"\x1f\x8b\x08"), "gzip"),
    (re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)"), "bz2"),
    (re.compile(rb"\x28\xb5\x2f\xfd"), "zstd"),
)
_REFUSED = {b"PK\x03\x04": "a zip archive", b"\xfd7zXZ\x00": "xz", b"\x04\x22\x4d\x18": "lz4"}
_READ_BYTES = 1 << 20  # read at once from a compressed file


def codec_of(head: bytes, path: str) -> Codec | None:
    """The codec that the first HEAD_BYTES of a file name; None if the file is not compressed.

    Raises InputError for a compression that is not supported.
    """
    for magic, name in _REFUSED.items():
        if head.startswith(magic):
            raise InputError(f"{path}: this is {name}; give gzip, bz2, zstd, tar or plain files")
    return next((name for magic, name in _MAGIC if magic.match(head)), None)


def decompressed(raw: RawFile, codec: Codec | None, path: str) -> Content:
    """The content of a file; errors of the codec become InputErrors that name the file."""
    if codec is None:
        return Content(raw, path, "", raw)
    buffered = io.BufferedReader(raw, _READ_BYTES)
    if codec == "bz2":  # Arrow's reader fails at an empty stream among several
        return Content(io.BufferedReader(_Bz2Streams(buffered)), path, codec, raw)
    unpacked = pa.CompressedInputStream(pa.PythonFile(buffered, "r"), codec)
    return Content(unpacked, path, codec, raw)


class Content:
    """The decompressed content of a file, as a stream whose errors name the file.

    `stream` has the content, `what` is the codec or "tar", and `raw` is the stored file. Memory is
    bounded for any compression ratio: a read decompresses only the bytes that it returns.
    """

    def __init__(self, stream: Any, path: str, what: str, raw: RawFile) -> None:
        self._stream, self._path, self._what, self.raw = stream, path, what, raw

    def readinto(self, target: memoryview, /) -> int:
        """Fill the beginning of `target`; returns the count of bytes, 0 at the end."""
        with self._errors():
            return int(self._stream.readinto(target))

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes, b"" at the end."""
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


class _Bz2Streams(io.RawIOBase):
    """The streams of a bz2 file, joined.

    BZ2File would treat damage at the beginning of a stream as the end of the file.
    """

    def __init__(self, file: io.BufferedIOBase) -> None:
        self._file, self._unpacker = file, bz2.BZ2Decompressor()

    def readable(self) -> bool:
        """Return True; see io."""
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
