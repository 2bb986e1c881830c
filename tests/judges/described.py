"""Batch tables of whole logs, from their records, as the index files need them."""

from typing import Any

from seglake.format.batch import BatchTable
from seglake.format.decode import decode_batches, scan_batches, with_extremes


def describe(log: Any) -> BatchTable:
    """The complete batch table of a log: all its records are decoded. Raises CorruptData."""
    table = scan_batches(log)
    return with_extremes(table, decode_batches(log, table, control=True))
