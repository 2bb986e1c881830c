"""Texts that come from Arrow: the same as Arrow says, and not copied where that is not needed."""

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from seglake.text.simd import PADDING
from seglake.text.spans import from_arrow, to_arrow

TEXTS = st.lists(st.one_of(st.none(), st.text(max_size=9)), max_size=12)
KINDS: list[Any] = [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()]


def padded_array(texts: list[str | None], kind: Any, after: bytes) -> Any:
    """The array, whose buffer of items has more bytes `after` them."""
    array = pa.array(texts, kind)
    valid, ends, data = array.buffers()
    items = np.frombuffer(data or b"", np.uint8)
    end = int(np.frombuffer(ends, np.int32 if kind in KINDS[::2] else np.int64)[len(texts)])
    whole: Any = np.concatenate([items[:end], np.frombuffer(after, np.uint8)])
    return pa.Array.from_buffers(kind, len(texts), [valid, ends, pa.py_buffer(whole)])


@given(
    TEXTS, st.sampled_from(KINDS), st.sampled_from([b"", bytes(PADDING), b"x" * PADDING]),
    st.integers(0, 12), st.integers(0, 12),
)  # fmt: skip
def test_items_are_those_of_the_array_and_zeros_follow_them(
    texts: list[str | None], kind: Any, after: bytes, start: int, count: int
) -> None:
    array = padded_array(texts, kind, after).slice(start, count)
    spans = from_arrow(array)
    own = texts[start:][:count]
    assert spans.tolist() == [None if text is None else text.encode() for text in own]
    end = max([0, *(spans.starts + np.maximum(spans.lengths, 0)).tolist()])
    assert spans.data[end : end + PADDING].tolist() == [0] * PADDING
    assert to_arrow(spans, kind).cast(kind).to_pylist() == array.to_pylist()


def test_items_before_zeros_are_not_copied() -> None:
    array = padded_array(["a", None, "bc"], pa.binary(), bytes(PADDING))
    spans = from_arrow(array)
    assert spans.data.__array_interface__["data"][0] == array.buffers()[2].address
    copied = from_arrow(array.slice(0, 1))
    assert copied.data.__array_interface__["data"][0] != array.buffers()[2].address
