"""Where blobs wait between the stages: on the lake's own storage, one object per task.

A task's blobs go one after another into one object under `attempts/<attempt>/blobs/`; the driver
gets a row of STAGED for each, and the tasks of the next stage read those that they are told. So no
executor has to outlive its task, a hot partition's tasks read what they need and no more, and the
rows of a DataFrame are evaluated once. When the attempt ends, however it ends, the folder goes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import crc32c
import pyarrow as pa

from seglake.errors import CorruptData
from seglake.layout import blobs_folder, new_blobs_key
from seglake.store import Store
from seglake.write.spool.blob import Blob

if TYPE_CHECKING:
    from typing_extensions import Buffer

_COLUMNS: dict[str, pa.DataType] = {
    "kind": pa.int32(),
    "unit": pa.int64(),
    "partition": pa.int32(),
    "sequence": pa.int32(),
    "records": pa.int64(),
    "size_bytes": pa.int64(),
    "key": pa.int64(),
    "second": pa.int64(),
    "last_key": pa.int64(),
    "last_second": pa.int64(),
    "counts": pa.string(),
    # where the data stands
    "object": pa.string(),
    "start": pa.int64(),
    "end": pa.int64(),
    "crc32c": pa.int64(),
}
STAGED = pa.schema(_COLUMNS)
_AHEAD = 2  # blobs that are fetched while one is worked on


class Stage:
    """Takes the blobs of one task; a context manager that leaves nothing after an error."""

    def __init__(self, store: Store, attempt_id: str) -> None:
        self._store, self._object = store, new_blobs_key(attempt_id)
        self._rows: list[dict[str, Any]] = []
        self._open = ExitStack()
        self._sink: Any = None
        self._at = 0

    def add(self, blob: Blob) -> None:
        """Write the blob's data and note the rest."""
        place: dict[str, Any] = {"object": self._object, "start": self._at, "crc32c": 0}
        if blob.data:
            if self._sink is None:
                writer = self._store.writer(self._object, durable=False)
                self._sink = self._open.enter_context(writer)
            self._sink.write(blob.data)
            self._at += len(blob.data)
            place["crc32c"] = crc32c.crc32c(blob.data)
        row = blob._replace(data=b"")._asdict()  # else the task would hold all that it wrote
        self._rows.append(row | place | {"end": self._at})

    def staged(self) -> pa.Table:
        """The rows of STAGED; the data can be read after the block."""
        return pa.Table.from_pylist(self._rows, STAGED)

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *error: Any) -> None:
        self._open.__exit__(*error)


class StagedBlob(NamedTuple):
    """A row of STAGED, and the data."""

    row: dict[str, Any]
    data: Buffer


def read_staged(store: Store, rows: pa.Table) -> Iterator[StagedBlob]:
    """The blobs in the order of `rows`, a few of them fetched ahead.

    Raises CorruptData, or StoreError, naming the object.
    """
    wanted = iter(rows.to_pylist())
    with ThreadPoolExecutor(1) as pool:
        coming = deque(pool.submit(_fetch, store, row) for row in islice(wanted, _AHEAD))
        while coming:
            blob = coming.popleft().result()
            coming.extend(pool.submit(_fetch, store, row) for row in islice(wanted, 1))
            yield blob


def _fetch(store: Store, row: dict[str, Any]) -> StagedBlob:
    start, end = row["start"], row["end"]
    data = store.read(row["object"], start, end) if start < end else b""
    if crc32c.crc32c(data) != row["crc32c"]:
        raise CorruptData(
            "what one stage wrote is not what the next one read: run again",
            file=f"{store.uri}/{row['object']}",
            position=start,
        )
    return StagedBlob(row, data)


def clear(store: Store, attempt_id: str) -> None:
    """Delete the blobs of all tasks of an attempt, those of tries that failed included."""
    store.delete([found.key for found in store.list(blobs_folder(attempt_id))])
