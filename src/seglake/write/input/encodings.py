"""Convert text in other encodings to UTF-8 while it is read.

A byte that is invalid in the encoding becomes a lone surrogate (U+DC00 plus the byte), which is
written as three bytes that are never valid UTF-8. So rows with such a byte can be recognized, and
their original bytes can be restored.
"""

from __future__ import annotations

import codecs
from functools import cache, lru_cache
from itertools import product

import numpy as np
import pyarrow as pa

from seglake.errors import InputError
from seglake.format.records import Int64s, Spans
from seglake.text.spans import from_arrow, join_rows, where_null
from seglake.text.utf8 import invalid_utf8
from seglake.write.input.streams import ByteStream

UTF_8 = "utf-8"
_BLOCK_BYTES = 1 << 18  # decoded in one step
_ESCAPING = "seglake.escaping"
_ESCAPES = range(0xDC00, 0xDD00)
_ROW_ENCODINGS = {"utf-16": "utf-16-le", "utf-32": "utf-32-le"}  # a row has no byte order mark


def _escape(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    bad = error.object[error.start : error.end]
    return "".join(chr(_ESCAPES.start + byte) for byte in bad), error.end


codecs.register_error(_ESCAPING, _escape)


class Utf8Stream:
    """A stream that converts the text of another stream to UTF-8, in blocks of `_BLOCK_BYTES`.

    Errors name the file at `path`.
    """

    def __init__(self, stream: ByteStream, encoding: str, path: str) -> None:
        self._stream, self._block = stream, memoryview(bytearray(_BLOCK_BYTES))
        self._encoding, self._path = encoding, path
        self._decoder = codecs.getincrementaldecoder(encoding)(_ESCAPING)
        self._text, self._ended = memoryview(b""), False

    def readinto(self, target: memoryview, /) -> int:
        """Read bytes into the beginning of `target`. Return their number, 0 at the end.

        Raises InputError for utf-16 and utf-32 without a byte order mark.
        """
        while not self._text and not self._ended:
            size = self._stream.readinto(self._block)
            self._ended = size == 0
            text = self._decoded(bytes(self._block[:size]))
            self._text = memoryview(text.encode(UTF_8, "surrogatepass"))
        size = min(len(target), len(self._text))
        target[:size], self._text = self._text[:size], self._text[size:]
        return size

    def _decoded(self, data: bytes) -> str:
        try:
            return self._decoder.decode(data, self._ended)
        except UnicodeError as problem:
            name = self._encoding
            hint = f"{name}-le or {name}-be" if name in _ROW_ENCODINGS else "the file's encoding"
            raise InputError(
                f"{self._path} cannot be read as {name} ({problem}). Set input.encoding to {hint}"
            ) from problem


@cache
def is_single_byte(encoding: str) -> bool:
    """Return whether every byte is one character, so that a text can be cut at any byte."""
    if encoding.startswith(("utf", "iso2022")):
        return False
    pairs = bytes(byte for pair in product(range(256), repeat=2) for byte in pair)
    return len(pairs.decode(encoding, _ESCAPING)) == len(pairs)


def utf8_size(stream: ByteStream, size: int, encoding: str) -> int:
    """Return the UTF-8 size of the first `size` bytes of a stream in a single-byte encoding."""
    letters = (bytes([byte]).decode(encoding, _ESCAPING) for byte in range(256))
    sizes = np.array([len(each.encode(UTF_8, "surrogatepass")) for each in letters], np.int64)
    block, total, left = memoryview(bytearray(_BLOCK_BYTES)), 0, size
    while left and (count := stream.readinto(block[: min(left, _BLOCK_BYTES)])):
        counts = np.bincount(np.frombuffer(block[:count], np.uint8), minlength=256)
        total, left = total + int(counts @ sizes), left - count
    return total


def encode_rows(rows: Spans, encoding: str) -> Spans:
    """Convert rows from a `Utf8Stream` back to bytes in `encoding`. A null row becomes empty.

    An incomplete character at the end of a row is omitted. In utf-16 and utf-32 the bytes are
    little-endian, without a byte order mark.
    """
    codec, made = _ROW_ENCODINGS.get(encoding, encoding), list[bytes]()
    for row in rows.tolist():
        # Unlike `bytes.decode`, this decoder omits an incomplete character at the end.
        text = codecs.getincrementaldecoder(UTF_8)("surrogatepass").decode(row or b"")
        made.append(b"".join(_encoded(letter, codec) for letter in text))
    return from_arrow(pa.array(made, pa.large_binary()))


@lru_cache(1 << 16)
def _encoded(letter: str, encoding: str) -> bytes:
    if ord(letter) in _ESCAPES:
        return bytes([ord(letter) - _ESCAPES.start])
    return letter.encode(encoding, "replace")


def decode_rows(rows: Spans, encoding: str) -> Spans:
    """Convert quarantined rows to UTF-8. Rows that are already valid UTF-8 do not change.

    Other rows are decoded from `encoding`. If this creates a line feed, which would divide the row,
    the line feed becomes an invalid byte, so that the row is rejected again.
    """
    wrong = invalid_utf8(*rows)
    if not wrong.any():
        return rows
    codec, no_line = _ROW_ENCODINGS.get(encoding, encoding), chr(_ESCAPES.start + 0x0A)
    made = rows.tolist()
    for at in np.flatnonzero(wrong).tolist():
        text = (made[at] or b"").decode(codec, _ESCAPING)
        made[at] = text.replace("\n", no_line).encode(UTF_8, "surrogatepass")
    return from_arrow(pa.array(made, pa.large_binary()))


def with_bytes(rows: Spans, places: Int64s, encoding: str) -> Spans:
    """Return `rows`, with the rows at the positions `places` converted by `encode_rows`."""
    chosen = np.zeros(len(rows), np.bool_)
    chosen[places] = True
    return join_rows([where_null(rows, chosen), encode_rows(where_null(rows, ~chosen), encoding)])
