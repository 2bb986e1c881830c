"""Hash the keys of record bodies or of encoded batches for the key index."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from seglake.errors import CorruptData
from seglake.format import key_kernels
from seglake.format.batch import BatchTable
from seglake.format.decode_kernels import PROBLEMS
from seglake.format.records import Bytes, Flags, Int64s, Spans, fixed

if TYPE_CHECKING:
    from seglake.format.codecs.payload import Payload

Hashes = npt.NDArray[np.uint64]

_LEAST_ROOM = 64  # bytes of the smallest buffer for a copy of a body


class KeyHashes(NamedTuple):
    """The hash of the key of each record, and whether the record has a key."""

    hashes: Hashes
    has_key: Flags

    @staticmethod
    def from_bodies(starts: Int64s, sizes: Int64s, data: Bytes) -> KeyHashes:
        """Return the hash of the key of each body. The arrays are fields of `Bodies.fixed`."""
        room = np.empty(max(_LEAST_ROOM, int(sizes.max(initial=0))), np.uint8)
        hashes, has_key = np.zeros(len(starts), np.uint64), np.zeros(len(starts), np.bool_)
        key_kernels.hash_bodies(starts, sizes, data, room, fixed(room), hashes, has_key)
        return KeyHashes(hashes, has_key)

    def part(self, start: int, end: int) -> KeyHashes:
        """Return the hashes of the records `start` to `end`, exclusive."""
        return KeyHashes(self.hashes[start:end], self.has_key[start:end])


def hashes_of(table: BatchTable, payload: Payload) -> tuple[Hashes, Int64s]:
    """Return the hashes of the keys in a payload, and the row in `table` of each key's batch.

    Records without a key and control batches are skipped. Raises CorruptData.
    """
    data, starts, ends = payload
    count = int(table["count"].sum(dtype=np.int64))
    hashes, batches = np.empty(count, np.uint64), np.empty(count, np.int64)
    key_count, row, problem = key_kernels.hash_keys(
        fixed(table), data, starts, ends, hashes, batches
    )
    if problem:
        raise CorruptData(PROBLEMS[problem], position=int(table["position"][row]))
    return hashes[:key_count], batches[:key_count]


def hashes_of_keys(keys: Iterable[bytes]) -> Hashes:
    """Return the hashes of the keys, ascending."""
    return np.sort(hashes_of_spans(Spans.from_list([*keys])))


def hashes_of_spans(keys: Spans) -> Hashes:
    """Return the hash of each key. `keys` has no nulls."""
    hashes = np.empty(len(keys), np.uint64)
    data, starts, lengths = keys.fixed()
    key_kernels.hash_spans(data, starts, lengths.astype(np.int64), hashes)
    return hashes


def hashes_of_numbers(numbers: Spans) -> Hashes:
    """Return the hash of each JSON number. Numbers of equal value have equal hashes."""
    hashes = np.empty(len(numbers), np.uint64)
    data, starts, lengths = numbers.fixed()
    room = np.empty(int(lengths.max(initial=0)) + 9, np.uint8)
    sizes = lengths.astype(np.int64)
    key_kernels.hash_numbers(data, starts, sizes, room, fixed(room), hashes)
    return hashes
