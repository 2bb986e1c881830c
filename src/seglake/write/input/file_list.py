"""Lists of input files, as compressed columns.

A listed file takes 2,000 bytes as an object, 130 as a row of columns, and 30 of compressed ones:
names that follow each other are much alike.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple, TypeVar, overload

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
_ROWS = 1 << 14  # of a block, at most
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="zstd")
_SHOWN = 3

_Item = TypeVar("_Item")


class _Block(NamedTuple):
    """Some rows, compressed; at least one."""

    rows: int
    stream: pa.Buffer

    @staticmethod
    def of(batch: pa.RecordBatch) -> _Block:
        """Compress some rows."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, _SCHEMA, options=_COMPRESSED) as writer:
            writer.write_batch(batch)
        return _Block(len(batch), sink.getvalue())

    def batch(self, *columns: str) -> pa.RecordBatch:
        """The rows; with all columns if none is named."""
        numbers = [_SCHEMA.get_field_index(name) for name in columns]
        options = pa.ipc.IpcReadOptions(included_fields=numbers or None)
        with pa.ipc.open_stream(self.stream, options=options) as reader:
            return reader.read_next_batch()


class _Columns(Sequence[_Item]):
    """Rows of blocks, each made when it is asked for. Nothing changes them."""

    _names: tuple[str, ...] = ()  # of the columns that an item has; all if none is named

    def __init__(self, blocks: Sequence[_Block]) -> None:
        self._blocks = blocks
        self._ends = np.cumsum([block.rows for block in blocks], dtype=np.int64)

    def _made(self, columns: Sequence[list[Any]]) -> Iterable[_Item]:
        """The items of some rows."""
        raise NotImplementedError

    def __len__(self) -> int:
        return int(self._ends[-1]) if self._blocks else 0

    @overload
    def __getitem__(self, at: int) -> _Item: ...

    @overload
    def __getitem__(self, at: slice) -> list[_Item]: ...

    def __getitem__(self, at: int | slice) -> _Item | list[_Item]:
        numbers = range(len(self))[at]
        if isinstance(numbers, range):
            return self._at(numbers)
        (item,) = self._at(range(numbers, numbers + 1))
        return item

    def _at(self, numbers: range) -> list[_Item]:
        """The items of some rows, of which only their blocks are read."""
        if not numbers:
            return []
        low, high = sorted((numbers[0], numbers[-1]))
        first, last = np.searchsorted(self._ends, (low, high), side="right").tolist()
        start = int(self._ends[first]) - self._blocks[first].rows
        table = _table(self._blocks[first : last + 1], *self._names)
        rows = table.take(pa.array(np.array(numbers) - start))
        return [*self._made([column.to_pylist() for column in rows.columns])]

    def __iter__(self) -> Iterator[_Item]:
        for block in self._blocks:
            batch = block.batch(*self._names)
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

    _names = ("path",)

    def _made(self, columns: Sequence[list[Any]]) -> Iterable[str]:
        return columns[0]


class FileList(_Columns[SourceFile]):
    """Input files."""

    def _made(self, columns: Sequence[list[Any]]) -> Iterable[SourceFile]:
        return map(SourceFile, *columns)

    @staticmethod
    def of(files: Iterable[SourceFile]) -> FileList:
        """The files in the order in which they come."""
        rows, blocks = iter(files), list[_Block]()
        while some := list(islice(rows, _ROWS)):
            columns = zip(*some, strict=True)
            arrays = [pa.array(column, f.type) for column, f in zip(columns, _SCHEMA, strict=True)]
            blocks.append(_Block.of(pa.record_batch(arrays, schema=_SCHEMA)))
        return FileList(blocks)

    @staticmethod
    def joined(parts: Iterable[FileList]) -> FileList:
        """The files of all parts, one part after another."""
        blocks = (part._blocks for part in parts)  # noqa: SLF001  of this class
        return FileList(_gathered(chain.from_iterable(blocks)))

    @property
    def paths(self) -> FilePaths:
        """The path of each file."""
        return FilePaths(self._blocks)

    @property
    def has_versions(self) -> bool:
        """Whether the version of each file is known."""
        return all(pc.min(sizes).as_py() != UNKNOWN.size for sizes in self._column("size"))

    @property
    def size_bytes(self) -> int:
        """The bytes of all files."""
        return sum(pc.sum(sizes).as_py() for sizes in self._column("size"))

    def _column(self, name: str) -> Iterator[pa.Array[Any]]:
        """A column, block by block."""
        return (block.batch(name)[name] for block in self._blocks)

    def parts(self, rows: int) -> Iterator[FileList]:
        """The files in lists of at most so many."""
        cut = chain.from_iterable(_cut(block, rows) for block in self._blocks)
        return map(FileList, _groups(cut, rows))

    def filter(self, flags: Sequence[bool]) -> FileList:
        """The files with a flag; those of a block are not copied if all have one."""
        kept = list[_Block]()
        for block, end in zip(self._blocks, self._ends.tolist(), strict=True):
            mine = flags[end - block.rows : end]
            if all(mine):
                kept.append(block)
            elif any(mine):
                kept.append(_Block.of(block.batch().filter(pa.array(mine, pa.bool_()))))
        return FileList(_gathered(kept))

    def without(self, paths: Collection[str]) -> FileList:
        """The files that have none of some paths."""
        return self.filter([path not in paths for path in self.paths]) if paths else self

    def has_below(self, folder: str) -> bool:
        """Whether a file is below a folder."""
        prefix = f"{folder.rstrip('/')}/"
        columns = self._column("path")
        return any(pc.any(pc.starts_with(paths, prefix)).as_py() for paths in columns)

    def by_path(self) -> FileList:
        """The files sorted by path, each path once; a listing is mostly sorted already."""
        if self._is_sorted():
            return self
        table = _table(self._blocks)
        table = table.take(pc.sort_indices(table["path"]))
        paths = table["path"]
        others = pc.not_equal(paths[1:], paths[:-1]).to_numpy()
        table = table.filter(pa.array(np.append(True, others)))
        return FileList([*_blocks(table)])

    def _is_sorted(self) -> bool:
        last: pa.Array[Any] = pa.array([], pa.large_string())
        for paths in self._column("path"):
            both = pa.concat_arrays([last, paths])
            if pc.all(pc.greater(both[1:], both[:-1])).as_py() is False:
                return False
            last = paths[-1:]
        return True

    def among(self, paths: Iterable[str]) -> set[str]:
        """Those of some paths that files of this list have."""
        asked = pa.array(filter(is_text, paths), pa.large_string())
        if not len(asked):
            return set()
        found = set[Any]()
        for mine in self._column("path"):
            found.update(mine.filter(pc.is_in(mine, asked)).to_pylist())
        return found


def _table(blocks: Sequence[_Block], *columns: str) -> pa.Table:
    """The rows of some blocks."""
    return pa.Table.from_batches([block.batch(*columns) for block in blocks])


def _blocks(table: pa.Table) -> Iterator[_Block]:
    """Blocks of a table, full but for the last."""
    for start in range(0, len(table), _ROWS):
        (batch,) = table.slice(start, _ROWS).combine_chunks().to_batches()
        yield _Block.of(batch)


def _cut(block: _Block, rows: int) -> Iterator[_Block]:
    """The rows of a block in blocks of at most so many."""
    if block.rows <= rows:
        yield block
        return
    batch = block.batch()
    for start in range(0, block.rows, rows):
        yield _Block.of(batch.slice(start, rows))


def _gathered(blocks: Iterable[_Block]) -> list[_Block]:
    """The rows of some blocks; neighbours that are small become one block."""
    groups = _groups(blocks, _ROWS)
    return [some[0] if len(some) == 1 else next(_blocks(_table(some))) for some in groups]


def _groups(blocks: Iterable[_Block], rows: int) -> Iterator[list[_Block]]:
    """Neighbours that have so many rows together at most; a larger block is alone."""
    some, count = list[_Block](), 0
    for block in blocks:
        if some and count + block.rows > rows:
            yield some
            some, count = [], 0
        some.append(block)
        count += block.rows
    if some:
        yield some


def is_text(path: str) -> bool:
    """Whether a path has an encoding; a name that is not UTF-8 has none."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True
