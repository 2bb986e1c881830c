"""What Spark would get from a reader, without Spark: tasks read one by one, as records."""

import pickle
from collections.abc import Iterable

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from tests.makers.lakes import Written

Reader = DataSourceReader | DataSourceStreamReader


def tables(reader: Reader, partitions: Iterable[InputPartition]) -> list[pa.Table]:
    """One table for each task, read by a copy of the reader as a worker has it."""
    worker, copies = pickle.loads(pickle.dumps((reader, list(partitions))))
    return [pa.Table.from_batches(batches) for p in copies if (batches := list(worker.read(p)))]


def as_written(found: Iterable[pa.Table]) -> list[Written]:
    """The records, in the order in which they come."""
    return [
        Written(
            row["partition"], row["offset"], row["timestamp"], row["timestampType"], row["key"],
            row["value"], [(h["key"], h["value"]) for h in row.get("headers") or ()],
        )
        for table in found
        for row in _with_integers(table).to_pylist()
    ]  # fmt: skip


def _with_integers(table: pa.Table) -> pa.Table:
    at = table.column_names.index("timestamp")
    microseconds = table["timestamp"].cast(pa.int64()).to_numpy()
    return table.set_column(at, "timestamp", pa.array(microseconds // 1000))  # -1 ms is a timestamp
