"""Input rows that could not become records, each with the reason: what executors write.

Executors write Parquet files inside the quarantine table's folder, and the driver commits them
(`seglake.catalog.quarantine.table`). Nothing here imports a Delta library.
"""

from __future__ import annotations

import re
import uuid
from typing import NamedTuple

import pyarrow as pa

from seglake import layout
from seglake.catalog.delta.data_files import write_parquet
from seglake.store import Store

_COLUMNS: dict[str, pa.DataType] = {
    "topic": pa.string(),
    "attempt_id": pa.string(),
    "source_file": pa.string(),
    "line": pa.int64(),  # counted from 1
    "reason": pa.string(),
    "raw": pa.binary(),
    "ingested_at_ms": pa.int64(),
}
SCHEMA = pa.schema(_COLUMNS)
FILE_SCHEMA = SCHEMA.remove(0)  # the topic stands in the path
_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_PART = re.compile(rf"(?:{layout.QUARANTINE_TABLE}/)?topic=[^/]+/({_UUID})-{_UUID}.*\.parquet")


class Part(NamedTuple):
    """A written file of quarantined rows; `path` is relative to the table's folder."""

    topic: str
    path: str
    size_bytes: int
    rows: int
    stats: str


def write_part(store: Store, topic: str, attempt_id: str, rows: pa.Table) -> Part:
    """Write rows (of FILE_SCHEMA) as one file, which is invisible until the driver adds it."""
    layout.check_topic(topic)
    layout.check_attempt(attempt_id)
    name = f"topic={topic}/{attempt_id}-{uuid.uuid4()}"
    rows = rows.select(FILE_SCHEMA.names).cast(FILE_SCHEMA)
    path, size, stats = write_parquet(store, layout.QUARANTINE_TABLE, name, rows)
    return Part(topic, path, size, len(rows), stats)


def attempt_of(path: str) -> str | None:
    """Whose part stands at a path or key; None if it is no part that `write_part` wrote."""
    match = _PART.fullmatch(path)
    return match[1] if match else None
