"""Merges of the catalog's small data files: which files become one, and how.

Every commit leaves a small file for each kind of row. As in a log-structured merge tree, files of
about one size wait until there are enough of them, and then become one file of the next size. So
each row is rewritten once for each size, and n commits leave some log n files. A file with
ENOUGH_ROWS is final, and none has twice as many, so a commit that removes rows rewrites few others.
Rows of segments are sorted by the time at which the segments were made, so that statistics tell old
ones from new ones; rows of runs and of input files by name, so that few files can have a name.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise

import pyarrow as pa

from seglake.catalog.delta.actions import Action, add, remove
from seglake.catalog.delta.commit_log import DeltaLog
from seglake.catalog.delta.data_files import DataFile, read_files, write_file

FAN_IN = 16  # so many files of one size become one
ENOUGH_ROWS = 16_384

_ORDERS = (("created_at_ms", "partition", "base_offset"), ("path",), ("run_id",))
_Sizes = dict[int, list[DataFile]]


def due(files: Iterable[DataFile], fan_in: int) -> list[list[DataFile]]:
    """The groups of files to merge now, each of one kind and topic.

    Files of size s have fan_in**s to fan_in**(s + 1) rows (exclusive). The largest size with at
    least `fan_in` files is due, together with all smaller files.
    """
    groups: dict[tuple[str, str], _Sizes] = defaultdict(lambda: defaultdict(list))
    for file in sorted(files):
        if file.rows < ENOUGH_ROWS:
            groups[file.kind, file.topic][_size(file.rows, fan_in)].append(file)
    return [merge for sizes in groups.values() if (merge := _due(sizes, fan_in))]


def _due(sizes: _Sizes, fan_in: int) -> list[DataFile]:
    largest = max((size for size, files in sizes.items() if len(files) >= fan_in), default=-1)
    return [file for size, files in sizes.items() if size <= largest for file in files]


def _size(rows: int, fan_in: int) -> int:
    size = 0
    while rows >= fan_in:
        rows, size = rows // fan_in, size + 1
    return size


def merge(log: DeltaLog, version: int, groups: Iterable[Sequence[DataFile]]) -> list[int]:
    """Write each group of files of a version as one file, in one commit that changes no row.

    Returns the version that the commit makes, if there is a group. Raises CommitConflict if another
    commit removed one of the files, CorruptData and StoreError.
    """
    actions: list[Action] = []
    for files in groups:
        rows = pa.concat_tables(read_files(log.store, log.folder, files))
        for part in parts(rows):
            merged = write_file(log.store, log.folder, files[0].kind, files[0].topic, part)
            actions += [add(merged, changes=False)]
        actions += [remove(f.path, f.size_bytes, f.partition, changes=False) for f in files]
    if not actions:
        return []
    return [log.commit(version, actions, operation="OPTIMIZE")[-1].version]


def parts(rows: pa.Table) -> list[pa.Table]:
    """The rows of a kind for files of at most 2 * ENOUGH_ROWS (exclusive) rows each."""
    for order in _ORDERS:
        if set(order) <= set(rows.column_names):
            rows = rows.sort_by([(name, "ascending") for name in order])
    count = max(1, len(rows) // ENOUGH_ROWS)
    cuts = [len(rows) * number // count for number in range(count + 1)]
    return [rows.slice(start, end - start) for start, end in pairwise(cuts)]
