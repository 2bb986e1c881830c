"""Two folders of one partition: whether they hold the same record batches.

Replicas roll their segments at other offsets, and a cleaner takes other batches out of each. But a
batch that both have, with as many records, is the same, byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from seglake.errors import CorruptData, InputError
from seglake.format.batch import DELETE_HORIZON
from seglake.format.records import read_only
from seglake.kafka.markers import headers_of
from seglake.kafka.survey import Extent, SegmentPart, stretches

_BATCH = np.dtype(
    [
        ("base_offset", np.int64),
        ("last_offset", np.int64),
        ("count", np.int64),
        ("crc", np.int64),
        ("size", np.int64),
        ("part", np.int64),  # its number in the extent
        ("position", np.int64),
    ]
)

_Batches = npt.NDArray[np.void]


class _Side(NamedTuple):
    """What comes in from a folder, and its batches of the offsets `start` to `end`."""

    extent: Extent
    start: int
    end: int

    def batches(self) -> Iterator[_Batches]:
        """Some batches at a time, in order."""
        for number, part in enumerate(self.extent.parts):
            if part.end_offset > self.start and part.base_offset < self.end:
                yield from self._of_part(number, part)

    def _of_part(self, number: int, part: SegmentPart) -> Iterator[_Batches]:
        for stretch in stretches(self.extent.folder.store, part.log):
            if isinstance(stretch, CorruptData):
                return  # it is behind the part
            table, places = stretch.table, stretch.table["position"] + stretch.position
            inside = (places >= part.begin) & (places < part.stop)
            inside &= (table["base_offset"] >= self.start) & (table["last_offset"] < self.end)
            table, places = table[inside], places[inside]
            batches = np.empty(len(table), _BATCH)
            for name in ("base_offset", "last_offset", "count", "size"):
                batches[name] = table[name]
            batches["crc"], batches["part"] = headers_of(stretch.data, table)["crc"], number
            batches["crc"][table["attributes"] & DELETE_HORIZON != 0] = -1
            batches["position"] = places
            if len(batches):
                yield batches


def longest_of(extents: Sequence[Extent]) -> Extent:
    """The longest of the folders of a partition. Raises InputError if they disagree."""
    longest = max(extents, key=lambda extent: extent.end)
    for extent in extents:
        if extent is not longest:
            require_same(longest, extent)
    return longest


def require_same(one: Extent, other: Extent) -> None:
    """Raise InputError, which names the byte, if two folders of one partition disagree.

    Only offsets that come in from both count.
    """
    start, end = max(one.start, other.start), min(one.end, other.end)
    sides = _Side(one, start, end), _Side(other, start, end)
    for ours, theirs in _aligned(*(side.batches() for side in sides)):
        differ = _first_difference(ours, theirs)
        if differ is not None:
            raise _disagreement(sides, differ)


def _aligned(ours: Iterator[_Batches], theirs: Iterator[_Batches]) -> Iterator[tuple[Any, Any]]:
    """The batches of both over the same offsets, some at a time."""
    ends = [False, False]
    sources, pending = (ours, theirs), [np.empty(0, _BATCH), np.empty(0, _BATCH)]
    while not all(ends):
        for side in (0, 1):
            while not ends[side] and not len(pending[side]):
                pending[side] = next(sources[side], pending[side])
                ends[side] = not len(pending[side])
        lasts = [int(batches["last_offset"][-1]) for batches in pending if len(batches)]
        if not lasts:
            return
        both = min(lasts)
        cut = [int(batches["last_offset"].searchsorted(both, "right")) for batches in pending]
        yield pending[0][: cut[0]], pending[1][: cut[1]]
        pending = [batches[at:] for batches, at in zip(pending, cut, strict=True)]


def _first_difference(ours: _Batches, theirs: _Batches) -> tuple[Any, Any] | None:
    """The first two batches that cannot be of one log, if any."""
    if not len(ours) or not len(theirs):
        return None
    beside = theirs["base_offset"].searchsorted(ours["last_offset"], "right") - 1
    other = theirs[np.maximum(beside, 0)]
    meets = (beside >= 0) & (other["last_offset"] >= ours["base_offset"])
    alike = other["base_offset"] == ours["base_offset"]
    alike &= other["last_offset"] == ours["last_offset"]
    cleaned = (other["count"] != ours["count"]) | (other["crc"] < 0) | (ours["crc"] < 0)
    wrong = np.flatnonzero(meets & ~(alike & (cleaned | (other["crc"] == ours["crc"]))))
    return (ours[wrong[0]], other[wrong[0]]) if len(wrong) else None


def _disagreement(sides: tuple[_Side, _Side], batches: tuple[Any, Any]) -> InputError:
    """The error that names the first byte in which two batches differ."""
    read = []
    for side, batch in zip(sides, batches, strict=True):
        key, folder = side.extent.parts[int(batch["part"])].log.key, side.extent.folder
        position = int(batch["position"])
        data = folder.store.read(key, position, position + int(batch["size"]))
        read.append((folder.place(key), position, read_only(data)))
    (one, at, ours), (other, place, theirs) = read
    both = min(len(ours), len(theirs))
    differ = ours[:both] != theirs[:both]
    byte = int(differ.argmax()) if differ.any() else both
    return InputError(
        f"byte {place + byte} of {other} is not what byte {at + byte} of {one} is, in the record "
        f"batch of offset {batches[0]['base_offset']}: two folders of one partition disagree; "
        "import the right one alone"
    )
