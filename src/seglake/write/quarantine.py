"""Write rejects to the quarantine. Tasks write files, which the driver then adds to the table.

Rejects wait in the spool as blobs, with line numbers within their split. When the line count of
each split is known, the tasks convert these numbers to line numbers of the file.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seglake.catalog.quarantine.files import FILES, RejectsFile, read_rejects, write_rejects
from seglake.engine import Amounts, Engine
from seglake.format.records import Int64s
from seglake.store import Store
from seglake.text.json import text_or_base64
from seglake.write.rows.rows import REASON_TEXTS
from seglake.write.spool.spool import read_blobs, unpack_rejects

# A sample has rows of 8 blobs, 5 rows per blob and reason, and 2,048 bytes of each.
SAMPLED_BLOBS, SAMPLED_EACH, SAMPLED_BYTES = 8, 5, 2048
SAMPLED_COLUMNS = ["source_file", "line", "reason", "raw", "member", "member_line"]
FILE_BYTES = 64 * 2**20  # rows of about this size in memory become one file
_REASONS = pa.array(REASON_TEXTS.tolist(), pa.string())
_ROW_BYTES = 256  # memory of a quarantined row in addition to its raw bytes


class SplitOrigin(NamedTuple):
    """The file of a split, and the number of lines before the split in this file."""

    path: str
    lines_before: int


class Quarantine(NamedTuple):
    """The task that writes blobs of rejects as rows of one quarantine file.

    `origins` has the file and the lines before each split, by split number.
    """

    store: Store
    topic: str
    attempt_id: str
    now_ms: int
    origins: dict[int, SplitOrigin]

    def run(self, engine: Engine, rejects: pa.Table) -> list[RejectsFile]:
        """Write all rejects. Return the new files, which are not part of the table yet."""
        sizes = rejects["size_bytes"].to_numpy() + _ROW_BYTES * rejects["records"].to_numpy()
        ends = np.cumsum(sizes)
        edges = np.flatnonzero(np.diff(ends // FILE_BYTES, prepend=-1)).tolist()
        files = [rejects.slice(a, b - a) for a, b in pairwise([*edges, len(rejects)])]
        return engine.map(self, files)

    def __call__(self, spooled: pa.Table) -> RejectsFile:
        """Write one file with the rejects of the blobs in `spooled`."""
        tables = [unpack_rejects(blob.data) for blob in read_blobs(self.store, spooled)]
        rows = self._rows(pa.concat_tables(tables))  # without copying their chunks
        return write_rejects(self.store, self.topic, self.attempt_id, rows)

    def amounts(self, files: Sequence[pa.Table]) -> Amounts:
        """Return the number of rejects in each file."""
        return Amounts("rejects", [int(pc.sum(spooled["records"]).as_py()) for spooled in files])

    def sample(self, rejects: pa.Table) -> list[dict[str, Any]]:
        """Return a few rejects of each reason as dictionaries, from blobs across the input.

        A reject has source_file, line, reason and raw (text or {"base64": …}, which may be cut).
        Rejects of archives also have member and member_line. Raises StoreError and CorruptData.
        """
        numbers = np.linspace(0, len(rejects) - 1, min(SAMPLED_BLOBS, len(rejects)))
        few: list[dict[str, Any]] = []
        for blob in read_blobs(self.store, rejects.take(numbers.astype(np.int64))):
            some = self._rows(_first_of_each_reason(unpack_rejects(blob.data)))
            few += map(_shown, some.select(SAMPLED_COLUMNS).to_pylist())
        return few

    def _rows(self, rejects: pa.Table) -> pa.Table:
        splits = rejects["split"].to_numpy()
        numbers, at = np.unique(splits, return_inverse=True)
        origins = [self.origins[number] for number in numbers.tolist()]
        before = np.array([origin.lines_before for origin in origins], np.int64)[at]
        files = pa.array([origin.path for origin in origins]).take(at)
        columns: dict[str, Any] = {
            "attempt_id": pa.repeat(self.attempt_id, len(rejects)),
            "source_file": files,
            "line": pc.add(rejects["line"], pa.array(before + 1)),
            "reason": _REASONS.take(rejects["reason"]),
            "raw": rejects["raw"],
            "ingested_at_ms": pa.repeat(self.now_ms, len(rejects)),
            "member": rejects["member"],
            "member_line": pc.add(rejects["member_line"], 1),
        }
        return pa.table(columns)


def _first_of_each_reason(rejects: pa.Table) -> pa.Table:
    reasons = rejects["reason"].to_numpy()
    first = [np.flatnonzero(reasons == reason)[:SAMPLED_EACH] for reason in set(reasons.tolist())]
    return rejects.take(np.sort(np.concatenate(first)))


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of a sample with its raw bytes cut, and as text if they are UTF-8."""
    shown = {**row, "raw": text_or_base64(row["raw"], SAMPLED_BYTES)}
    if row["member"] is None:
        del shown["member"], shown["member_line"]
    return shown


class KeepRefused(NamedTuple):
    """The task that copies refused rejects from one quarantine file to a new file.

    `lines` has the line numbers of the rejects that a redrive refused, by source file. The copies
    are rejects of `attempt_id`.
    """

    store: Store
    topic: str
    refused_of: str  # the attempt that the refused rejects belong to
    attempt_id: str
    now_ms: int
    lines: Mapping[str, Int64s]

    def __call__(self, key: str) -> tuple[RejectsFile | None, int]:
        """Return the new file and its number of rows, or (None, 0) if no reject was refused."""
        rows = read_rejects(self.store, key, [self.refused_of])
        lines, refused = rows["line"].to_numpy(), np.zeros(len(rows), np.bool_)
        for path, at in places_by_file(rows).items():
            refused[at] = np.isin(lines[at], self.lines.get(path, ()))
        rows = rows.filter(pa.array(refused))
        if not len(rows):
            return None, 0
        columns: dict[str, Any] = dict(zip(rows.column_names, rows.columns, strict=True))
        columns["attempt_id"] = pa.repeat(self.attempt_id, len(rows))
        columns["ingested_at_ms"] = pa.repeat(self.now_ms, len(rows))
        kept = pa.table(columns)
        return write_rejects(self.store, self.topic, self.attempt_id, kept), len(rows)

    def amounts(self, keys: Sequence[str]) -> Amounts:
        """Count each quarantine file as one unit of work."""
        return Amounts.alike(FILES, keys)


def places_by_file(rows: pa.Table) -> dict[str, Int64s]:
    """Return path of the source file → positions of its rows in `rows`, in ascending order."""
    names: Any = rows["source_file"].dictionary_encode().combine_chunks()
    codes = names.indices.to_numpy(zero_copy_only=False)
    order: Int64s = np.argsort(codes, kind="stable")
    paths: list[Any] = names.dictionary.to_pylist()
    ends = np.cumsum(np.bincount(codes, minlength=len(paths)))
    return dict(zip(paths, np.split(order, ends[:-1]), strict=True)) if paths else {}
