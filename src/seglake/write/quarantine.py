"""Rejected rows on their way to the catalog: written by executors, added by the driver.

Rejects travel as blobs beside the records. Once the driver knows how many lines each split has,
line numbers within a split become line numbers of the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seglake.catalog.quarantine.parts import Part, write_part
from seglake.engine import Engine
from seglake.store import open_store
from seglake.write.input.listing import Split
from seglake.write.map.unit import SplitCount
from seglake.write.spool.blob import REJECTS
from seglake.write.spool.spool import read_staged

FILE_BYTES = 32 * 2**20  # of compressed blobs in one file of rejected rows


class Origin(NamedTuple):
    """Where a split stands: its file, and how many lines of the file come before it."""

    path: str
    lines_before: int


def origins(splits: list[Split], counts: Mapping[int, SplitCount]) -> dict[int, Origin]:
    """The origin of each split, by number."""
    found: dict[int, Origin] = {}
    path, before = "", 0
    for split in splits:
        before = before if split.file.path == path else 0
        path = split.file.path
        found[split.number] = Origin(path, before)
        before += counts[split.number].lines
    return found


class Quarantine(NamedTuple):
    """What the tasks that write rejected rows know; pickled into them."""

    root: str
    storage: dict[str, str]
    topic: str
    attempt_id: str
    now_ms: int
    origins: dict[int, Origin]

    def write(self, engine: Engine, staged: pa.Table) -> list[Part]:
        """Write every rejected row; returns the files, which nobody sees before `add_parts`."""
        rejects = staged.filter(pa.array(staged["kind"].to_numpy() == REJECTS))
        ends = np.cumsum(rejects["size_bytes"].to_numpy())
        edges = np.flatnonzero(np.diff(ends // FILE_BYTES, prepend=-1)).tolist()
        files = [rejects.slice(a, b - a) for a, b in pairwise([*edges, len(rejects)])]
        return engine.map(self, files)

    def __call__(self, staged: pa.Table) -> Part:
        """Staged blobs of rejected rows → one written file."""
        store = open_store(self.root, self.storage)
        tables = [
            pa.ipc.open_stream(pa.py_buffer(blob.data)).read_all()
            for blob in read_staged(store, staged)
        ]
        return write_part(store, self.topic, self.attempt_id, self._rows(pa.concat_tables(tables)))

    def _rows(self, rejects: pa.Table) -> pa.Table:
        splits = rejects["split"].to_numpy()
        numbers, at = np.unique(splits, return_inverse=True)
        origins = [self.origins[number] for number in numbers.tolist()]
        before = np.array([origin.lines_before for origin in origins], np.int64)[at]
        files = pa.array([origin.path for origin in origins]).take(at)
        columns: dict[str, pa.Array[Any] | pa.ChunkedArray[Any]] = {
            "attempt_id": pa.repeat(self.attempt_id, len(rejects)),
            "source_file": files,
            "line": pc.add(rejects["line"], pa.array(before + 1)),
            "reason": rejects["reason"],
            "raw": rejects["raw"],
            "ingested_at_ms": pa.repeat(self.now_ms, len(rejects)),
        }
        return pa.Table.from_arrays(list(columns.values()), list(columns))
