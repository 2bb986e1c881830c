"""Lists of input files, as columns: an object for each file would take ten times the memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seglake.write.input.files import UNKNOWN, SourceFile

_TYPES: dict[str, pa.DataType] = {
    "path": pa.large_string(),
    "size": pa.int64(),
    "modified_ms": pa.int64(),
    "etag": pa.large_string(),
}
_SCHEMA = pa.schema(_TYPES)
_ROWS = 1 << 14  # made objects at once
_SHOWN = 3

_Item = TypeVar("_Item")


class _Columns(Sequence[_Item]):
    """Rows of a table, each made when it is asked for. Nothing changes them."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def _made(self, columns: Sequence[list[Any]]) -> Iterable[_Item]:
        """The items of some rows."""
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self._table)

    @overload
    def __getitem__(self, at: int) -> _Item: ...

    @overload
    def __getitem__(self, at: slice) -> list[_Item]: ...

    def __getitem__(self, at: int | slice) -> _Item | list[_Item]:
        numbers = range(len(self))[at]
        if isinstance(numbers, range):
            return self._at([*numbers])
        (item,) = self._at([numbers])
        return item

    def _at(self, numbers: list[int]) -> list[_Item]:
        rows = self._table.take(pa.array(numbers, pa.int64()))
        return [*self._made([column.to_pylist() for column in rows.columns])]

    def __iter__(self) -> Iterator[_Item]:
        for batch in self._table.to_batches(max_chunksize=_ROWS):
            yield from self._made([column.to_pylist() for column in batch.columns])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and [*self] == [*other]

    __hash__ = None  # type: ignore[assignment]  # as a list has none

    def __deepcopy__(self, memo: object) -> _Columns[_Item]:
        return self

    def __repr__(self) -> str:
        more = ", …" if len(self) > _SHOWN else ""
        return f"[{', '.join(map(repr, self[:_SHOWN]))}{more}]"


class FilePaths(_Columns[str]):
    """The paths of input files."""

    def _made(self, columns: Sequence[list[Any]]) -> Iterable[str]:
        return columns[0]


class FileList(_Columns[SourceFile]):
    """Input files."""

    def _made(self, columns: Sequence[list[Any]]) -> Iterable[SourceFile]:
        return map(SourceFile, *columns)

    @staticmethod
    def of(files: Iterable[SourceFile]) -> FileList:
        """The files in the order in which they come."""
        rows, batches = iter(files), [pa.RecordBatch.from_pylist([], _SCHEMA)]
        while some := list(islice(rows, _ROWS)):
            columns = zip(*some, strict=True)
            arrays = [pa.array(column, f.type) for column, f in zip(columns, _SCHEMA, strict=True)]
            batches.append(pa.record_batch(arrays, schema=_SCHEMA))
        return FileList(pa.Table.from_batches(batches))

    @staticmethod
    def joined(parts: Sequence[FileList]) -> FileList:
        """The files of all parts, one part after another."""
        tables = [each._table for each in parts]  # noqa: SLF001  of this class
        return FileList(pa.concat_tables([_SCHEMA.empty_table(), *tables]))

    @property
    def paths(self) -> FilePaths:
        """The path of each file."""
        return FilePaths(self._table.select(["path"]))

    @property
    def has_versions(self) -> bool:
        """Whether the version of each file is known."""
        return bool(pc.min(self._table["size"]).as_py() != UNKNOWN.size)

    @property
    def size_bytes(self) -> int:
        """The bytes of all files."""
        return int(pc.sum(self._table["size"]).as_py() or 0)

    def parts(self, rows: int) -> Iterator[FileList]:
        """The files in lists of at most so many."""
        for start in range(0, len(self), rows):
            yield FileList(self._table.slice(start, rows))

    def filter(self, flags: Sequence[bool]) -> FileList:
        """The files with a flag; without a copy if all have one."""
        return self if all(flags) else FileList(self._table.filter(pa.array(flags, pa.bool_())))

    def by_path(self) -> FileList:
        """The files sorted by path, each path once; a listing is mostly sorted already."""
        paths = self._table["path"]
        if pc.all(pc.greater(paths[1:], paths[:-1])).as_py() is not False:
            return self
        table = self._table.take(pc.sort_indices(paths))
        paths = table["path"]
        others = pc.not_equal(paths[1:], paths[:-1]).to_numpy()
        return FileList(table.filter(pa.array(np.append(True, others))))

    def among(self, paths: Iterable[str]) -> set[str]:
        """Those of some paths that files of this list have."""
        asked = pa.array(filter(is_text, paths), pa.large_string())
        mine = self._table["path"]
        found: list[Any] = mine.filter(pc.is_in(mine, asked)).to_pylist()
        return {*found}


def is_text(path: str) -> bool:
    """Whether a path has an encoding; a name that is not UTF-8 has none."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True
