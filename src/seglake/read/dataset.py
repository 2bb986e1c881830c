"""Present a log as an Arrow dataset, so that engines which scan datasets can read it with filters.

The filter limits what is read, and is then applied to each record. So the result never depends on
how much of the filter could be used to limit the read.
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
from seglake.log.execute import SCHEMA, ReadStats, execute, schema_of
from seglake.log.reads import PartitionReader
from seglake.log.segment import Window
from seglake.read.fields import FieldReader, Fields
from seglake.read.filters import Part, Selection, fields_of
from seglake.read.where import Where, sought_texts
from seglake.read.window.find import Criteria, search_records, searches_of
from seglake.read.window.plan import pieces_of
from seglake.read.window.reader import first_rows, window_table
from seglake.terminal.tables import ShowsTable, Table

Columns = Sequence[str] | Mapping[str, pc.Expression] | None

_BATCH_ROWS = 131_072  # pyarrow's default
_OF_FILES = frozenset({
    "batch_readahead", "fragment_readahead", "fragment_scan_options", "use_threads",
    "cache_metadata", "memory_pool",
})  # fmt: skip  # options of pyarrow's scanners of files, which have no effect here


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

    Nothing is read before a scan. A scan reads the columns of its result and of its filter.
    Comparisons of the timestamp, offset or partition, and equality of the key, limit which blocks
    it reads. Then it applies the whole filter. Records are returned one partition after another,
    each in offset order. A dataset can be pickled, without its `stats`.

    The methods are pyarrow's. Where Arrow's C++ code would read the dataset without them, for
    example on the right side of a `join`, UsageError is raised.
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
        """Return a scan of some columns of the records for which `filter` is true.

        `columns` is a list of names, or maps names to expressions. A batch has at most `batch_size`
        rows. Other options of pyarrow's scanners are accepted and ignored. Raises pyarrow's errors
        for an unknown column and for a filter that does not fit the types, and TypeError for an
        unknown option.
        """
        if unknown := options.keys() - _OF_FILES:
            raise TypeError(f"scanner has no argument {min(unknown)!r}")
        where = _conjunction(self._where, filter)
        return LogScanner(self.schema, self._batches, columns, where, batch_size)

    def filter(self, expression: pc.Expression) -> LogDataset:
        """Return a dataset of only the records for which `expression` is true."""
        where = _conjunction(self._where, expression)
        return LogDataset(
            self._log, self._window, self._partitions, self.schema, self._fields, self._stats, where
        )

    def get_fragments(
        self,
        filter: pc.Expression | None = None,  # noqa: A002, ARG002  # pyarrow's name
    ) -> Iterator[ds.Fragment]:
        """Raise UsageError, because a log has no files that Arrow can read by itself."""
        raise UsageError(
            "a log has no fragments that Arrow can read. Scan the dataset. For a part of it, use "
            "log.dataset(partitions=[…]) or a window"
        )

    def replace_schema(self, schema: pa.Schema) -> LogDataset:  # type: ignore[override]  # stubs
        """Return this dataset if `schema` is its schema. Raise UsageError for any other schema."""
        if schema.equals(self.schema):
            return self
        raise UsageError("the schema of a log is fixed. Choose columns, or cast them in the scan")

    def sort_by(self, sorting: Any, **options: Any) -> ds.InMemoryDataset:
        """Sort all records in memory."""
        return _in_memory(self.to_table().sort_by(sorting, **options))

    def join(self, *arguments: Any, **options: Any) -> ds.InMemoryDataset:
        """Join all records with another dataset, in memory, with the arguments of pyarrow."""
        return _in_memory(self.to_table()).join(*arguments, **options)

    def join_asof(self, *arguments: Any, **options: Any) -> ds.InMemoryDataset:
        """Join all records with another dataset as of a time, in memory, like pyarrow."""
        return _in_memory(self.to_table()).join_asof(*arguments, **options)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        stream: Any = self.scanner().to_reader()
        return stream.__arrow_c_stream__(requested_schema)

    def _batches(self, schema: pa.Schema, where: pc.Expression | None) -> Iterator[pa.RecordBatch]:
        """Return batches of all records for which `where` may be true, and perhaps others."""
        kinds = {} if self._fields is None else self._fields.kinds
        beside = [name for name in schema.names if name not in kinds]
        if self._fields is None or len(beside) == len(schema):
            return self._records(schema, where)
        chosen = {name: kinds[name] for name in schema.names if name in kinds}
        fields = Fields(chosen, strict=self._fields.strict)
        reader = FieldReader(fields, beside, self._log.value_format)
        misfits = None if self._stats is None else self._stats.misfits
        return reader.batches(self._records(schema_of(reader.wanted), where), misfits)

    def _records(self, schema: pa.Schema, where: pc.Expression | None) -> Iterator[pa.RecordBatch]:
        """Yield the batches that `_batches` is based on, with columns of the log and no fields."""
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
                yield from search_records(searches, schema, None, self._stats)


class LogScanner:
    """A scan of a `LogDataset`, with the methods of `pyarrow.dataset.Scanner`.

    Each method reads the log again. pyarrow's own scanner would read up to a GiB ahead. This one
    reads on demand, within the memory of a read.
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
            raise UsageError(f"batch_size must be at least 1, not {batch_size}")
        self.dataset_schema, self._batches = schema, batches
        self._columns, self._where, self._batch_size = columns, where, batch_size
        self.projected_schema = self._of(schema, []).projected_schema

    def _of(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> ds.Scanner:
        """Return a pyarrow scanner that applies the filter and the projection to the batches."""
        columns: Any = self._columns
        return ds.Scanner.from_batches(
            iter(batches), schema=schema, columns=columns, filter=self._where,
            use_threads=False,
        )  # fmt: skip

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the records in batches. No batch is empty."""
        schema = self._read_schema()
        for batch in self._batches(schema, self._where):
            for part in self._of(schema, [batch]).to_batches():
                for first in range(0, len(part), self._batch_size):
                    yield part.slice(first, self._batch_size)

    def _read_schema(self) -> pa.Schema:
        """Return the columns to read: the columns of the result and of the filter."""
        columns = self.dataset_schema.names if self._columns is None else self._columns
        names = {*columns} if not isinstance(columns, Mapping) else set[str]()
        made = [*columns.values()] if isinstance(columns, Mapping) else []
        for expression in [*made, *([] if self._where is None else [self._where])]:
            named = fields_of(expression, self.dataset_schema.names)
            names |= {*self.dataset_schema.names} if named is None else named
        fields = [field for field in self.dataset_schema if field.name in names]
        return pa.schema(fields or [SCHEMA.field("partition")])  # its values cost nothing

    def scan_batches(self) -> Iterator[ds.TaggedRecordBatch]:
        """Raise UsageError, because a log has no fragments that Arrow can read."""
        raise UsageError("a log has no fragments to return with its batches. Use to_batches()")

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the records as a stream."""
        return pa.RecordBatchReader.from_batches(self.projected_schema, self.to_batches())

    def to_table(self) -> pa.Table:
        """Return all records as a table in memory."""
        return pa.Table.from_batches([*self.to_batches()], self.projected_schema)

    def head(self, num_rows: int) -> pa.Table:
        """Return the first `num_rows` records, and stop reading there."""
        batches = first_rows(self.to_batches(), num_rows)
        return pa.Table.from_batches(batches, self.projected_schema)

    def count_rows(self) -> int:
        """Count the records."""
        counted = LogScanner(self.dataset_schema, self._batches, [], self._where, self._batch_size)
        return sum(map(len, counted.to_batches()))

    def take(self, indices: Any) -> pa.Table:
        """Return the records at these positions of the scan. All other records are read, too."""
        return self.to_table().take(indices)


def _in_memory(table: pa.Table) -> ds.InMemoryDataset:
    make: Any = ds.InMemoryDataset  # its arguments are absent in the stubs
    dataset: ds.InMemoryDataset = make(table)
    return dataset


def _conjunction(one: pc.Expression | None, two: pc.Expression | None) -> pc.Expression | None:
    return two if one is None else one if two is None else one & two


class _NoFiles(FileSystemHandler):
    """A file system that raises an error on every use. The error names the remedy."""

    def _refused(self, *_arguments: object, **_options: object) -> Any:
        raise UsageError(
            "Arrow cannot read the dataset of a log by itself. Pass it "
            "dataset.scanner().to_reader() or dataset.to_table()"
        )

    def get_type_name(self) -> str:
        return "seglake"

    get_file_info = get_file_info_selector = create_dir = delete_dir = _refused
    delete_dir_contents = delete_root_dir_contents = delete_file = move = copy_file = _refused
    open_input_stream = open_input_file = open_output_stream = open_append_stream = _refused
    normalize_path = _refused


def _guard(schema: pa.Schema) -> ds.Dataset:
    """Return a dataset that cannot be read, for Arrow's C++ code to find instead of the records.

    Without it, C++ code that gets a `LogDataset` would end the process.
    """
    kind = ds.IpcFileFormat()
    fragment = kind.make_fragment("records", PyFileSystem(_NoFiles()))
    return ds.FileSystemDataset([fragment], schema, kind)
