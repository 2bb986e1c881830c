"""Sorted runs and blobs that tests make up."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

from seglake.format.encode import Bodies
from seglake.write.spool.sorted_records import Place, PlacedRecords, SortedRecords


class Item(NamedTuple):
    """A record of a run; the body tells it from every other."""

    sort_key: int
    tie_breaker: int
    timestamp: int
    body: bytes


def run_of(items: list[Item], *, seconds: bool, same: bool = False) -> SortedRecords:
    """The items as a run; with `same`, their keys are their timestamps."""
    keys = np.array([item.sort_key for item in items], np.int64)
    sizes = np.array([len(item.body) for item in items], np.int64)
    data = np.frombuffer(b"".join(item.body for item in items), np.uint8)
    return SortedRecords(
        keys,
        np.array([item.tie_breaker for item in items], np.int64) if seconds else None,
        keys if same else np.array([item.timestamp for item in items], np.int64),
        Bodies(np.cumsum(sizes) - sizes, sizes, data),
    )


def items_of(run: SortedRecords) -> list[Item]:
    """A run as items again."""
    own = run.bodies.detached()
    ends = np.cumsum(own.sizes).tolist()
    bodies = [own.data[start:end].tobytes() for start, end in pairwise([0, *ends])]
    seconds = [0] * len(run) if run.tie_breakers is None else run.tie_breakers.tolist()
    return [*map(Item, run.sort_keys.tolist(), seconds, run.timestamps.tolist(), bodies)]


class Blobs(NamedTuple):
    """Blobs of one log partition, in the order of units and sequences."""

    blobs: list[PlacedRecords]
    seconds: bool

    def arranged(self) -> list[PlacedRecords]:
        """In the order in which a merge takes them."""
        return sorted(self.blobs, key=lambda blob: blob.place)

    def items(self) -> list[Item]:
        """Every record in total order, sorted by itself."""
        everything = [
            (item.sort_key, item.tie_breaker, *blob.place[2:], position, item)
            for blob in self.blobs
            for position, item in enumerate(items_of(blob.records))
        ]
        return [each[-1] for each in sorted(everything, key=lambda each: each[:5])]


@st.composite
def blob_lists(draw: st.DrawFn, *, seconds: bool | None = None) -> Blobs:
    """Blobs with few or many equal keys, in order or in none, of several units."""
    with_seconds = draw(st.booleans()) if seconds is None else seconds
    wide = draw(st.sampled_from([0, 1, 5, 1000, 2**62]))
    counts = draw(st.lists(st.integers(1, 12), min_size=1, max_size=10))
    total = sum(counts)
    keys = draw(st.lists(st.integers(-wide, wide), min_size=total, max_size=total))
    if draw(st.booleans()):
        keys.sort()
    order = draw(st.permutations(range(total))) if with_seconds else [0] * total
    blobs, at = [], 0
    for number, count in enumerate(counts):
        chosen = range(at, at + count)
        at += count
        items = [Item(keys[i], order[i], i, b"%d." % i * draw(st.integers(0, 3))) for i in chosen]
        items.sort(key=lambda item: item[:2])  # stable: equal ones stay in order of arrival
        place = Place(items[0].sort_key, items[0].tie_breaker, number // 3, 1 + number % 3)
        blobs.append(PlacedRecords(place, run_of(items, seconds=with_seconds)))
    return Blobs(blobs, with_seconds)
