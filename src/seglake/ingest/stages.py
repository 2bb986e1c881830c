"""The two Spark stages of an ingest, and the small ones around them.

    map       units → blobs                  one task reads several units; kept on disk until committed
    count     straddling blobs → counts      only where a hot partition was cut
    reduce    blobs of a piece → segments    one task writes several small pieces, or one large one
    reject    rejected rows → Parquet        only where there are any

Each is a `mapInArrow` over few rows with large binary columns. The functions that tasks run are plain
generators over Arrow batches; Spark is named only where DataFrames are put together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from seglake.catalog.rows import SegmentRow, file_table, rows_of
from seglake.config import Pipeline
from seglake.ingest.blob import BATCHES, META, unpack_batches, unpack_run
from seglake.ingest.cut import encoding_of
from seglake.ingest.merge import Place, SortedBlob, count_before, merge
from seglake.ingest.plan import Blobs, Cut
from seglake.ingest.units import Unit, blobs_of_unit, dump_unit, load_unit
from seglake.ingest.write import Piece, SegmentWriter, encode_runs, rebase_all
from seglake.store import open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Batches = Iterable[pa.RecordBatch]
Task = Callable[[Batches], Iterator[pa.RecordBatch]]

BLOB_DDL = (
    "kind int, unit bigint, partition int, sequence int, records bigint, size_bytes bigint, "
    "key bigint, second bigint, last_key bigint, last_second bigint, max_timestamp bigint, "
    "counts string, data binary"
)


def map_units(
    spark: SparkSession, units: list[Unit], bins: list[int], pipeline: Pipeline, append_time_ms: int
) -> DataFrame:
    """The blobs of all units; unit i is read by task bins[i]."""
    table = pa.table(
        {"task": pa.array(bins, pa.int32()), "unit": pa.array([dump_unit(u) for u in units])}
    )

    def read(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for text in batch["unit"].to_pylist():
                yield from blobs_of_unit(load_unit(text), pipeline, append_time_ms)

    return _by_task(spark.createDataFrame(table), max(bins) + 1).mapInArrow(read, BLOB_DDL)


def _by_task(frame: DataFrame, tasks: int, *order: str) -> DataFrame:
    placed = frame.repartitionById(tasks, "task")
    return placed.sortWithinPartitions(*order) if order else placed


def collect_meta(blobs: DataFrame) -> pa.Table:
    """The rows of the blobs without their data; runs the map stage if it did not run yet."""
    return blobs.select(*META).toArrow()


def count_straddlers(
    blobs: DataFrame, known: Blobs, numbers: list[int], cuts: list[Cut]
) -> dict[tuple[int, int], int]:
    """Records of each straddling blob in each piece, as {(blob, piece): records}."""
    if not numbers:
        return {}
    names = {_identity(known, number): number for number in numbers}
    pieces: dict[int, list[tuple[int, Cut]]] = {}
    for number, cut in enumerate(cuts):
        pieces.setdefault(cut.partition, []).append((number, cut))

    def count(batches: Batches) -> Iterator[pa.RecordBatch]:
        for row in _rows(batches):
            number = names.get((row["partition"], row["unit"], row["sequence"]))
            if number is not None:
                yield _counts(number, _sorted_blob(row), pieces[row["partition"]])

    units = sorted({unit for _, unit, _ in names})
    rows = blobs.where(blobs["unit"].isin(units)).mapInArrow(
        count, "blob bigint, piece bigint, records bigint"
    )
    found = rows.toArrow().to_pydict()
    keys = zip(found["blob"], found["piece"], strict=True)
    return dict(zip(keys, found["records"], strict=True))


def _identity(known: Blobs, number: int) -> tuple[int, int, int]:
    place = known.begin[number]
    return int(known.partition[number]), place.unit, place.sequence


def _counts(number: int, blob: SortedBlob, pieces: list[tuple[int, Cut]]) -> pa.RecordBatch:
    counts = [count_before(blob, cut.end) - count_before(blob, cut.start) for _, cut in pieces]
    columns = [[number] * len(pieces), [piece for piece, _ in pieces], counts]
    return pa.RecordBatch.from_arrays(
        [pa.array(column, pa.int64()) for column in columns], ["blob", "piece", "records"]
    )


def write_pieces(
    spark: SparkSession,
    blobs: DataFrame,
    route: pa.Table,
    pieces: Mapping[int, tuple[Cut, Piece]],
    pipeline: Pipeline,
    append_time_ms: int,
) -> list[SegmentRow]:
    """Write every piece; returns the catalog rows of the segments, in order of piece and offset.

    `route` has the columns partition, unit, sequence, piece, task: where each blob goes.
    """
    from pyspark.sql import functions

    target = _Target(pipeline, pieces, append_time_ms)
    tasks = max(route["task"].to_pylist()) + 1
    routed = blobs.join(
        functions.broadcast(spark.createDataFrame(route)), ["partition", "unit", "sequence"]
    )
    ordered = _by_task(routed, tasks, "piece", "key", "second", "unit", "sequence")
    written = ordered.mapInArrow(target.write, "piece int, segments binary").toArrow()
    by_piece = dict(zip(*(written[name].to_pylist() for name in written.column_names), strict=True))
    tables = [_ipc(by_piece[piece]) for piece in sorted(by_piece)]
    return [row for table in tables for row in rows_of(SegmentRow, pipeline.topic.name, table)]


class _Target:
    """What the reduce tasks know; pickled into them."""

    def __init__(
        self, pipeline: Pipeline, pieces: Mapping[int, tuple[Cut, Piece]], append_time_ms: int
    ) -> None:
        self.pipeline, self.pieces, self.append_time_ms = pipeline, pieces, append_time_ms

    def write(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """The rows of one task, sorted by piece and place → one row per piece."""
        for number, rows in groupby(_rows(batches), key=lambda row: row["piece"]):
            segments = file_table(self._write_piece(rows, *self.pieces[number]))
            yield pa.RecordBatch.from_arrays(
                [pa.array([number], pa.int32()), pa.array([_to_ipc(segments)], pa.binary())],
                ["piece", "segments"],
            )

    def _write_piece(self, rows: Iterator[dict[str, Any]], cut: Cut, piece: Piece) -> list[SegmentRow]:
        store = open_store(self.pipeline.root, self.pipeline.storage)
        with SegmentWriter(store, piece, self.pipeline.topic) as writer:
            for batches in self._batches(rows, cut, piece.base_offset):
                writer.append(batches)
            return writer.close()

    def _batches(self, rows: Iterator[dict[str, Any]], cut: Cut, base_offset: int) -> Iterator[Any]:
        first = next(rows)
        everything = _chain(first, rows)
        if first["kind"] == BATCHES:
            return rebase_all((unpack_batches(row["data"]) for row in everything), base_offset)
        inside = (_within(_sorted_blob(row), cut) for row in everything)
        runs = merge(inside, self.pipeline.task.merge_bytes)
        return encode_runs(runs, encoding_of(self.pipeline, self.append_time_ms), base_offset)


def _chain(first: dict[str, Any], rest: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    yield first
    yield from rest


def _within(blob: SortedBlob, cut: Cut) -> SortedBlob:
    start, end = count_before(blob, cut.start), count_before(blob, cut.end)
    return blob if end - start == len(blob.run) else SortedBlob(blob.place, blob.run.part(start, end))


def _rows(batches: Batches) -> Iterator[dict[str, Any]]:
    """Rows one by one, the data as a view into Arrow's buffer; a row is a blob, not a record."""
    for batch in batches:
        data = batch["data"]
        for number, row in enumerate(batch.drop_columns(["data"]).to_pylist()):
            row["data"] = data[number].as_buffer()
            yield row


def _sorted_blob(row: dict[str, Any]) -> SortedBlob:
    place = Place(row["key"], row["second"], row["unit"], row["sequence"])
    return SortedBlob(place, unpack_run(row["data"]))


def _to_ipc(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _ipc(data: bytes) -> pa.Table:
    return pa.ipc.open_stream(data).read_all()
