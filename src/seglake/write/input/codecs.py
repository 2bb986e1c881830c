"""Recognize compressed input files, and read their content as a stream.

When a stream is read to its end, every checksum and length that its codec stores is checked.
"""

from __future__ import annotations

import bz2
import io
import re
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from seglake.config.input import Codec
from seglake.errors import InputError
from seglake.write.input.binaries import describe_binary
from seglake.write.input.files import PARQUET_MARK
from seglake.write.input.streams import RawFile, ReadAhead

if TYPE_CHECKING:
    from typing_extensions import Buffer

HEAD_BYTES = 16
_CODECS: dict[Codec, tuple[bytes, str]] = {  # expressions for the first bytes, and the suffix
    "gzip": (rb"\x1f\x8b\x08", "gz"),
    "bz2": (rb"BZh[1-9](1AY&SY|\x17rE8P\x90)", "bz2"),
    "zstd": (rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18", "zstd?"),  # a frame, or one to skip
}
SUFFIXES = "|".join(suffix for _, suffix in _CODECS.values())
_REFUSED = {  # first bytes → (name of the format, command that unpacks it)
    b"PK\x03\x04": ("a zip archive", "unzip"),
    b"\xfd7zXZ\x00": ("xz", "xz -d"),
    b"\x04\x22\x4d\x18": ("lz4", "lz4 -d"),
}
_READ_BYTES = 1 << 18  # read in one step from a compressed file


def detect_codec(head: bytes, path: str) -> Codec | None:
    """Return the codec of a file from its first HEAD_BYTES, or None if it is not compressed.

    Raises InputError for a compression that is not supported, and for known binary formats except
    Parquet. A Parquet file that is read as lines becomes rejects, which a redrive can read as
    Parquet.
    """
    if not head.startswith(PARQUET_MARK) and (remark := describe_binary(head)):
        raise InputError(f"{path}: {remark}")
    for magic, (name, command) in _REFUSED.items():
        if head.startswith(magic) and path.lower().endswith((".xlsx", ".xlsm", ".ods")):
            raise InputError(f"{path} is a spreadsheet. Save it as CSV")
        if head.startswith(magic):
            raise InputError(
                f"{path} is {name}. Unpack it with `{command} FILE`, because only "
                f"{', '.join(_CODECS)}, tar and plain files can be read"
            )
    return _named(head)


def _named(head: bytes) -> Codec | None:
    return next((name for name, (magic, _) in _CODECS.items() if re.match(magic, head)), None)


def decompress_stream(raw: RawFile, codec: Codec | None, path: str) -> Content:
    """Return the decompressed content of a file. Reading it may raise InputError."""
    if codec is None:
        return Content(raw, path, "", raw)
    buffered = io.BufferedReader(ReadAhead(raw) if raw.remote else raw, _READ_BYTES)
    if codec == "zstd":
        stream = pa.CompressedInputStream(pa.PythonFile(buffered, "r"), codec)
        return Content(stream, path, codec, raw)
    # Arrow's reader fails at an empty bz2 stream among several, and at zeros after a gzip member.
    streams = _JoinedStreams(buffered, _GzipMember if codec == "gzip" else bz2.BZ2Decompressor)
    return Content(io.BufferedReader(streams), path, codec, raw)


_ZSTD_REMARKS = {  # part of the library's error message → remark
    "too much memory": "its zstd window is larger than 128 MiB. Compress the file again: "
    "`zstd -dc --long=31 FILE | zstd > NEW`",
    "Dictionary mismatch": "the file needs a zstd dictionary. Compress it without one: "
    "`zstd -dc -D DICTIONARY FILE | zstd > NEW`",
}


class Content:
    """The content of a file or of an archive's member, as a stream.

    Errors of `stream`, which reads the content, become InputErrors that name `path`. `what` is the
    codec, "tar" or "", and `raw` is the stored file. A read decompresses only the bytes that it
    returns, so memory is bounded for any compression ratio.
    """

    def __init__(self, stream: Any, path: str, what: str, raw: RawFile) -> None:
        self._stream, self._path, self._what, self.raw = stream, path, what, raw

    def readinto(self, target: memoryview, /) -> int:
        """Read bytes into the beginning of `target`. Return their number, 0 at the end."""
        with self._errors():
            return int(self._stream.readinto(target))

    def read(self, size: int, /) -> bytes:
        """Return the next bytes, at most `size`, or b"" at the end."""
        with self._errors():
            return bytes(self._stream.read(size))

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except InputError:
            raise
        except (OSError, EOFError, zlib.error, tarfile.TarError, pa.ArrowException) as problem:
            for part, remark in _ZSTD_REMARKS.items() if self._what == "zstd" else ():
                if part in str(problem):
                    raise InputError(f"{self._path}: {remark}") from problem
            raise InputError(
                f"{self._path} has damaged or incomplete {self._what} data in its first "
                f"{self.raw.tell():,} bytes ({problem}). {self._remedy()}"
            ) from problem

    def _remedy(self) -> str:
        if self._what in _CODECS and _named(self.raw.part(0, HEAD_BYTES)) != self._what:
            return f"The file does not begin like {self._what}. Correct input.compression"
        return "Write the file again"


class _GzipMember:
    """A decompressor of one member of a gzip file, with the interface of `bz2.BZ2Decompressor`.

    At the end of the member, zlib checks its CRC and length.
    """

    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(wbits=31)  # 31 selects the format of gzip

    @property
    def eof(self) -> bool:
        """Return whether the end of the member was reached; see bz2."""
        return self._inflate.eof

    @property
    def needs_input(self) -> bool:
        """Return whether `decompress` requires more data; see bz2."""
        return not self._inflate.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        """Return the data after the end of the member; see bz2."""
        return self._inflate.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """Decompress `data`. Return at most `max_length` bytes; see bz2."""
        return self._inflate.decompress(self._inflate.unconsumed_tail or data, max_length)


class _JoinedStreams(io.RawIOBase):
    """A reader of all gzip members or bz2 streams of a file, as one stream.

    Like gzip, it ignores zeros after the last gzip member. BZ2File is not used, because it treats
    damage at the beginning of a stream as the end of the file.
    """

    def __init__(
        self, file: io.BufferedIOBase, unpacker: Callable[[], _GzipMember | bz2.BZ2Decompressor]
    ) -> None:
        self._file, self._new, self._unpacker = file, unpacker, unpacker()

    def readable(self) -> bool:
        """Return True; see io."""
        return True

    def readinto(self, target: Buffer) -> int:
        """Read bytes into the beginning of `target`, and return their number; see io."""
        view, data = memoryview(target).cast("B"), b""
        while not data:
            packed = b""
            if self._unpacker.eof:
                packed = self._next_stream()
                if not packed:
                    return 0
            elif self._unpacker.needs_input:
                packed = self._file.read(_READ_BYTES)
                if not packed:
                    raise EOFError("the file ends within a stream")
            data = self._unpacker.decompress(packed, len(view))
        view[: len(data)] = data
        return len(data)

    def _next_stream(self) -> bytes:
        """Create an unpacker for the next stream of the file.

        Return the stream's first compressed bytes, or b"" at the end of the file.
        """
        packed = self._unpacker.unused_data or self._file.read(_READ_BYTES)
        if packed.startswith(b"\0") and isinstance(self._unpacker, _GzipMember):
            while packed:
                if packed.strip(b"\0"):
                    raise OSError("other bytes follow the zeros at the end of the last member")
                packed = self._file.read(_READ_BYTES)
        if packed:
            self._unpacker = self._new()
        return packed
