"""The stages of an ingest as tasks: plain functions, which know neither Spark nor the driver.

    read      units → staged blobs           the map side; a DataFrame's tasks are in `frames`
    count     straddling blobs → counts      only where a hot partition was cut
    write     blobs of pieces → segments     the reduce side
    reject    rejected rows → Parquet        in `quarantine`
    move      segments → segments            after a lost race, in `rebase`

A task is an object that is pickled to where it runs, and called there with one item of work.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import pyarrow as pa

from seglake.catalog.rows import SegmentRow
from seglake.config import Pipeline
from seglake.format.batch import Batches
from seglake.store import open_store
from seglake.write.driver.plan import Cut
from seglake.write.map.sort import encoding_of
from seglake.write.map.unit import Unit, blobs_of_unit
from seglake.write.reduce.merge import Place, SortedBlob, count_before, merge
from seglake.write.reduce.segment_writer import Piece, SegmentWriter, encode_runs, rebase_all
from seglake.write.spool.blob import BATCHES, unpack_batches, unpack_run
from seglake.write.spool.spool import Stage, StagedBlob, read_staged


class Read(NamedTuple):
    """Units of input files → rows of STAGED."""

    pipeline: Pipeline
    attempt_id: str
    append_time_ms: int

    def __call__(self, units: Sequence[Unit]) -> pa.Table:
        """Stage the blobs of the units."""
        store = open_store(self.pipeline.root, self.pipeline.storage)
        with Stage(store, self.attempt_id) as stage:
            for unit in units:
                for blob in blobs_of_unit(unit, self.pipeline, self.append_time_ms):
                    stage.add(blob)
        return stage.staged()


class Straddling(NamedTuple):
    """A blob with records in several pieces."""

    blob: int
    cuts: dict[int, Cut]  # by piece
    staged: pa.Table  # its row


class Count(NamedTuple):
    """Straddling blobs → how many of their records belong to each piece."""

    pipeline: Pipeline

    def __call__(self, items: Sequence[Straddling]) -> dict[tuple[int, int], int]:
        """Records of each (blob, piece)."""
        store = open_store(self.pipeline.root, self.pipeline.storage)
        blobs = read_staged(store, pa.concat_tables([item.staged for item in items]))
        return {
            (item.blob, piece): count_before(run, cut.end) - count_before(run, cut.start)
            for item, run in zip(items, map(sorted_blob, blobs), strict=True)
            for piece, cut in item.cuts.items()
        }


class Share(NamedTuple):
    """A piece that a task shall write: its blobs are rows of STAGED, in order of their places."""

    piece: Piece
    cut: Cut
    staged: pa.Table


class Write(NamedTuple):
    """Blobs → the segments of each piece."""

    pipeline: Pipeline
    append_time_ms: int
    order_column: str | None  # of a DataFrame

    def __call__(self, shares: Sequence[Share]) -> list[SegmentRow]:
        """Write the segments; returns their catalog rows."""
        store = open_store(self.pipeline.root, self.pipeline.storage)
        rows: list[SegmentRow] = []
        for piece, cut, staged in shares:
            blobs = read_staged(store, staged)
            with SegmentWriter(store, piece, self.pipeline.topic) as writer:
                for batches in self._batches(blobs, cut, piece.base_offset):
                    writer.append(batches)
                rows += writer.close()
        return rows

    def _batches(
        self, blobs: Iterator[StagedBlob], cut: Cut, base_offset: int
    ) -> Iterator[Batches]:
        first = next(blobs)
        everything = chain([first], blobs)
        if first.row["kind"] == BATCHES:
            return rebase_all((unpack_batches(blob.data) for blob in everything), base_offset)
        inside = (_within(sorted_blob(blob), cut) for blob in everything)
        runs = merge(inside, self.pipeline.task.merge_bytes, self.order_column)
        return encode_runs(runs, encoding_of(self.pipeline, self.append_time_ms), base_offset)


def _within(blob: SortedBlob, cut: Cut) -> SortedBlob:
    return blob.part(count_before(blob, cut.start), count_before(blob, cut.end))


def sorted_blob(blob: StagedBlob) -> SortedBlob:
    """A staged blob as records in order."""
    row = blob.row
    place = Place(row["key"], row["second"], row["unit"], row["sequence"])
    return SortedBlob(place, unpack_run(blob.data))
