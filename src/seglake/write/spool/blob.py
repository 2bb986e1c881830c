"""Blobs: what goes from stage to stage. A few large compressed byte strings, never single records.

A map task divides each chunk of its input among log partitions, and each share into blobs. A blob
of records holds sort keys, timestamps and encoded bodies in the run's order. In arrival order
nothing is left to merge, and a blob holds finished record batches. Rejects and a summary of each
unit travel the same way.
"""

from __future__ import annotations

from typing import NamedTuple

RECORDS, BATCHES, REJECTS, SUMMARY = range(4)  # kinds
WITH_RECORDS = (RECORDS, BATCHES)


class Blob(NamedTuple):
    """A blob, and what the driver has to know of it."""

    kind: int
    unit: int  # number of the input unit, in the order of the input list
    data: bytes = b""
    partition: int = 0
    number: int = 0  # of the blob within its unit, from 1
    records: int = 0
    size_bytes: int = 0  # of the bodies, uncompressed, or of finished batches
    sort_key: int = 0  # of the first record
    tie_breaker: int = 0
    last_sort_key: int = 0  # of the last record
    last_tie_breaker: int = 0
    text: str = ""  # a unit's summary
