"""Merges of the quarantine's small files: which become one, and how.

Each run with rejects leaves a small file, and whoever lists rejects may have to open all of them.
So few may wait, as in the catalog. Only rejects of committed runs are merged: a vacuum takes the
others out by the names of their files. A file that another program wrote may have such rejects,
too, so it is left alone.
"""

from collections.abc import Callable, Iterable, Sequence

import pyarrow as pa

from seglake.catalog.delta import file_merges
from seglake.catalog.delta.actions import AddedFile
from seglake.catalog.fate import is_given_up
from seglake.catalog.quarantine.files import (
    RejectsFile,
    attempt_of,
    is_merged,
    to_merge,
    write_merged,
)
from seglake.layout import attempt_objects, fate_key, success_key
from seglake.store import Store

FAN_IN = file_merges.FAN_IN
ENOUGH_BYTES = 4 * 2**20  # a file of this size is final; each run writes few that are larger
UNIT_BYTES = 256  # counts as one row does in the catalog


def due(files: Iterable[AddedFile], is_committed: Callable[[str], bool]) -> list[AddedFile]:
    """The files of a topic to merge now, if any.

    These are the files of the largest size that two have, and all smaller ones, once FAN_IN small
    files of committed attempts wait. Only then it is asked who is committed.
    """
    small = [file for file in files if file.size_bytes < ENOUGH_BYTES]
    merged = [file for file in small if is_merged(file.path)]
    owners = {file.path: owner for file in small if (owner := attempt_of(file.path)) is not None}
    if len(merged) + len(owners) < FAN_IN:
        return []
    committed = {owner for owner in sorted({*owners.values()}) if is_committed(owner)}
    small = [file for file in small if file in merged or owners.get(file.path) in committed]
    if len(small) < FAN_IN:
        return []
    return file_merges.largest_pair(small, lambda file: file.size_bytes // UNIT_BYTES)


def is_committed(store: Store, attempt_id: str) -> bool:
    """Whether what is there of an attempt that named rejects says that it is committed.

    Its mark says so; or that nothing is there but its fate, since a chronicle tells of it. One that
    runs has its announcement, and a vacuum takes out what one named that ended otherwise.
    """
    keys = {item.key for item in store.list(attempt_objects(attempt_id))}
    if success_key(attempt_id) in keys:
        return True
    return keys <= {fate_key(attempt_id)} and not is_given_up(store, attempt_id)


def merge(store: Store, topic: str, attempt_id: str, keys: Sequence[str]) -> RejectsFile:
    """Write all rejects in the files with these keys as one file of an attempt."""
    return write_merged(
        store, topic, attempt_id, pa.concat_tables(to_merge(store, k) for k in keys)
    )
