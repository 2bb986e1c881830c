"""Columns of text as spans: joined, quoted, taken from Arrow and given to it, array at a time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import njit

from seglake.format.records import NULL, Bytes, Int32s, Int64s, Spans
from seglake.limits import INT32_MAX
from seglake.text.simd import PADDING, byte_at, padded


class Reason(IntEnum):
    """Why a row did not become a record."""

    NONE = 0
    NOT_PARSEABLE = 1
    INVALID_UTF8 = 2
    TOO_LARGE = 3
    TIMESTAMP_MISSING = 4
    TIMESTAMP_UNREADABLE = 5
    TIMESTAMP_OUT_OF_RANGE = 6
    KEY_MISSING = 7
    PARTITION_OUT_OF_RANGE = 8


REASONS = np.array(
    [
        "",
        "not parseable",
        "invalid UTF-8",
        "record too large",
        "timestamp missing",
        "timestamp unreadable",
        "timestamp out of range",
        "key missing",
        "partition out of range",
    ]
)

Codes = npt.NDArray[np.int8]


def _lengths(sizes: Int64s) -> Int32s:
    """Sizes as lengths; what no int32 can hold is too large for a record in any case."""
    return np.minimum(sizes, INT32_MAX).astype(np.int32)


def constant(text: bytes, count: int) -> Spans:
    """`count` times the same text."""
    data = np.frombuffer(text + bytes(PADDING), np.uint8)
    return Spans(data, np.zeros(count, np.int64), np.full(count, len(text), np.int32))


@njit(cache=True, nogil=True)
def _scatter(data: Bytes, starts: Int64s, lengths: Int32s, out: Bytes, targets: Int64s) -> None:
    """Copy item i to out[targets[i]:]; null items are empty."""
    for row in range(len(starts)):
        start, target = starts[row], targets[row]
        for k in range(lengths[row]):
            out[target + k] = data[start + k]


def concatenate(parts: Sequence[Spans]) -> Spans:
    """Row by row, the parts one behind the other, in a new padded buffer. Nulls are empty."""
    sizes = [np.maximum(part.lengths, 0) for part in parts]
    total: Int64s = np.sum(sizes, axis=0, dtype=np.int64)
    ends = np.cumsum(total)
    out = padded(int(ends[-1]) if len(ends) else 0)
    targets = ends - total
    for part, size in zip(parts, sizes, strict=True):
        _scatter(part.data, part.starts, size, out, targets)
        targets = targets + size
    return Spans(out, ends - total, _lengths(total))


def where_null(spans: Spans, null: npt.NDArray[np.bool_]) -> Spans:
    """The same items, null where `null` says so."""
    lengths = spans.lengths.copy()
    lengths[null] = NULL
    return Spans(spans.data, spans.starts, lengths)


def choose(first: Spans, second: Spans) -> Spans:
    """The item of `first`, or that of `second` where `first` has null."""
    merged, null = concatenate([first, where_null(second, first.lengths >= 0)]), NULL
    return where_null(merged, (first.lengths == null) & (second.lengths == null))


def interleave(columns: Sequence[Spans]) -> Spans:
    """Row by row, the items of all columns: row 0 of each, then row 1 of each."""
    if any(column.data is not columns[0].data for column in columns):
        columns = _one_buffer(columns)
    starts = np.stack([column.starts for column in columns], 1).ravel()
    lengths = np.stack([column.lengths for column in columns], 1).ravel()
    return Spans(columns[0].data, starts, lengths)


def _one_buffer(columns: Sequence[Spans]) -> list[Spans]:
    """The columns over one common buffer that holds their items only."""
    packed = [concatenate([column]) for column in columns]
    sizes = [len(column.data) for column in packed]
    data = np.concatenate([column.data for column in packed])
    firsts = np.cumsum(sizes) - sizes
    return [
        Spans(data, new.starts + first, old.lengths)
        for new, old, first in zip(packed, columns, firsts, strict=True)
    ]


def join_key(fields: Sequence[Spans], separator: bytes) -> Spans:
    """The fields of a key with the separator between them; null where any of them is null."""
    if len(fields) == 1:
        return fields[0]
    between = constant(separator, len(fields[0]))
    parts = [part for field in fields for part in (between, field)][1:]
    null = np.any([field.lengths < 0 for field in fields], axis=0)
    return where_null(concatenate(parts), null)


def json_objects(names: Sequence[str], texts: Sequence[Spans], count: int) -> Spans:
    """One JSON object per row from columns of JSON text; a null item is the literal null."""
    parts = [constant(b"{", count)]
    for number, (name, text) in enumerate(zip(names, texts, strict=True)):
        label = f"{',' if number else ''}{json.dumps(name, ensure_ascii=False)}:"
        parts += [constant(label.encode(), count), nulls_as(text, b"null")]
    return concatenate([*parts, constant(b"}", count)])


def nulls_as(spans: Spans, text: bytes) -> Spans:
    """The same items, with `text` for null."""
    if not np.any(spans.lengths < 0):
        return spans
    return choose(spans, constant(text, len(spans)))


@njit(cache=True, nogil=True)
def _quote(data: Bytes, starts: Int64s, lengths: Int32s, short: Bytes) -> tuple[Bytes, Int64s]:
    """JSON strings of UTF-8 texts, back to back, and their ends. `short` is the escape letter."""
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


def _escape_letters() -> Bytes:
    """For each byte the letter behind the backslash that stands for it; 0: it stands for itself."""
    letters = np.zeros(256, np.uint8)
    letters[:0x20] = ord("u")
    for byte, letter in zip(b'"\\\b\f\n\r\t', b'"\\bfnrt', strict=True):
        letters[byte] = letter
    return letters


_LETTERS = _escape_letters()


def quoted(texts: Spans) -> Spans:
    """Valid UTF-8 texts as JSON strings; null stays null."""
    out, ends = _quote(texts.data, texts.starts, texts.lengths, _LETTERS)
    return where_null(from_ends(out, ends), texts.lengths < 0)


_BASE64 = np.frombuffer(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8
)


def base64(spans: Spans) -> Spans:
    """The items in base64 (RFC 4648, with padding); null stays null."""
    ends = np.cumsum((np.maximum(spans.lengths, 0).astype(np.int64) + 2) // 3 * 4)
    out = padded(int(ends[-1]) if len(ends) else 0)
    _encode_base64(spans.data, spans.starts, spans.lengths, _BASE64, out)
    return where_null(from_ends(out, ends), spans.lengths < 0)


@njit(cache=True, nogil=True)
def _encode_base64(
    data: Bytes, starts: Int64s, lengths: Int32s, letters: Bytes, out: Bytes
) -> None:
    """The items in base64, back to back."""
    at = 0
    for row in range(len(starts)):
        start, size = starts[row], lengths[row]
        for k in range(0, size, 3):
            bits = np.int64(data[start + k]) << 16
            if k + 1 < size:
                bits |= np.int64(data[start + k + 1]) << 8
            if k + 2 < size:
                bits |= np.int64(data[start + k + 2])
            out[at] = letters[bits >> 18]
            out[at + 1] = letters[(bits >> 12) & 63]
            out[at + 2] = letters[(bits >> 6) & 63] if k + 1 < size else 0x3D
            out[at + 3] = letters[bits & 63] if k + 2 < size else 0x3D
            at += 4


def from_ends(data: Bytes, ends: Int64s) -> Spans:
    """Items that stand back to back in `data`, the last byte of item i before ends[i]."""
    starts = np.concatenate([np.zeros(1, np.int64), ends[:-1]])[: len(ends)]
    return Spans(data, starts, _lengths(ends - starts))


def from_arrow(array: Any) -> Spans:
    """A binary or string array as spans; its bytes are copied once, for the padding."""
    array = array.cast(pa.large_binary())
    buffers = array.buffers()
    n, offset = len(array), array.offset
    ends = np.frombuffer(buffers[1], np.int64, n + 1, offset * 8) if n else np.zeros(1, np.int64)
    data = padded(int(ends[-1] - ends[0]))
    if len(data) > PADDING:
        data[:-PADDING] = np.frombuffer(buffers[2], np.uint8)[ends[0] : ends[-1]]
    spans = Spans(data, ends[:-1] - ends[0], _lengths(np.diff(ends)))
    if array.null_count:
        spans = where_null(spans, array.is_null().to_numpy(zero_copy_only=False))
    return spans


def to_arrow(spans: Spans) -> Any:
    """Spans, which are valid UTF-8, as an Arrow string array; the items are copied."""
    packed = concatenate([spans])
    offsets = np.zeros(len(spans) + 1, np.int64)
    np.cumsum(np.maximum(spans.lengths, 0), out=offsets[1:])
    valid = spans.lengths >= 0
    bits = None if valid.all() else np.packbits(valid, bitorder="little")
    buffers = [
        None if part is None else pa.py_buffer(part.data) for part in (bits, offsets, packed.data)
    ]
    return pa.Array.from_buffers(pa.large_string(), len(spans), buffers)


def decimal_text(numbers: Int64s) -> Spans:
    """Integers in decimal."""
    return from_arrow(pa.array(numbers).cast(pa.string()))


@njit(cache=True, nogil=True)
def _integers(data: Bytes, starts: Int64s, lengths: Int32s, bound: int) -> Int32s:
    """Decimal integers in [0, bound); -1 for any other text and for null."""
    base = data.ctypes.data
    numbers = np.full(len(starts), -1, np.int32)
    for row in range(len(starts)):
        value = 0 if lengths[row] > 0 else -1
        for k in range(starts[row], starts[row] + lengths[row]):
            digit = byte_at(base, k) - 0x30
            if digit < 0 or digit > 9 or value >= bound:
                value = -1
                break
            value = value * 10 + digit
        if value < bound:
            numbers[row] = value
    return numbers


def small_integers(texts: Spans, bound: int) -> Int32s:
    """Decimal integers in [0, bound) as numbers; -1 for anything else."""
    return np.asarray(_integers(texts.data, texts.starts, texts.lengths, bound))
