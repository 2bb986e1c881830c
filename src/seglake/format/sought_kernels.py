"""Store the keys of a search, and compare records with them in a kernel.

Keys are compared byte by byte, so that no record is found or left out because of a hash.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from seglake.compile.fallback import INTERPRETED, meanwhile
from seglake.compile.jit import njit
from seglake.format.records import Bytes, Int64s, Spans, fixed


class SoughtKeys(NamedTuple):
    """Distinct keys of a search. Key i is data[starts[i] : starts[i] + lengths[i]].

    Keys ascend by length, then by their bytes. A search with no keys accepts every record.
    """

    data: Bytes
    starts: Int64s
    lengths: Int64s

    @staticmethod
    def from_keys(keys: Iterable[bytes]) -> SoughtKeys:
        """Return these keys, sorted and without duplicates."""
        data, starts, lengths = Spans.from_list([*sorted({*keys}, key=lambda key: (len(key), key))])
        return SoughtKeys(fixed(data), fixed(starts), fixed(lengths.astype(np.int64)))


EVERY_KEY = SoughtKeys.from_keys(())


@njit(cache=True, nogil=True)
@meanwhile(INTERPRETED)
def is_sought(keys: SoughtKeys, data: Bytes, start: int, length: int) -> bool:
    """Return whether data[start : start + length] is one of the keys. A `length` of -1 is null."""
    low, high = 0, len(keys.starts)
    while low < high:
        middle = (low + high) // 2
        order = _order(keys, middle, data, start, length)
        if order == 0:
            return True
        if order < 0:
            low = middle + 1
        else:
            high = middle
    return False


@njit(cache=True, nogil=True)
def _order(keys: SoughtKeys, number: int, data: Bytes, start: int, length: int) -> int:
    """Compare key `number` with data[start : start + length]. Return < 0 if the key is smaller."""
    if keys.lengths[number] != length:
        return int(keys.lengths[number] - length)
    at = keys.starts[number]
    for i in range(length):
        difference = np.int64(keys.data[at + i]) - np.int64(data[start + i])
        if difference:
            return int(difference)
    return 0
