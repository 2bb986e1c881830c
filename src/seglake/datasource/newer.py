"""Records of a task whose logs are gone: a newer version of the lake may still have them.

A merge or a compaction writes segments again, and once the planned version is no longer retained, a
vacuum deletes the old ones. Offsets stay, so the newest version answers for the same offsets. What
it lacks was superseded, erased, undone or expired: that is a loss of data.
"""

import logging
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from seglake.catalog.version.snapshot import PartitionView
from seglake.errors import UnknownTopic, VersionExpired
from seglake.log.decode.columns import schema_of
from seglake.log.execute import execute
from seglake.log.piece import Piece, Window
from seglake.log.segment_lookup import PartitionReader
from seglake.read.lake import Lake
from seglake.read.window.plan import pieces_of
from seglake.store import Store

_OFFSETS = schema_of(["offset"])

_log = logging.getLogger(__name__)


class Newer:
    """The newest version, opened when it is first needed."""

    def __init__(self, store: Store, *, fail_on_data_loss: bool) -> None:
        self._store, self._fail = store, fail_on_data_loss
        self._lake: Lake | None = None

    def pieces(self, piece: Piece, next_offset: int, gone: VersionExpired) -> Iterator[Piece]:
        """The pieces that have the rest of a piece, from `next_offset` on.

        Raises VersionExpired, if a loss of data is an error, where records of the segment are lost.
        """
        segment, window = piece.segment, piece.window
        rest = window._replace(
            start_offset=max(next_offset, window.start_offset, segment.base_offset),
            end_offset=min(window.end_offset, segment.end_offset),
        )
        reader = self._reader(piece)
        left = 0 if reader is None else self._left(reader.view, piece, rest.start_offset)
        if self._fail and left != segment.record_count:
            raise VersionExpired(
                f"{segment.log_key} is gone, and the newest version has {left} of its "
                f"{segment.record_count} records: run the query again, or, to read what there is, "
                "set failOnDataLoss to false"
            )
        _log.warning("%s: what is left of it is read from the newest version", gone)
        return pieces_of([] if reader is None else [(reader, rest)])

    def _reader(self, piece: Piece) -> PartitionReader | None:
        """The partition in the newest version."""
        self._lake = Lake(self._store) if self._lake is None else self._lake.refresh()
        try:
            return self._lake.topic(piece.segment.topic).reader(piece.segment.partition)
        except UnknownTopic:
            return None

    def _left(self, view: PartitionView, piece: Piece, from_offset: int) -> int:
        """How many records of a segment there still are; 0 if that does not matter.

        Those that were deleted before the plan count too, if they are still in a log.
        """
        if not self._fail or self._lake is None:
            return 0
        segment, start = piece.segment, view.log_start_offset
        first = start if start > from_offset else segment.base_offset
        window = Window(start_offset=first, end_offset=segment.end_offset)
        whole = PartitionReader(replace(view, log_start_offset=0), self._lake.reads)
        batches = execute(whole.fetch, pieces_of([(whole, window)]), _OFFSETS, threads=1)
        return sum(len(batch) for batch in batches)


def with_offsets(schema: pa.Schema) -> pa.Schema:
    """The schema with the column of offsets, at the end unless it is there."""
    return schema if "offset" in schema.names else schema_of([*schema.names, "offset"])
