"""Intrinsics that read bytes by address, in functions that numba compiles and then inlines."""

from typing import Any

import numba
import numpy as np

from seglake.text.simd import byte_at


@numba.njit(forceinline=True)
def _find(base: int, begin: int, length: int, words: int, starts: Any) -> int:
    """Return the number of the word that is the `length` bytes at `begin`, or -1."""
    for number in range(len(starts)):
        k = 0
        while k < length and byte_at(base, begin + k) == byte_at(words, starts[number] + k):
            k += 1
        if k == length:
            return number
    return -1


@numba.njit
def _find_first(text: Any, words: Any, starts: Any) -> int:
    begin: Any = np.int64(0)  # a constant, but of the type int64
    return _find(text.ctypes.data, begin, len(text), words.ctypes.data, starts)


def test_a_text_at_the_constant_position_zero_is_read() -> None:
    """LLVM takes an address for a null pointer, and deletes the loop, if the position is it."""
    text, words = (np.frombuffer(each, np.uint8) for each in (b"def", b"abcdef"))
    assert _find_first(text, words, np.array([0, 3])) == 1
