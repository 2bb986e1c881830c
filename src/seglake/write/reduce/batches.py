"""Sorted records as record batches at their final offsets."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple, cast

import numpy as np

from seglake.errors import InputError
from seglake.format.encode import EncodedBatches, Encoding, encode_batches, rebase
from seglake.format.filter import blank
from seglake.format.records import Int64s
from seglake.limits import INT32_MAX, INT64_MAX
from seglake.write.spool.sorted_records import SortedRecords, joined


class Covered(NamedTuple):
    """The offsets [start, end) of a log partition, named in errors, that batches are to cover.

    Without an end they end behind the last record.
    """

    name: str
    start: int
    end: int | None


def encode(
    parts: Iterator[SortedRecords], encoding: Encoding, base_offset: int
) -> Iterator[EncodedBatches]:
    """The record batches of consecutive records, offsets from `base_offset` on."""

    def framed(records: SortedRecords, before: int) -> EncodedBatches:
        return encode_batches(
            records.timestamps, records.bodies, encoding, base_offset=base_offset + before
        )

    return _filled(parts, framed, encoding.batch_bytes)


def _filled(
    parts: Iterator[SortedRecords],
    framed: Callable[[SortedRecords, int], EncodedBatches],
    batch_bytes: int,
) -> Iterator[EncodedBatches]:
    """The record batches of the parts, `framed` from records and the count of those before.

    The last record batch of a part is filled up with records of the next part, so where record
    batches end does not depend on where parts end.
    """
    done, unfilled = 0, cast("SortedRecords | None", None)
    for part in parts:
        records = part
        if unfilled is not None:
            head = joined([unfilled, part.part(0, _enough(part, batch_bytes))])
            first = _first(framed(head, done), 1)
            count = int(first.table["count"].sum(dtype=np.int64))
            if count == len(head):  # perhaps it is not full yet
                unfilled = head.detached()
                continue
            yield first
            done += count
            records = part.part(count - len(unfilled), len(part))
        batches = framed(records, done)
        full = _first(batches, len(batches.table) - 1)
        count = int(full.table["count"].sum(dtype=np.int64))
        if count:
            yield full
        done += count
        unfilled = records.part(count, len(records)).detached() if len(records) else None
    if unfilled is not None:
        yield framed(unfilled, done)


def _enough(records: SortedRecords, batch_bytes: int) -> int:
    """How many records are more than one batch has; all of them if there are fewer."""
    return int(np.searchsorted(np.cumsum(records.bodies.sizes), batch_bytes, "right")) + 1


def _first(batches: EncodedBatches, count: int) -> EncodedBatches:
    """The first batches; none of a negative count."""
    table = batches.table[: max(count, 0)]
    end = int(table["position"][-1]) + int(table["size"][-1]) if len(table) else 0
    keys = batches.keys and batches.keys.part(0, int(table["count"].sum(dtype=np.int64)))
    return EncodedBatches(batches.data[:end], table, keys)


def consecutive(parts: Iterator[EncodedBatches], base_offset: int) -> Iterator[EncodedBatches]:
    """The parts, each with offsets from 0, moved to consecutive offsets from `base_offset` on."""
    for part in parts:
        yield rebase(part.data, part.table, base_offset)._replace(keys=part.keys)
        base_offset += int(part.table["last_offset"][-1]) + 1


def encode_at(
    parts: Iterator[SortedRecords], encoding: Encoding, covered: Covered
) -> Iterator[EncodedBatches]:
    """The record batches of records that keep their offsets, which are their sort keys.

    A gap is no batch, except where it is too long for one segment and at the end: there batches
    without a record cover it. Raises InputError for an offset that is there twice, or not covered.
    """
    at = covered.start

    def framed(records: SortedRecords, _before: int) -> EncodedBatches:
        return _at_offsets(records, encoding)

    for batches in _filled(_rising(parts, covered), framed, encoding.batch_bytes):
        yield from _bridged(batches, at)
        at = int(batches.table["last_offset"][-1]) + 1
    yield from _blanks(at, at if covered.end is None else covered.end)


def _rising(parts: Iterator[SortedRecords], covered: Covered) -> Iterator[SortedRecords]:
    """The parts with records, if their offsets are covered and rise; else InputError."""
    last, end = covered.start - 1, INT64_MAX if covered.end is None else covered.end
    for part in parts:
        offsets = np.append(last, part.sort_keys)
        for wrong in offsets[1:][np.diff(offsets) <= 0][:1]:
            raise InputError(
                f"{covered.name} has offset {wrong} twice in the input of one run: an offset is "
                "that of one record; remove the other"
            )
        last = int(offsets[-1])
        if last >= end:
            raise InputError(f"{covered.name}: the offset {last} is not below the end, {end}")
        if len(part):
            yield part


def _at_offsets(records: SortedRecords, encoding: Encoding) -> EncodedBatches:
    ties = records.tie_breakers
    return encode_batches(
        records.timestamps, records.bodies, replace(encoding, append_time_ms=None),
        offsets=records.sort_keys, stamped=None if ties is None else ties != 0,
    )  # fmt: skip


def _bridged(batches: EncodedBatches, at: int) -> Iterator[EncodedBatches]:
    """The batches behind the offset `at`, with others in gaps that no segment can span."""
    table = batches.table
    before = _ends_before(table["last_offset"], at)
    far = np.flatnonzero(table["last_offset"] - before > INT32_MAX).tolist()
    for first, end in pairwise(sorted({0, *far, len(table)})):
        if first in far:
            yield from _blanks(int(before[first]), int(table["base_offset"][first]))
        yield EncodedBatches(batches.data, table[first:end])


def _ends_before(last_offsets: Int64s, at: int) -> Int64s:
    """Where what stands before each batch ends."""
    return np.append(at, last_offsets + 1)[:-1]


def _blanks(start: int, end: int) -> Iterator[EncodedBatches]:
    """Batches without a record for the offsets [start, end)."""
    for first in range(start, end, INT32_MAX):
        yield blank(first, min(first + INT32_MAX, end) - 1)
