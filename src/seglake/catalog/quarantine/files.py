"""Write and read data files of the quarantine. Executors write them, and the driver commits them.

Until a file is merged, it has the rejects of one attempt, and the attempt's id is in the file name.
A merged file has rejects of many attempts, and lists their ids in its metadata. The name of a
merged file has the id of the attempt that wrote it.

This module imports no Delta library, so executors need none.
"""

import base64
import re
import uuid
from collections.abc import Collection, Mapping
from typing import Any

import crc32c
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seglake import layout
from seglake.catalog.delta.actions import WrittenFile
from seglake.catalog.delta.data_files import read_metadata, read_parquet, write_parquet
from seglake.errors import CorruptData
from seglake.format.records import Int64s
from seglake.store import Store

_COLUMNS: dict[str, pa.DataType] = {
    "topic": pa.string(),
    "attempt_id": pa.string(),
    "source_file": pa.string(),
    "line": pa.int64(),  # counted from 1
    "reason": pa.string(),
    "raw": pa.binary(),
    "ingested_at_ms": pa.int64(),
    "member": pa.string(),  # name of the file in an archive
    "member_line": pa.int64(),  # line in the member, counted from 1
}
FRAME = "DataFrame"  # the source file of a row of a DataFrame
FILES = "files of rejects"  # the unit of progress when sizes are unknown
SCHEMA = pa.schema(_COLUMNS)
FILE_SCHEMA = SCHEMA.remove(0)  # the topic is in the path
_FIRST = "first_place"  # a column that only merged files have, not the table
_PLACE = pa.struct([pa.field("file", pa.string()), pa.field("row", pa.int64())])
_MERGED_SCHEMA = FILE_SCHEMA.append(pa.field(_FIRST, _PLACE))
_ATTEMPTS = b"seglake.attempts"
RejectsFile = WrittenFile  # a file of rejects that no version names yet
_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_PATH = re.compile(
    rf"(?:{layout.QUARANTINE_TABLE}/)?topic=[^/]+/(merged-)?({_UUID})-{_UUID}.*\.parquet"
)


def write_rejects(store: Store, topic: str, attempt_id: str, rejects: pa.Table) -> RejectsFile:
    """Write rejects (FILE_SCHEMA) as one file, which is invisible until the driver commits it."""
    rows = rejects.select(FILE_SCHEMA.names).cast(FILE_SCHEMA)
    return _write(store, topic, attempt_id, "", rows)


def write_merged(store: Store, topic: str, attempt_id: str, rejects: pa.Table) -> RejectsFile:
    """Write rejects of committed attempts, as returned by `read_for_merge`, as one merged file."""
    columns = rejects.column_names
    if rejects[_FIRST].null_count == len(rejects):
        columns.remove(_FIRST)
    ids: list[Any] = pc.unique(rejects["attempt_id"]).to_pylist()
    listed = base64.b64encode(b"".join(uuid.UUID(each).bytes for each in sorted(ids)))
    metadata = {_ATTEMPTS: _checksum(listed) + listed}
    rows = rejects.select(columns).replace_schema_metadata(metadata)
    return _write(store, topic, attempt_id, "merged-", rows)


def _write(store: Store, topic: str, attempt_id: str, prefix: str, rows: pa.Table) -> RejectsFile:
    layout.check_topic(topic)
    layout.check_attempt(attempt_id)
    name = f"{prefix}{attempt_id}-{uuid.uuid4()}"
    return write_parquet(store, layout.QUARANTINE_TABLE, name, {"topic": topic}, rows)


def read_all_rejects(store: Store, key: str) -> pa.Table:
    """Return every reject in the file with this key, with all columns that `first_places` needs."""
    return read_parquet(store, key, _MERGED_SCHEMA if is_merged(key) else FILE_SCHEMA)


def read_rejects(store: Store, key: str, attempts: Collection[str]) -> pa.Table:
    """Return the rejects of `attempts` in the file with this key, as a table of FILE_SCHEMA."""
    rows = read_parquet(store, key, FILE_SCHEMA)
    return rows.filter(pc.is_in(rows["attempt_id"], pa.array(list(attempts), pa.string())))


def read_for_merge(store: Store, key: str) -> pa.Table:
    """Return every reject in the file with this key, with an added column for DataFrame rows.

    The column has the file to which the row was first written, and the position in that file.
    """
    rows = read_all_rejects(store, key)
    if _FIRST in rows.column_names:
        return rows.replace_schema_metadata()
    places: list[Any] = [pa.repeat(key, len(rows)), pa.array(np.arange(len(rows)))]
    others = pc.invert(is_from_frame(rows))
    first = pa.StructArray.from_arrays(places, names=["file", "row"], mask=others)
    return rows.append_column(_FIRST, first)


def is_from_frame(rows: pa.Table) -> pa.BooleanArray:
    """Return, for each reject, whether it is a row of a DataFrame."""
    flags: Any = pc.equal(rows["source_file"], pa.scalar(FRAME)).fill_null(False)
    are: pa.BooleanArray = flags.combine_chunks()
    return are


def first_places(key: str, rows: pa.Table) -> tuple[pa.StringArray, Int64s]:
    """Return the key of the file to which each reject was first written, and its position there.

    `rows` are all rejects in the file with key `key`. In a merged file, the result is only correct
    for rows of DataFrames. Other rejects are distinguished by their source file and line.
    """
    here, places = pa.repeat(key, len(rows)), np.arange(len(rows))
    if _FIRST not in rows.column_names:
        return here, places
    first: Any = rows[_FIRST].combine_chunks()
    files, at = first.flatten()
    known = files.is_valid().to_numpy(zero_copy_only=False)
    return pc.coalesce(files, here), np.where(known, at.fill_null(0).to_numpy(), places)


def describe_place(row: Mapping[str, Any]) -> tuple[str, int]:
    """Return the file and line of a reject for display.

    For a file in an archive, they are `<archive>!<member>` and the line in the member.
    """
    if row.get("member") is None:
        return row["source_file"], row["line"]
    return f"{row['source_file']}!{row['member']}", row["member_line"]


def only_attempt(path: str) -> str | None:
    """Return the only attempt that has rejects in the file at a path or key.

    Return None for a merged file, and for a file of another program, which may have rejects of any
    attempt.
    """
    return None if is_merged(path) else writing_attempt(path)


def writing_attempt(path: str) -> str | None:
    """Return the attempt in the name of the file at a path or key.

    Return None for a file of another program.
    """
    match = _PATH.fullmatch(path)
    return match[2] if match else None


def is_merged(path: str) -> bool:
    """Return whether the file at a path or key is a merged file of Seglake."""
    match = _PATH.fullmatch(path)
    return match is not None and match[1] is not None


def attempts_in(store: Store, key: str, size: int) -> set[str]:
    """Return the attempts that have rejects in the merged file with this key.

    Reads only the end of the file, which has `size` bytes. Raises CorruptData and StoreError.
    """
    metadata = read_metadata(store, key, size).get(_ATTEMPTS, b"")
    listed = metadata[8:]
    if _checksum(listed) != metadata[:8]:
        raise CorruptData("the list of attempts has a wrong checksum", file=key)
    packed = base64.b64decode(listed)
    return {str(uuid.UUID(bytes=packed[at : at + 16])) for at in range(0, len(packed), 16)}


def _checksum(listed: bytes) -> bytes:
    return b"%08x" % crc32c.crc32c(listed)
