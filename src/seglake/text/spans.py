"""Join, select, parse and hash columns of text (`Spans`), and convert them from and to Arrow."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from seglake.compile.jit import njit
from seglake.format.records import NULL, Bytes, Flags, Int32s, Int64s, Spans, fixed
from seglake.limits import INT32_MAX
from seglake.text.simd import PADDING, byte_at, padded

_TEXT = pa.large_string()
_OFFSETS: dict[Any, Any] = {  # type of an Arrow array → type of its offsets
    pa.binary(): np.int32, pa.string(): np.int32, pa.large_binary(): np.int64, _TEXT: np.int64,
}  # fmt: skip


def _lengths(sizes: Int64s) -> Int32s:
    """Convert sizes to 32-bit lengths. Larger sizes become INT32_MAX, which no record may have."""
    return np.minimum(sizes, INT32_MAX).astype(np.int32)


def constant(text: bytes, count: int) -> Spans:
    """Return a column that has `text` in each of `count` rows."""
    data = np.frombuffer(text + bytes(PADDING), np.uint8)
    return Spans(data, np.zeros(count, np.int64), np.full(count, len(text), np.int32))


@njit(cache=True, nogil=True)
def _scatter(data: Bytes, starts: Int64s, lengths: Int32s, out: Bytes, targets: Int64s) -> None:
    """Copy item i to out[targets[i]:], for each item. Null items are empty."""
    for row in range(len(starts)):
        start, target = starts[row], targets[row]
        for k in range(lengths[row]):
            out[target + k] = data[start + k]


def join_rows(parts: Sequence[Spans]) -> Spans:
    """Concatenate the items of all columns in each row, in a new padded buffer. Null is empty."""
    sizes = [np.maximum(part.lengths, 0) for part in parts]
    total: Int64s = np.sum(sizes, axis=0, dtype=np.int64)
    ends = np.cumsum(total)
    out = padded(int(ends[-1]) if len(ends) else 0)
    targets = ends - total
    for part, size in zip(parts, sizes, strict=True):
        _scatter(fixed(part.data), part.starts, size, out, targets)
        targets = targets + size
    return Spans(out, ends - total, _lengths(total))


def where_null(spans: Spans, null: Flags) -> Spans:
    """Return the column with null instead of the items for which `null` is true."""
    lengths = spans.lengths.copy()
    lengths[null] = NULL
    return Spans(spans.data, spans.starts, lengths)


def choose(first: Spans, second: Spans) -> Spans:
    """Return a column with the items of `first`. Where `first` is null, use `second`."""
    merged = join_rows([first, where_null(second, first.lengths >= 0)])
    return where_null(merged, (first.lengths == NULL) & (second.lengths == NULL))


def interleave(columns: Sequence[Spans]) -> Spans:
    """Return one column with all items of row 0, then all items of row 1, and so on."""
    if any(column.data is not columns[0].data for column in columns):
        columns = _one_buffer(columns)
    starts = np.stack([column.starts for column in columns], 1).ravel()
    lengths = np.stack([column.lengths for column in columns], 1).ravel()
    return Spans(columns[0].data, starts, lengths)


def _one_buffer(columns: Sequence[Spans]) -> list[Spans]:
    """Copy the columns to one common buffer that contains only their items."""
    packed = [join_rows([column]) for column in columns]
    sizes = [len(column.data) for column in packed]
    data = np.concatenate([column.data for column in packed])
    firsts = np.cumsum(sizes) - sizes
    triples = zip(packed, columns, firsts, strict=True)
    return [Spans(data, new.starts + first, old.lengths) for new, old, first in triples]


def join_fields(fields: Sequence[Spans], separator: bytes) -> Spans:
    """Join the fields of each row with a separator. A row with a null field becomes null."""
    if len(fields) == 1:
        return fields[0]
    between = constant(separator, len(fields[0]))
    parts = [part for field in fields for part in (between, field)][1:]
    null = np.any([field.lengths < 0 for field in fields], axis=0)
    return where_null(join_rows(parts), null)


def nulls_as(spans: Spans, text: bytes) -> Spans:
    """Return the column with `text` instead of null items."""
    if not np.any(spans.lengths < 0):
        return spans
    return choose(spans, constant(text, len(spans)))


def from_ends(data: Bytes, ends: Int64s) -> Spans:
    """Return the items that are stored without gaps in `data`. ends[i] is the end of item i.

    Ends are exclusive, and the first item begins at byte 0.
    """
    starts = np.concatenate([np.zeros(1, np.int64), ends[:-1]])[: len(ends)]
    return Spans(data, starts, _lengths(ends - starts))


def from_arrow(array: Any) -> Spans:
    """Convert an Arrow array of binaries or strings. Its bytes are only copied if necessary.

    The bytes are used without a copy if they are writable and followed by PADDING zeros.
    """
    array = array if array.type in _OFFSETS else array.cast(pa.large_binary())
    kind: Any = _OFFSETS[array.type]
    buffers = array.buffers()
    edges = np.zeros(1, np.int64)
    if len(array):
        place = array.offset * np.dtype(kind).itemsize
        edges = np.frombuffer(buffers[1], kind, len(array) + 1, place).astype(np.int64)
    data = np.frombuffer(buffers[2] or b"", np.uint8)
    after = data[edges[-1] : edges[-1] + PADDING]
    # Kernels accept neither an array without padding nor a read-only array.
    if len(after) < PADDING or not data.flags.writeable or after.any():
        items = data[edges[0] : edges[-1]]
        data = padded(len(items))
        data[:-PADDING] = items
        edges = edges - edges[0]
    spans = Spans(data, edges[:-1], _lengths(np.diff(edges)))
    if array.null_count:
        spans = where_null(spans, array.is_null().to_numpy(zero_copy_only=False))
    return spans


def to_arrow(spans: Spans, kind: Any = _TEXT) -> Any:
    """Copy the items to an Arrow array of the type `kind`, a key of `_OFFSETS`.

    For a string type, the items must be UTF-8. Their total size must fit in the type's offsets.
    """
    packed = join_rows([spans])
    offsets = np.zeros(len(spans) + 1, _OFFSETS[kind])
    np.cumsum(np.maximum(spans.lengths, 0), out=offsets[1:])
    valid = spans.lengths >= 0
    bits = None if valid.all() else np.packbits(valid, bitorder="little")
    parts = (bits, offsets, packed.data)
    buffers = [None if part is None else pa.py_buffer(part.data) for part in parts]
    return pa.Array.from_buffers(kind, len(spans), buffers)


def decimal_text(numbers: Int64s) -> Spans:
    """Convert integers to decimal text."""
    return from_arrow(pa.array(numbers).cast(pa.string()))


@njit(cache=True, nogil=True)
def unsigned_integers(data: Bytes, starts: Int64s, lengths: Int32s, bound: int) -> Int64s:
    """Parse decimal integers in [0, bound). The result is -1 for any other text and for null.

    `bound` must be at most 10^18. If it is above 10^17, texts must have at most 18 digits.
    """
    base = data.ctypes.data
    numbers = np.empty(len(starts), np.int64)
    for row in range(len(starts)):
        value = 0 if lengths[row] > 0 else -1
        for k in range(starts[row], starts[row] + lengths[row]):
            digit = byte_at(base, k) - 0x30
            if digit < 0 or digit > 9 or value >= bound:
                value = -1
                break
            value = value * 10 + digit
        numbers[row] = value if value < bound else -1
    return numbers


@njit(cache=True, nogil=True)
def signed_integers(data: Bytes, starts: Int64s, lengths: Int32s) -> tuple[Int64s, Flags]:
    """Parse signed 64-bit decimal integers. Return (numbers, whether each text is valid)."""
    base = data.ctypes.data
    numbers, read = np.zeros(len(starts), np.int64), np.zeros(len(starts), np.bool_)
    for row in range(len(starts)):
        start, end = starts[row], starts[row] + lengths[row]
        minus = start < end and byte_at(base, start) == 0x2D
        start += minus
        if not 0 < end - start <= 19:
            continue
        value, good = np.uint64(0), True
        for k in range(start, end):
            digit = byte_at(base, k) - 0x30
            good &= 0 <= digit <= 9
            value = value * np.uint64(10) + np.uint64(digit & 15)
        read[row] = good and value <= np.uint64(0x7FFFFFFFFFFFFFFF) + np.uint64(minus)
        numbers[row] = -np.int64(value) if minus else np.int64(value)
    return numbers, read


@njit(cache=True, nogil=True)
def fnv_hashes(data: Bytes, starts: Int64s, lengths: Int32s) -> Int64s:
    """Return the 64-bit FNV-1a hash of each item. Null has the hash of an empty item."""
    hashes = np.empty(len(starts), np.int64)
    for row in range(len(starts)):
        value = np.uint64(0xCBF29CE484222325)
        for k in range(starts[row], starts[row] + lengths[row]):
            value = (value ^ np.uint64(data[k])) * np.uint64(0x100000001B3)
        hashes[row] = np.int64(value)
    return hashes


def is_one_of(values: Spans, texts: Sequence[bytes]) -> Flags:
    """Return, for each value, whether it is one of `texts`. Lengths and hashes are compared."""
    choices = Spans.from_list(list(texts))
    same = np.isin(fnv_hashes(*values.fixed()), fnv_hashes(*choices.fixed()))
    chosen: Flags = same & np.isin(values.lengths, choices.lengths)
    return chosen


def null_if(values: Spans, texts: Sequence[str]) -> Spans:
    """Return the column with null instead of values that are one of `texts`."""
    if not texts:
        return values
    return where_null(values, is_one_of(values, [text.encode() for text in texts]))


def with_line_feed(spans: Spans) -> Flags:
    """Return, for each item, whether it contains a line feed."""
    packed = join_rows([spans])
    feeds = np.flatnonzero(packed.data == 0x0A)
    first, last = np.searchsorted(feeds, [packed.starts, packed.starts + packed.lengths])
    mask: Flags = first < last
    return mask
