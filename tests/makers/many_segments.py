"""A catalog of very many segments, rows only: there are no files behind them."""

import uuid
from typing import Any

import numpy as np
import pyarrow as pa

from seglake.catalog.delta.actions import add_action
from seglake.catalog.delta.data_files import write_file
from seglake.catalog.schema import FILE_SCHEMAS, RunRow, TopicRow
from seglake.layout import LOG_TABLE, new_attempt
from tests.makers.catalog_rows import commit_rows
from tests.makers.lakes import create_catalog

TOPIC = "many"
BEGIN_MS, MINUTE_MS = 1_780_272_000_000, 60_000
RECORDS, RUNS = 1000, 2000
_A_FILE = 100_000


def many_segments(root: str, segments: int, partitions: int = 100) -> int:
    """Make the catalog; returns the end of its time in ms. Each segment has a minute of records."""
    table = create_catalog(root)
    each = -(-segments // partitions)
    _commit_runs(root, each)
    files = []
    for first in range(0, partitions, max(1, _A_FILE // each)):
        some = range(first, min(partitions, first + max(1, _A_FILE // each)))
        rows = pa.concat_tables(_rows(partition, each) for partition in some)
        files.append(write_file(table.store, LOG_TABLE, "segment", TOPIC, rows))
    base = table.snapshot().version
    table.log.commit(
        base,
        [add_action(file) for file in files],
        application=f"seglake/{TOPIC}",
        operation="WRITE",
    )
    return BEGIN_MS + each * MINUTE_MS


def _commit_runs(root: str, minutes: int) -> None:
    table, attempt = create_catalog(root), new_attempt()
    topic = TopicRow(
        topic=TOPIC, sequence=1, partitions=100, partitioner="murmur2", timestamp_type="CreateTime"
    )
    step = -(-minutes // RUNS) * MINUTE_MS
    runs = [
        RunRow(
            topic=TOPIC, pipeline="p", run_id=f"run {number}", fingerprint="", records=RECORDS,
            attempt_id=attempt, interval_start_ms=BEGIN_MS + number * step,
            interval_end_ms=BEGIN_MS + (number + 1) * step, started_at_ms=number,
            input_rows=RECORDS, finished_at_ms=number + 500,
            report='{"seconds": {"list input": 0.1, "write segments": 0.2}, "max_lateness_ms": 7}',
        )
        for number in range(min(RUNS, minutes))
    ]  # fmt: skip
    commit_rows(table, [topic, *runs], attempt_id=attempt)


def _rows(partition: int, count: int) -> pa.Table:
    number = np.arange(count)
    attempts = pa.array([str(uuid.UUID(int=i // 16 + 1)) for i in range(count)])
    values: dict[str, Any] = {
        "partition": np.full(count, partition, np.int32),
        "base_offset": number * RECORDS,
        "end_offset": (number + 1) * RECORDS,
        "record_count": np.full(count, RECORDS),
        "min_timestamp": BEGIN_MS + number * MINUTE_MS,
        "max_timestamp": BEGIN_MS + (number + 1) * MINUTE_MS - 1,
        "offset_of_max_timestamp": (number + 1) * RECORDS - 1,
        "timestamp_type": pa.array(["CreateTime"] * count),
        "codec": pa.array(["zstd"] * count),
        "index_interval_kind": pa.array(["bytes"] * count),
        "attempt_id": attempts,
        "index_attempt_id": attempts,
        "log_bytes": 40_000 + number % 9000,
    }
    schema = FILE_SCHEMAS["segment"]
    values |= dict.fromkeys(("external", "keyindex_of"), pa.nulls(count, pa.string()))
    columns = [pa.array(values.get(f.name, np.full(count, 4096)), f.type) for f in schema]
    return pa.table(columns, schema=schema)
