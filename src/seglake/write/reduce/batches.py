"""Sorted records as record batches at their final offsets."""

from collections.abc import Iterator

from seglake.format.encode import Batches, Encoding, encode_batches, rebase
from seglake.write.spool.sorted_records import SortedRecords, append


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
