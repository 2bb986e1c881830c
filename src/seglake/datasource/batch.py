"""Plan and run batch queries. The driver binds version and offsets once, tasks read records."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import groupby

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from seglake.credentials import from_environment
from seglake.datasource import tasks
from seglake.datasource.offsets import bind, clip_to_logs, open_readers
from seglake.datasource.options import Bound, Options
from seglake.datasource.plain_errors import PlainErrors
from seglake.datasource.spark_columns import read_schema, to_spark_batches
from seglake.engine import spare_the_collector
from seglake.errors import UsageError
from seglake.format.sought_kernels import EVERY_KEY
from seglake.format.value_format import JSON
from seglake.log.execute import schema_of
from seglake.log.reads import PartitionReader
from seglake.log.segment import Piece, Window
from seglake.read.fields import FieldReader
from seglake.read.lake import Lake
from seglake.read.lake import open as open_lake
from seglake.read.window.find import searches_of
from seglake.read.window.plan import open_window, pieces_of
from seglake.store import Store, open_store


class SparkBatchReader(DataSourceReader):
    """A batch query of Spark. Raises UsageError for options that a batch query cannot have."""

    def __init__(self, options: Options) -> None:
        self._options, self._bounds = options, options.batch_bounds()

    @PlainErrors()
    def partitions(self) -> list[InputPartition]:
        """Return the tasks of the query. They read option `version`, or else the newest version."""
        options = self._options
        lake = open_lake(options.root, options.version, options.storage)
        planned = [InputPartition(task) for task in plan(lake, options, *self._bounds)]
        spare_the_collector()
        return planned

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Yield the records of one task."""
        return read_task(partition, self._options)


def plan(lake: Lake, options: Options, starting: Bound, ending: Bound) -> list[tasks.ReadTask]:
    """Return the tasks of a batch query. Raises UsageError, CorruptData and StoreError."""
    readers = open_readers(lake, options.topics)
    starts = bind(starting, readers, options.no_match)
    ends = bind(ending, readers, "latest")
    for partition in readers:
        if starts[partition] > ends[partition]:
            raise UsageError(
                f"{partition} would be read backwards, from offset {starts[partition]} "
                f"({starting.name}) to {ends[partition]} ({ending.name}). Swap them"
            )
    ranges = clip_to_logs(starts, ends, readers, fail_on_data_loss=options.fail_on_data_loss)
    times = open_window(options.start_time_ms, options.end_time_ms)
    windows = [
        (readers[name], times._replace(start_offset=first, end_offset=end))
        for name, (first, end) in ranges.items()
    ]
    return plan_tasks(lake, pieces(lake, windows, options), options)


def plan_tasks(lake: Lake, to_read: Iterator[Piece], options: Options) -> list[tasks.ReadTask]:
    """Return the tasks that read the pieces. Value formats are looked up only if needed."""
    unused = options.fields is None and options.criteria is None
    formats = cache(lambda topic: JSON if unused else lake.topic(topic).value_format)
    return tasks.divide_pieces(to_read, options, formats)


def pieces(
    lake: Lake, reads: Sequence[tuple[PartitionReader, Window]], options: Options
) -> Iterator[Piece]:
    """Yield the pieces that a query reads. A search reads only pieces that may have a match.

    The driver reads the key indexes, so that the remaining pieces need only few tasks.
    """
    criteria = options.criteria
    if criteria is None:
        yield from pieces_of(reads)
        return
    for topic, own in groupby(reads, key=lambda read: read[0].view.topic):
        log = lake.topic(topic)
        for search in searches_of([*own], criteria.over(log.value_format), log.partition_counts):
            yield from search.blocks.pieces()


def read_task(partition: InputPartition | None, options: Options) -> Iterator[pa.RecordBatch]:
    """Yield the records of a task. Yield nothing for None, which Spark passes for an empty plan."""
    if partition is None or partition.value is None:
        return
    store = _store(options.root, _items(options.storage), _items(from_environment()))
    columns = options.columns
    names = read_schema(columns).names
    values = partition.value.value_format
    beside = None if options.fields is None else FieldReader(options.fields, names, values)
    schema = schema_of(names if beside is None else beside.wanted)
    criteria = None if options.criteria is None else options.criteria.over(values)
    read = schema if criteria is None else criteria.compared(schema)
    with PlainErrors():
        batches = tasks.read_records(
            partition.value,
            store,
            read,
            fail_on_data_loss=options.fail_on_data_loss,
            keys=EVERY_KEY if criteria is None else criteria.compared_keys,
        )
        if criteria is not None:
            batches = criteria.among(batches, schema)
        if beside is not None:
            batches = beside.batches(batches, None)
        yield from to_spark_batches(batches, columns)
    spare_the_collector()


_Items = tuple[tuple[str, str], ...]


def _items(options: Mapping[str, str]) -> _Items:
    return tuple(sorted(options.items()))


@lru_cache(8)
def _store(root: str, storage: _Items, _environment: _Items) -> Store:
    """Return a store for all tasks of a worker, so that they share its connections.

    The store reads the environment only when it is created.
    """
    return open_store(root, dict(storage))
