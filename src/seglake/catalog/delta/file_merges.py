"""Merge the catalog's small data files.

Every commit adds a small file for each kind of row, and a search may have to read all of them. So
when FAN_IN small files exist, files of about the same size are merged. Each row is rewritten less
than STEP times in each size, and usually a few times in total. A file with ENOUGH_ROWS rows is
final, and every file has less than 2 * ENOUGH_ROWS, so a commit that removes rows rewrites few
other rows.

Rows of segments are sorted by the time when the segments were made, so that statistics separate old
segments from new ones. Rows of runs and of input files are sorted by name, so that few files can
have a given name.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, pairwise
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from seglake.catalog.delta.actions import Action, add_action, remove_action
from seglake.catalog.delta.commit_log import DeltaLog
from seglake.catalog.delta.data_files import DataFile, read_files, write_file

FAN_IN = 8  # small files of a kind and topic that cause a merge; larger than the count of sizes
STEP = 16  # ratio of one size to the next
ENOUGH_ROWS = 16_384

_PLACE = ("partition", "base_offset")
_ORDERS = (("created_at_ms", *_PLACE), ("path",), ("run_id",))

_File = TypeVar("_File")


class FilePart(NamedTuple):
    """Rows for one file. If `past`, its segments all have later segments in their partitions."""

    rows: pa.Table
    past: bool = False


def groups_to_merge(files: Iterable[DataFile], fan_in: int) -> list[list[DataFile]]:
    """Return the groups of files to merge now. The files of a group have one kind and topic.

    Files of size s have STEP**s to STEP**(s + 1) rows (exclusive). When one kind of a topic has
    `fan_in` small files, all kinds of the topic are merged, so that fewer commits merge. For each
    kind, the group has the files of the largest size that at least two files have, and all smaller
    files.
    """
    topics: dict[str, dict[str, list[DataFile]]] = defaultdict(lambda: defaultdict(list))
    # Sort by path, because comparing whole `DataFile`s is slow.
    for file in sorted(files, key=lambda file: file.path):
        if file.rows < ENOUGH_ROWS:
            topics[file.topic][file.kind].append(file)
    turns = [kinds.values() for kinds in topics.values() if max(map(len, kinds.values())) >= fan_in]
    groups = [largest_pair(small, lambda f: f.rows) for small in chain.from_iterable(turns)]
    return list(filter(None, groups))


def largest_pair(files: Sequence[_File], rows: Callable[[_File], int]) -> list[_File]:
    """Return all files up to the largest size class (see `_size`) that has at least two files."""
    counts = Counter(_size(rows(file)) for file in files)
    largest = max((size for size, count in counts.items() if count > 1), default=-1)
    return [file for file in files if _size(rows(file)) <= largest]


def _size(rows: int) -> int:
    size = 0
    while rows >= STEP:
        rows, size = rows // STEP, size + 1
    return size


def merge_groups(log: DeltaLog, version: int, groups: Iterable[Sequence[DataFile]]) -> list[int]:
    """Merge each group of files of a version, in one commit that changes no row.

    Return a list with the new version, or an empty list if there is no group. Raises CommitConflict
    if another commit removed one of the files, CorruptData and StoreError.
    """
    actions: list[Action] = []
    for files in groups:
        rows = pa.concat_tables(read_files(log.store, log.folder, files))
        for part in cut_rows(rows):
            merged = write_file(log.store, log.folder, files[0].kind, files[0].topic, *part)
            actions.append(add_action(merged, changes=False))
        actions += [remove_action(f.path, f.size_bytes, f.partition, changes=False) for f in files]
    return [log.commit(version, actions, operation="OPTIMIZE")[-1].version] if actions else []


def cut_rows(rows: pa.Table) -> list[FilePart]:
    """Sort rows of one kind, and cut them into parts of less than 2 * ENOUGH_ROWS rows.

    If there are at least ENOUGH_ROWS segment rows, the last segment of each log partition is in a
    separate part.
    """
    for order in _ORDERS:
        if set(order) <= set(rows.column_names):
            rows = rows.sort_by([(name, "ascending") for name in order])
    if len(rows) < ENOUGH_ROWS or "base_offset" not in rows.column_names:
        return _cut(rows)
    last = _last_segments(rows)
    return _cut(rows.filter(pa.array(last))) + _cut(rows.filter(pa.array(~last)), past=True)


def _cut(rows: pa.Table, *, past: bool = False) -> list[FilePart]:
    count = max(1, len(rows) // ENOUGH_ROWS)
    cuts = [len(rows) * number // count for number in range(count + 1)]
    return [
        FilePart(rows.slice(start, end - start), past)
        for start, end in pairwise(cuts)
        if end > start
    ]


def _last_segments(rows: pa.Table) -> npt.NDArray[np.bool_]:
    """Return, for each segment row, whether it is the last of its log partition in `rows`."""
    partitions, bases = (np.from_dlpack(rows[name].combine_chunks()) for name in _PLACE)
    order = np.lexsort((bases, partitions))
    ends = np.append(np.diff(partitions[order]) != 0, True)
    last = np.zeros(len(rows), bool)
    last[order[ends]] = True
    return last
