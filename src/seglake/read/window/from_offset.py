"""Read some records of one log partition from an offset on, like a fetch in Kafka."""

from collections.abc import Iterator

import pyarrow as pa

from seglake.errors import UsageError
from seglake.log.execute import MEMORY_BYTES, execute
from seglake.log.piece import Window
from seglake.log.segment_lookup import PartitionReader
from seglake.read.window.plan import pieces_of


def records_from(
    reader: PartitionReader, offset: int, max_records: int, schema: pa.Schema
) -> pa.Table:
    """Return the records at or above `offset`, at most `max_records`.

    Raises OffsetOutOfRange if `offset` is below the log start or above the end, UsageError for a
    negative count, CorruptData and StoreError.
    """
    if max_records < 0:
        raise UsageError(f"max_records is {max_records}. Give 0 or more")
    reader.require(offset, reader.view.end_offset)
    pieces = pieces_of([(reader, Window(start_offset=offset))])
    memory_bytes = min(MEMORY_BYTES, 8 * reader.bytes_of(max_records))
    batches = execute(reader.fetch, pieces, schema, memory_bytes=memory_bytes)
    return pa.Table.from_batches(_first(batches, max_records), schema)


def _first(batches: Iterator[pa.RecordBatch], count: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if count <= 0:
            return
        yield batch.slice(0, count)
        count -= len(batch)
