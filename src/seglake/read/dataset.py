"""A log as a dataset of Arrow, so that every engine that scans datasets reads it with its filters.

The filter chooses what is read, and is then applied to each record, so an answer never depends on
how much of a filter was understood.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow.fs import FileSystemHandler, PyFileSystem

from seglake.errors import UsageError
from seglake.format.value_format import ValueFormat
from seglake.log.decode.columns import SCHEMA, schema_of
from seglake.log.execute import ReadStats, execute
from seglake.log.piece import Window
from seglake.log.segment_lookup import PartitionReader
from seglake.read.fields import FieldReader, Fields
from seglake.read.filters import Part, Selection, fields_of
from seglake.read.where import Where, sought_texts
from seglake.read.window.find import Criteria, found, searches_of
from seglake.read.window.plan import pieces_of
from seglake.read.window.reader import window_table
from seglake.terminal.tables import ShowsTable, Table

Columns = Sequence[str] | Mapping[str, pc.Expression] | None

_BATCH_ROWS = 131_072  # pyarrow's default
_OF_FILES = frozenset({
    "batch_readahead", "fragment_readahead", "fragment_scan_options", "use_threads",
    "cache_metadata", "memory_pool",
})  # fmt: skip  # what pyarrow's scanners of files take, too


class _ReadableLog(Protocol):
    """The part of `seglake.read.log.Log` that is needed here."""

    topic: str

    @property
    def version(self) -> int: ...
    @property
    def value_format(self) -> ValueFormat: ...
    def partition_counts(self) -> Sequence[int]: ...
    def reader(self, partition: int) -> PartitionReader: ...


class LogDataset(ShowsTable, ds.UnionDataset):
    """The records of a log as a `pyarrow.dataset.Dataset`; obtained from `Log.dataset`.

    Nothing is read before a scan. A scan reads the columns that it is asked for and those of its
    filter. It reads only where comparisons of the timestamp, the offset or the partition, and
    equality of the key, say that records can be; the whole filter is then applied. Records come
    partition after partition, each in offset order. Can be pickled, without its `stats`.

    Methods are those of pyarrow. Where Arrow's C++ would read the dataset without them, as on the
    right side of a `join`, UsageError is raised.
    """

    def __init__(
        self,
        log: _ReadableLog,
        window: Window,
        partitions: Sequence[int],
        schema: pa.Schema,
        fields: Fields | None = None,
        stats: ReadStats | None = None,
        where: pc.Expression | None = None,
    ) -> None:
        super().__init__(schema, [_guard(schema)])  # type: ignore[call-arg]  # absent in the stubs
        self._log, self._window, self._partitions = log, window, tuple(partitions)
        self._fields, self._stats, self._where = fields, stats, where

    def __reduce__(self) -> tuple[Any, ...]:
        own = (self._log, self._window, self._partitions, self.schema, self._fields, None)
        return LogDataset, (*own, self._where)

    def _table(self) -> Table:
        readers = [self._log.reader(partition) for partition in self._partitions]
        return window_table(self._log.topic, self._log.version, readers, self._window)

    def scanner(  # type: ignore[override]  # a scanner of our own: see LogScanner
        self,
        columns: Columns = None,
        filter: pc.Expression | None = None,  # noqa: A002  # pyarrow's name
        batch_size: int = _BATCH_ROWS,
        **options: Any,
    ) -> LogScanner:
        """A scan of some columns of the records for which `filter` is true.

        `columns` are names, or expressions by name. A batch has at most `batch_size` rows. Other
        options of pyarrow's scanners are accepted, and mean nothing here. Raises pyarrow's errors
        for an unknown column, and for a filter that does not fit the types.
        """
        if unknown := options.keys() - _OF_FILES:
            raise TypeError(f"scanner has no argument {min(unknown)!r}")
        where = _conjunction(self._where, filter)
        return LogScanner(self.schema, self._batches, columns, where, batch_size)

    def filter(self, expression: pc.Expression) -> LogDataset:
        """The dataset of the records for which `expression` is true, too."""
        where = _conjunction(self._where, expression)
        return LogDataset(
            self._log, self._window, self._partitions, self.schema, self._fields, self._stats, where
        )

    def get_fragments(
        self,
        filter: pc.Expression | None = None,  # noqa: A002, ARG002  # pyarrow's name
    ) -> Iterator[ds.Fragment]:
        """Raises UsageError: the files of a log are none that Arrow can read."""
        raise UsageError(
            "a log has no fragments that Arrow can read: scan the dataset, or for parts of it "
            "take log.dataset(partitions=[…]) or other windows"
        )

    def replace_schema(self, schema: pa.Schema) -> LogDataset:  # type: ignore[override]  # stubs
        """The dataset itself for its own schema. Raises UsageError for any other."""
        if schema.equals(self.schema):
            return self
        raise UsageError("the schema of a log is fixed: choose columns, or cast them in the scan")

    def sort_by(self, sorting: Any, **options: Any) -> ds.InMemoryDataset:
        """All records in another order, in memory."""
        return _in_memory(self.to_table().sort_by(sorting, **options))

    def join(self, *arguments: Any, **options: Any) -> ds.InMemoryDataset:
        """A join of all records with those of another dataset, in memory; arguments of pyarrow."""
        return _in_memory(self.to_table()).join(*arguments, **options)

    def join_asof(self, *arguments: Any, **options: Any) -> ds.InMemoryDataset:
        """An as-of join of all records with another dataset, in memory; arguments of pyarrow."""
        return _in_memory(self.to_table()).join_asof(*arguments, **options)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        stream: Any = self.scanner().to_reader()
        return stream.__arrow_c_stream__(requested_schema)

    def _batches(self, schema: pa.Schema, where: pc.Expression | None) -> Iterator[pa.RecordBatch]:
        """The records where `where` can be true, and perhaps others, as batches of `schema`."""
        kinds = {} if self._fields is None else self._fields.kinds
        beside = [name for name in schema.names if name not in kinds]
        if len(beside) == len(schema):
            return self._records(schema, where)
        chosen = {name: kinds[name] for name in schema.names if name in kinds}
        fields = Fields(chosen, strict=self._strict)
        reader = FieldReader(fields, beside, self._log.value_format)
        misfits = None if self._stats is None else self._stats.misfits
        return reader.batches(self._records(schema_of(reader.wanted), where), misfits)

    @property
    def _strict(self) -> bool:
        return self._fields is not None and self._fields.strict

    def _records(self, schema: pa.Schema, where: pc.Expression | None) -> Iterator[pa.RecordBatch]:
        """As `_batches`, of columns of the log."""
        chosen = Selection(dict.fromkeys(self._partitions, Part(self._window)))
        if where is not None:
            chosen = chosen.of(where, {} if self._fields is None else self._fields.kinds)
        for (keys, texts), group in groupby(chosen.parts.items(), key=lambda item: item[1][1:]):
            reads = [(self._log.reader(partition), part.window) for partition, part in group]
            if keys is None and not texts:
                fetch = reads[0][0].cached_fetch
                yield from execute(fetch, pieces_of(reads), schema, stats=self._stats)
            else:
                names = None if keys is None else sorted(keys)
                hints = sought_texts(texts, self._log.value_format)
                criteria = Criteria(names, Where(None, None), hints)
                searches = searches_of(reads, criteria, self._log.partition_counts)
                yield from found(searches, schema, None, self._stats)


class LogScanner:
    """A scan of a `LogDataset`, with the methods of `pyarrow.dataset.Scanner`.

    Each of them reads the log anew. pyarrow's own scanner would read up to a GiB ahead; this one
    reads as it is asked to, in the memory of a read.
    """

    def __init__(
        self,
        schema: pa.Schema,
        batches: Callable[[pa.Schema, pc.Expression | None], Iterator[pa.RecordBatch]],
        columns: Columns,
        where: pc.Expression | None,
        batch_size: int,
    ) -> None:
        if batch_size < 1:
            raise UsageError(f"a batch has at least 1 row, not {batch_size}")
        self.dataset_schema, self._batches = schema, batches
        self._columns, self._where, self._batch_size = columns, where, batch_size
        self.projected_schema = self._of(schema, []).projected_schema

    def _of(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> ds.Scanner:
        """Arrow's filter and projection of some batches."""
        columns: Any = self._columns
        return ds.Scanner.from_batches(
            iter(batches), schema=schema, columns=columns, filter=self._where,
            use_threads=False,
        )  # fmt: skip

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The records as batches, none of them empty."""
        schema = self._read_schema()
        for batch in self._batches(schema, self._where):
            for part in self._of(schema, [batch]).to_batches():
                for first in range(0, len(part), self._batch_size):
                    yield part.slice(first, self._batch_size)

    def _read_schema(self) -> pa.Schema:
        """The columns that are read: those of the result and those of the filter."""
        columns = self.dataset_schema.names if self._columns is None else self._columns
        names = {*columns} if not isinstance(columns, Mapping) else set[str]()
        made = [*columns.values()] if isinstance(columns, Mapping) else []
        for expression in [*made, *([] if self._where is None else [self._where])]:
            named = fields_of(expression, self.dataset_schema.names)
            names |= {*self.dataset_schema.names} if named is None else named
        fields = [field for field in self.dataset_schema if field.name in names]
        return pa.schema(fields or [SCHEMA.field("partition")])  # its values cost nothing

    def scan_batches(self) -> Iterator[ds.TaggedRecordBatch]:
        """Raises UsageError: a log has no fragments that Arrow can read."""
        raise UsageError("a log has no fragments to name beside batches: take to_batches()")

    def to_reader(self) -> pa.RecordBatchReader:
        """The records as a stream."""
        return pa.RecordBatchReader.from_batches(self.projected_schema, self.to_batches())

    def to_table(self) -> pa.Table:
        """The records as a table, all in memory."""
        return pa.Table.from_batches([*self.to_batches()], self.projected_schema)

    def head(self, num_rows: int) -> pa.Table:
        """The first records; nothing is read after them."""
        batches, left = list[pa.RecordBatch](), num_rows
        stream = self.to_batches()
        while left > 0 and (batch := next(stream, None)) is not None:
            batches.append(batch.slice(0, left))
            left -= len(batches[-1])
        return pa.Table.from_batches(batches, self.projected_schema)

    def count_rows(self) -> int:
        """The number of records."""
        counted = LogScanner(self.dataset_schema, self._batches, [], self._where, self._batch_size)
        return sum(map(len, counted.to_batches()))

    def take(self, indices: Any) -> pa.Table:
        """The records at some positions of the scan; the others are read, too."""
        return self.to_table().take(indices)


def _in_memory(table: pa.Table) -> ds.InMemoryDataset:
    make: Any = ds.InMemoryDataset  # its arguments are absent in the stubs
    dataset: ds.InMemoryDataset = make(table)
    return dataset


def _conjunction(one: pc.Expression | None, two: pc.Expression | None) -> pc.Expression | None:
    return two if one is None else one if two is None else one & two


class _NoFiles(FileSystemHandler):
    """A file system whose every use is an error that names the remedy."""

    def _refused(self, *_arguments: object, **_options: object) -> Any:
        raise UsageError(
            "Arrow cannot read the dataset of a log by itself: give it a scan, as "
            "dataset.scanner().to_reader() or dataset.to_table()"
        )

    def get_type_name(self) -> str:
        return "seglake"

    get_file_info = get_file_info_selector = create_dir = delete_dir = _refused
    delete_dir_contents = delete_root_dir_contents = delete_file = move = copy_file = _refused
    open_input_stream = open_input_file = open_output_stream = open_append_stream = _refused
    normalize_path = _refused


def _guard(schema: pa.Schema) -> ds.Dataset:
    """What Arrow's C++ finds in place of the records: a dataset that cannot be read.

    Without it, C++ that is given a `LogDataset` would end the process.
    """
    kind = ds.IpcFileFormat()
    fragment = kind.make_fragment("records", PyFileSystem(_NoFiles()))
    return ds.FileSystemDataset([fragment], schema, kind)
