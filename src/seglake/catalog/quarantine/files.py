"""Data files of the quarantine: executors write them, and the driver commits them.

This module imports no Delta library, so executors need none.
"""

import re
import uuid
from collections.abc import Collection, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from seglake import layout
from seglake.catalog.delta.actions import WrittenFile
from seglake.catalog.delta.data_files import read_parquet, write_parquet
from seglake.store import Store

_COLUMNS: dict[str, pa.DataType] = {
    "topic": pa.string(),
    "attempt_id": pa.string(),
    "source_file": pa.string(),
    "line": pa.int64(),  # counted from 1
    "reason": pa.string(),
    "raw": pa.binary(),
    "ingested_at_ms": pa.int64(),
    "member": pa.string(),  # of an archive
    "member_line": pa.int64(),  # the line in it, from 1
}
LATER_COLUMNS = {"member", "member_line"}  # an older table may lack them
FRAME = "DataFrame"  # in place of a path
SCHEMA = pa.schema(_COLUMNS)
FILE_SCHEMA = SCHEMA.remove(0)  # the path holds the topic
RejectsFile = WrittenFile  # a file of rejects that no version names yet
_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_PATH = re.compile(rf"(?:{layout.QUARANTINE_TABLE}/)?topic=[^/]+/({_UUID})-{_UUID}.*\.parquet")


def write_rejects(store: Store, topic: str, attempt_id: str, rejects: pa.Table) -> RejectsFile:
    """Write rejects (of FILE_SCHEMA) as one file, which is invisible until the driver adds it."""
    layout.check_topic(topic)
    layout.check_attempt(attempt_id)
    rows, name = rejects.select(FILE_SCHEMA.names).cast(FILE_SCHEMA), f"{attempt_id}-{uuid.uuid4()}"
    return write_parquet(store, layout.QUARANTINE_TABLE, name, {"topic": topic}, rows)


def read_all_rejects(store: Store, key: str) -> pa.Table:
    """Every reject in the file with this key, as a table of FILE_SCHEMA."""
    return read_parquet(store, key, FILE_SCHEMA)


def read_rejects(store: Store, key: str, attempts: Collection[str]) -> pa.Table:
    """The rejects of some attempts in the file with this key, as a table of FILE_SCHEMA."""
    rows = read_all_rejects(store, key)
    return rows.filter(pc.is_in(rows["attempt_id"], pa.array(list(attempts), pa.string())))


def place_of(row: Mapping[str, Any]) -> tuple[str, int]:
    """The file and line of a reject as people look for them: in an archive, member and its line."""
    if row.get("member") is None:
        return row["source_file"], row["line"]
    return f"{row['source_file']}!{row['member']}", row["member_line"]


def attempt_of(path: str) -> str | None:
    """The attempt that wrote the file at a path or key; None for another writer's file."""
    match = _PATH.fullmatch(path)
    return match[1] if match else None
