"""The stages of an ingest as tasks: plain generators over Arrow batches, without Spark.

    read      units → blobs                  the map side; a DataFrame's tasks are in `frames`
    count     straddling blobs → counts      only where a hot partition was cut
    write     blobs of pieces → segments     the reduce side
    reject    rejected rows → Parquet        in `quarantine`
    move      segments → segments            after a lost race, in `rebase`

A task is an object that is pickled to where it runs, and its method that takes an iterator of
batches. The two places where tasks run are in `engine`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, groupby
from typing import Any, NamedTuple

import pyarrow as pa

from seglake.catalog.rows import SegmentRow, file_table, rows_of
from seglake.config import Pipeline
from seglake.format.batch import Batches
from seglake.ingest.blob import BATCHES, unpack_batches, unpack_run
from seglake.ingest.cut import encoding_of
from seglake.ingest.merge import Place, SortedBlob, count_before, merge
from seglake.ingest.plan import Blobs, Cut
from seglake.ingest.units import blobs_of_unit, load_unit
from seglake.ingest.write import Piece, SegmentWriter, encode_runs, rebase_all
from seglake.store import open_store

Rows = Iterable[pa.RecordBatch]

COUNT_SCHEMA = pa.schema([pa.field(name, pa.int64()) for name in ("blob", "piece", "records")])
_WRITE_COLUMNS: dict[str, pa.DataType] = {"piece": pa.int32(), "segments": pa.binary()}
WRITE_SCHEMA = pa.schema(_WRITE_COLUMNS)


class Read(NamedTuple):
    """Units of input files → blobs."""

    pipeline: Pipeline
    append_time_ms: int

    def __call__(self, batches: Rows) -> Iterator[pa.RecordBatch]:
        """The blobs of the units in column `unit`."""
        for batch in batches:
            for text in batch["unit"].to_pylist():
                yield from blobs_of_unit(load_unit(str(text)), self.pipeline, self.append_time_ms)


class Count(NamedTuple):
    """Straddling blobs → how many of their records belong to each piece."""

    blobs: dict[tuple[int, int, int], int]  # (partition, unit, sequence) → number
    pieces: dict[int, list[tuple[int, Cut]]]  # of each partition

    @classmethod
    def of(cls, known: Blobs, numbers: list[int], cuts: list[Cut]) -> Count:
        """The task for the blobs with these numbers."""
        pieces: dict[int, list[tuple[int, Cut]]] = {}
        for number, cut in enumerate(cuts):
            pieces.setdefault(cut.partition, []).append((number, cut))
        places = [(int(known.partition[n]), *known.begin[n][2:]) for n in numbers]
        return cls(dict(zip(places, numbers, strict=True)), pieces)

    def __call__(self, batches: Rows) -> Iterator[pa.RecordBatch]:
        """Rows of COUNT_SCHEMA."""
        for row in _rows(batches):
            number = self.blobs.get((row["partition"], row["unit"], row["sequence"]))
            if number is not None:
                yield self._count(number, sorted_blob(row), self.pieces[row["partition"]])

    def _count(
        self, number: int, blob: SortedBlob, pieces: list[tuple[int, Cut]]
    ) -> pa.RecordBatch:
        ends = [(count_before(blob, cut.start), count_before(blob, cut.end)) for _, cut in pieces]
        columns = [
            [number] * len(pieces),
            [piece for piece, _ in pieces],
            [end - start for start, end in ends],
        ]
        named = dict(zip(COUNT_SCHEMA.names, columns, strict=True))
        return pa.RecordBatch.from_pydict(named, COUNT_SCHEMA)


class Write(NamedTuple):
    """Blobs, sorted by piece and place → the segments of each piece."""

    pipeline: Pipeline
    pieces: Mapping[int, tuple[Cut, Piece]]
    append_time_ms: int
    order_column: str | None  # of a DataFrame

    def __call__(self, batches: Rows) -> Iterator[pa.RecordBatch]:
        """Rows of WRITE_SCHEMA, one per piece."""
        for number, rows in groupby(_rows(batches), key=lambda row: row["piece"]):
            segments = file_table(self._write_piece(rows, *self.pieces[number]))
            columns = {"piece": [number], "segments": [_to_ipc(segments)]}
            yield pa.RecordBatch.from_pydict(columns, WRITE_SCHEMA)

    def rows(self, written: pa.Table) -> list[SegmentRow]:
        """The catalog rows in what all tasks returned, in order of piece and offset."""
        pieces = dict(zip(*(written[name].to_pylist() for name in WRITE_SCHEMA.names), strict=True))
        tables = [pa.ipc.open_stream(pieces[piece]).read_all() for piece in sorted(pieces)]
        return [
            row for each in tables for row in rows_of(SegmentRow, self.pipeline.topic.name, each)
        ]

    def _write_piece(
        self, rows: Iterator[dict[str, Any]], cut: Cut, piece: Piece
    ) -> list[SegmentRow]:
        store = open_store(self.pipeline.root, self.pipeline.storage)
        with SegmentWriter(store, piece, self.pipeline.topic) as writer:
            for batches in self._batches(rows, cut, piece.base_offset):
                writer.append(batches)
            return writer.close()

    def _batches(
        self, rows: Iterator[dict[str, Any]], cut: Cut, base_offset: int
    ) -> Iterator[Batches]:
        first = next(rows)
        everything = chain([first], rows)
        if first["kind"] == BATCHES:
            return rebase_all((unpack_batches(row["data"]) for row in everything), base_offset)
        inside = (_within(sorted_blob(row), cut) for row in everything)
        runs = merge(inside, self.pipeline.task.merge_bytes, self.order_column)
        return encode_runs(runs, encoding_of(self.pipeline, self.append_time_ms), base_offset)


def _within(blob: SortedBlob, cut: Cut) -> SortedBlob:
    return blob.part(count_before(blob, cut.start), count_before(blob, cut.end))


def sorted_blob(row: dict[str, Any]) -> SortedBlob:
    """The blob in a row of the shuffle."""
    place = Place(row["key"], row["second"], row["unit"], row["sequence"])
    return SortedBlob(place, unpack_run(row["data"]))


def _rows(batches: Rows) -> Iterator[dict[str, Any]]:
    """Rows one by one, the data as a view into Arrow's buffer; a row is a blob, not a record."""
    for batch in batches:
        data = batch["data"]
        for number, row in enumerate(batch.drop_columns(["data"]).to_pylist()):
            row["data"] = data[number].as_buffer()
            yield row


def _to_ipc(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data
