"""Sorted records as record batches at their final offsets."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from seglake.errors import InputError
from seglake.format.encode import Batches, Encoding, encode_batches, rebase
from seglake.format.filter import blank
from seglake.format.records import Int64s
from seglake.limits import INT32_MAX, INT64_MAX
from seglake.write.spool.sorted_records import SortedRecords, append


class Covered(NamedTuple):
    """The offsets [start, end) of a log partition, named in errors, that batches are to cover.

    Without an end they end behind the last record.
    """

    name: str
    start: int
    end: int | None


def encode(
    parts: Iterator[SortedRecords], encoding: Encoding, base_offset: int
) -> Iterator[Batches]:
    """The record batches of consecutive records, offsets from `base_offset` on.

    The last record batch of a part is filled up with records of the next part, so where record
    batches end does not depend on where parts end.
    """
    unfilled: SortedRecords | None = None
    for part in parts:
        records = part if unfilled is None else append(unfilled, part)
        batches = encode_batches(
            records.timestamps, records.bodies, encoding, base_offset=base_offset
        )
        full = batches.table[:-1]
        done = int(batches.table["base_offset"][-1]) - base_offset if len(batches.table) else 0
        if done:
            yield Batches(batches.data[: int(batches.table["position"][-1])], full)
        unfilled = records.part(done, len(records)).detached()
        base_offset += done
    if unfilled is not None and len(unfilled):
        yield encode_batches(
            unfilled.timestamps, unfilled.bodies, encoding, base_offset=base_offset
        )


def consecutive(parts: Iterator[Batches], base_offset: int) -> Iterator[Batches]:
    """The parts, each with offsets from 0, moved to consecutive offsets from `base_offset` on."""
    for part in parts:
        yield rebase(part.data, part.table, base_offset)
        base_offset += int(part.table["last_offset"][-1]) + 1


def encode_at(
    parts: Iterator[SortedRecords], encoding: Encoding, covered: Covered
) -> Iterator[Batches]:
    """The record batches of records that keep their offsets, which are their sort keys.

    A gap is no batch, except where it is too long for one segment and at the end: there batches
    without a record cover it. Raises InputError for an offset that is there twice, or not covered.
    """
    at, unfilled = covered.start, None
    for part in _rising(parts, covered):
        records = part if unfilled is None else append(unfilled, part)
        batches = _at_offsets(records, encoding)
        full = batches.table[:-1]
        yield from _bridged(Batches(batches.data, full), at)
        at = int(full["last_offset"][-1]) + 1 if len(full) else at
        done = int(full["count"].sum(dtype=np.int64))
        unfilled = records.part(done, len(records)).detached()
    if unfilled is not None:
        batches = _at_offsets(unfilled, encoding)
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


def _at_offsets(records: SortedRecords, encoding: Encoding) -> Batches:
    ties = records.tie_breakers
    return encode_batches(
        records.timestamps, records.bodies, replace(encoding, append_time_ms=None),
        offsets=records.sort_keys, stamped=None if ties is None else ties != 0,
    )  # fmt: skip


def _bridged(batches: Batches, at: int) -> Iterator[Batches]:
    """The batches behind the offset `at`, with others in gaps that no segment can span."""
    table = batches.table
    before = _ends_before(table["last_offset"], at)
    far = np.flatnonzero(table["last_offset"] - before > INT32_MAX).tolist()
    for first, end in pairwise(sorted({0, *far, len(table)})):
        if first in far:
            yield from _blanks(int(before[first]), int(table["base_offset"][first]))
        yield Batches(batches.data, table[first:end])


def _ends_before(last_offsets: Int64s, at: int) -> Int64s:
    """Where what stands before each batch ends."""
    return np.append(at, last_offsets + 1)[:-1]


def _blanks(start: int, end: int) -> Iterator[Batches]:
    """Batches without a record for the offsets [start, end)."""
    for first in range(start, end, INT32_MAX):
        yield blank(first, min(first + INT32_MAX, end) - 1)
