"""Rows that leave the catalog: the data files that hold them, and what remains of these files.

Statistics say which files can hold the rows. These are read, the likeliest first, until all rows
are found: one, then from an object store twice as many each time. No other file is rewritten.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from seglake.catalog.delta.data_files import DataFile, read_files
from seglake.catalog.schema import Kind
from seglake.errors import CommitConflict
from seglake.limits import REQUESTS
from seglake.store import Store


class Removal(NamedTuple):
    """Rows of one kind that go.

    `expected` is how many rows go; None: any number. `stated` has their values in some integer
    columns, one item per row. `goes` says which rows of a table go.
    """

    kind: Kind
    stated: Mapping[str, npt.NDArray[np.int64]]
    expected: int | None
    goes: Callable[[pa.Table], pa.BooleanArray]


class Divided(NamedTuple):
    """A data file with rows that go: those, and the rows that stay."""

    file: DataFile
    goes: pa.Table
    stays: pa.Table


def divided(
    store: Store, folder: str, files: Collection[DataFile], removal: Removal
) -> list[Divided]:
    """Each file with rows that go, divided; `files` are those of one topic.

    Raises CommitConflict if fewer rows than expected are found, CorruptData, MissingObject and
    StoreError.
    """
    parts, missing = list[Divided](), removal.expected
    for some in _rounds(_likely(files, removal), removal, store):
        for file, rows in zip(some, read_files(store, folder, some), strict=True):
            gone = removal.goes(rows)
            part = Divided(file, rows.filter(gone), rows.filter(pc.invert(gone)))
            missing = missing and missing - len(part.goes)
            if len(part.goes):
                parts.append(part)
        if missing == 0:
            break
    if missing:
        raise CommitConflict(f"{folder}: {missing} {removal.kind} rows to remove are gone")
    return parts


def _rounds(
    files: Sequence[DataFile], removal: Removal, store: Store
) -> Iterator[Sequence[DataFile]]:
    """The files in order, in parts that are read at once: a commit waits for each part."""
    most = REQUESTS if store.remote else 1
    first, at_once = 0, most if removal.expected is None else 1
    while first < len(files):
        yield files[first : first + at_once]
        first, at_once = first + at_once, min(2 * at_once, most)


def _likely(files: Collection[DataFile], removal: Removal) -> list[DataFile]:
    """The files that can hold rows that go; first those with the narrowest bounds."""

    def width(file: DataFile) -> int:
        return sum(high - low for low, high in file.bounds.values())

    chosen = [f for f in files if f.kind == removal.kind and f.may_hold(removal.stated)]
    return sorted(chosen, key=lambda file: (width(file), file))
