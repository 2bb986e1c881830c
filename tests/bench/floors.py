"""What must be done in any case: the codec alone, and Spark's way from Python to the JVM alone.

The codec is that of its Python library. It is no lower bound: Seglake's own calls decompress the
batches of a window in less time.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import lz4.frame
import numpy as np
import pyarrow as pa
import zstandard
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from seglake.datasource.source import SeglakeDataSource
from seglake.format.batch import OVERHEAD, BatchTable
from tests.bench.events import Int64s
from tests.judges.described import describe

THREADS = 2
_LEAST_PER_THREAD = 4  # batches, of 16 KiB each
_LINE = re.compile(rb'\{"ts":(\d+),"user":"[^"]*","id":"(\d+)"')
_own = threading.local()


class Batches(NamedTuple):
    """The record batches of some logs: compressed records in memory, and what is known of each."""

    records: list[memoryview]
    table: BatchTable
    codec: str

    @staticmethod
    def of(folder: str | Path, codec: str) -> Batches:
        """Those of all logs under a folder."""
        records, tables = list[memoryview](), list[BatchTable]()
        for path in sorted(Path(folder).rglob("*.log")):
            data = memoryview(path.read_bytes())
            tables.append(describe(data))
            for position, size in tables[-1][["position", "size"]].tolist():
                records.append(data[position + OVERHEAD : position + size])
        return Batches(records, np.concatenate(tables), codec)

    def decompress(self, number: int) -> bytes:
        """The records of a batch, by the codec's library."""
        if self.codec == "lz4":
            return bytes(lz4.frame.decompress(self.records[number]))
        if self.codec == "none":
            return bytes(self.records[number])
        if not hasattr(_own, "zstd"):  # one for a thread
            _own.zstd = zstandard.ZstdDecompressor()
        found: bytes = _own.zstd.decompress(self.records[number])
        return found

    def between(self, start_ms: int, end_ms: int) -> Int64s:
        """The numbers of the batches whose bounds have a time of the window."""
        table = self.table
        return np.flatnonzero(
            (table["max_timestamp"] >= start_ms) & (table["min_timestamp"] < end_ms)
        )

    def with_offsets(self, offsets: Int64s) -> Int64s:
        """The number of the batch of each offset of a log."""
        return np.searchsorted(self.table["last_offset"], offsets)


def window_reader(folder: str, codec: str) -> Callable[[], Callable[[int, int], list[bytes]]]:
    """A reader of windows that only decompresses their batches, in threads where they are many."""
    batches, pool = Batches.of(folder, codec), ThreadPoolExecutor(THREADS)

    def read(start_ms: int, end_ms: int) -> list[bytes]:
        chosen = batches.between(start_ms, end_ms).tolist()
        if len(chosen) < THREADS * _LEAST_PER_THREAD:
            return [*map(batches.decompress, chosen)]
        parts = [chosen[number::THREADS] for number in range(THREADS)]
        found = pool.map(lambda part: [*map(batches.decompress, part)], parts)
        return [data for some in found for data in some]

    return lambda: read


def numbers_between(found: list[bytes], start_ms: int, end_ms: int) -> Int64s:
    """The numbers of the events of a window in decompressed records, ascending."""
    pairs = [map(int, pair) for data in found for pair in _LINE.findall(data)]
    return np.sort(np.array([n for time, n in pairs if start_ms <= time < end_ms], np.int64))


def decompress_all(batches: Batches) -> int:
    """Bytes of the records of all batches, decompressed in threads; nothing is kept."""
    with ThreadPoolExecutor(THREADS) as pool:
        some = (range(number, len(batches.records), THREADS) for number in range(THREADS))
        return sum(pool.map(lambda part: sum(len(batches.decompress(n)) for n in part), some))


# Spark


class RowsInMemory(DataSource):
    """A Python data source whose rows are Arrow batches in mapped files: it does nothing else."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "rows-in-memory"

    def schema(self) -> StructType:
        """That of the rows."""
        return StructType.fromJson(json.loads(self.options["rows"]))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A task for each file of the folder."""
        del schema
        return _Rows(self.options["path"])


class _Rows(DataSourceReader):
    def __init__(self, folder: str) -> None:
        self._folder = folder

    def partitions(self) -> list[InputPartition]:
        """The files."""
        return [InputPartition(str(path)) for path in sorted(Path(self._folder).iterdir())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The batches of a file, as they lie there."""
        with pa.memory_map(partition.value) as data, pa.ipc.open_file(data) as file:
            for number in range(file.num_record_batches):
                yield file.get_batch(number)


def store_rows(options: dict[str, str], folder: Path) -> dict[str, str]:
    """Write what `format("seglake")` hands to Spark; the options by which `RowsInMemory` has it."""
    source = SeglakeDataSource(options)
    schema = source.schema()
    reader: Any = source.reader(schema)
    return store_batches(map(reader.read, reader.partitions()), schema, folder)


def store_batches(
    tasks: Iterable[Iterable[pa.RecordBatch]], schema: StructType, folder: Path
) -> dict[str, str]:
    """Write the batches of each task; the options by which `RowsInMemory` has them."""
    folder.mkdir()
    for number, batches in enumerate(map(iter, tasks)):
        first = next(batches)
        with pa.ipc.new_file(str(folder / f"{number:04d}.arrow"), first.schema) as file:
            for batch in (first, *batches):
                file.write_batch(batch)
    return {"path": str(folder), "rows": schema.json()}
