"""Convert columns of text to JSON (RFC 8259): objects, strings, and base64 for binary data."""

import json
from base64 import b64encode
from collections.abc import Sequence

import numpy as np

from seglake.compile.jit import njit
from seglake.format.records import Bytes, Int32s, Int64s, Spans
from seglake.text.simd import PADDING, padded
from seglake.text.spans import constant, from_ends, join_rows, nulls_as, where_null


def json_objects(names: Sequence[str], texts: Sequence[Spans], count: int) -> Spans:
    """Return one JSON object per row. `texts` has a column of JSON for each name.

    A null item becomes the JSON literal null. `count` is the number of rows.
    """
    parts = [constant(b"{", count)]
    for number, (name, text) in enumerate(zip(names, texts, strict=True)):
        label = f"{',' if number else ''}{json.dumps(name, ensure_ascii=False)}:"
        parts += [constant(label.encode(), count), nulls_as(text, b"null")]
    return join_rows([*parts, constant(b"}", count)])


@njit(cache=True, nogil=True)
def _quote(data: Bytes, starts: Int64s, lengths: Int32s, short: Bytes) -> tuple[Bytes, Int64s]:
    """Convert UTF-8 texts to JSON strings. Return (bytes of all strings, end of each string).

    `short` is _LETTERS.
    """
    total = 0
    for row in range(len(starts)):
        for k in range(starts[row], starts[row] + max(lengths[row], 0)):
            letter = short[data[k]]
            total += 1 if letter == 0 else 6 if letter == 0x75 else 2
        total += 2
    out = np.empty(total + PADDING, np.uint8)
    ends = np.empty(len(starts), np.int64)
    size = 0
    for row in range(len(starts)):
        out[size] = 0x22
        size += 1
        for k in range(starts[row], starts[row] + max(lengths[row], 0)):
            byte = data[k]
            letter = short[byte]
            if letter == 0:
                out[size] = byte
                size += 1
                continue
            out[size] = 0x5C
            out[size + 1] = letter
            size += 2
            if letter == 0x75:
                out[size : size + 2] = 0x30
                out[size + 2] = 0x30 + (byte >> 4)
                out[size + 3] = (0x57 if byte & 15 > 9 else 0x30) + (byte & 15)
                size += 4
        out[size] = 0x22
        size += 1
        ends[row] = size
    return out, ends


# For each byte value, the letter after the backslash in its JSON escape, or 0 without an escape.
_LETTERS = np.zeros(256, np.uint8)
_LETTERS[:0x20] = ord("u")
_LETTERS[[*b'"\\\b\f\n\r\t']] = [*b'"\\bfnrt']


def quote_texts(texts: Spans) -> Spans:
    """Convert texts, which must be UTF-8, to JSON strings in quotes. A null item remains null."""
    out, ends = _quote(texts.data, texts.starts, texts.lengths, _LETTERS)
    return where_null(from_ends(out, ends), texts.lengths < 0)


_BASE64 = np.frombuffer(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8
)


def base64(spans: Spans) -> Spans:
    """Encode the items in base64 (RFC 4648, with padding). A null item remains null."""
    ends = np.cumsum((np.maximum(spans.lengths, 0).astype(np.int64) + 2) // 3 * 4)
    out = padded(int(ends[-1]) if len(ends) else 0)
    _encode_base64(spans.data, spans.starts, spans.lengths, _BASE64, out)
    return where_null(from_ends(out, ends), spans.lengths < 0)


@njit(cache=True, nogil=True)
def _encode_base64(data: Bytes, starts: Int64s, lengths: Int32s, table: Bytes, out: Bytes) -> None:
    """Write the items in base64 to `out`, one after another."""
    at = 0
    for row in range(len(starts)):
        start, size = starts[row], lengths[row]
        for k in range(0, size, 3):
            bits = np.int64(data[start + k]) << 16
            if k + 1 < size:
                bits |= np.int64(data[start + k + 1]) << 8
            if k + 2 < size:
                bits |= np.int64(data[start + k + 2])
            out[at] = table[bits >> 18]
            out[at + 1] = table[(bits >> 12) & 63]
            out[at + 2] = table[(bits >> 6) & 63] if k + 1 < size else 0x3D
            out[at + 3] = table[bits & 63] if k + 2 < size else 0x3D
            at += 4


def text_or_base64(data: bytes, most: int | None = None) -> str | dict[str, str]:
    """Convert UTF-8 bytes to text, and other bytes to {"base64": …}, for JSON.

    Text is cut after `most` characters, and other data after `most` bytes.
    """
    try:
        return data.decode()[:most]
    except UnicodeDecodeError:
        return {"base64": b64encode(data[:most]).decode()}
