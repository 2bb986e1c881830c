"""The segments of a topic as columns, and their index blocks where these are needed."""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from seglake.errors import CorruptData, MissingObject
from seglake.format.records import Int64s
from seglake.log.zones.search import ZoneSearch
from seglake.read.log import Log
from seglake.reporting.activity import TimeSpans

_log = logging.getLogger(__name__)

_ZONE_MAPS, _ZONE_MAP_BYTES = 200, 2**25  # that are read at most, and their size together


class SegmentColumns(NamedTuple):
    """The segments of a topic, in the order of partition and base offset.

    Timestamps and lateness are in ms; a segment without a record that has a timestamp has -1.
    `index_bytes` is the size of the three index files together; `codecs` has names.
    """

    spans: TimeSpans
    ends: Int64s
    lateness_ms: Int64s
    log_bytes: Int64s
    index_bytes: Int64s
    zonemap_bytes: Int64s
    codecs: pa.ChunkedArray[Any]

    @staticmethod
    def of(log: Log) -> SegmentColumns:
        """The segments of a log, from the catalog alone."""
        table = log.segments().to_arrow()
        number = {name: table[name].to_numpy().astype(np.int64) for name in _NUMBERS}
        spans = TimeSpans(*(number[name] for name in _NUMBERS[:4]))
        keys: Any = table["keyindex_bytes"].combine_chunks()
        own = pc.coalesce(keys, keys.is_valid().cast("int64"))  # 0 where there is none
        indexes = number["index_bytes"] + number["timeindex_bytes"] + number["zonemap_bytes"]
        indexes += own.to_numpy()
        return SegmentColumns(
            spans, number["end_offset"], number["max_lateness_ms"], number["log_bytes"], indexes,
            number["zonemap_bytes"], table["codec"],
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.ends)


_NUMBERS = (
    "partition", "record_count", "min_timestamp", "max_timestamp", "end_offset", "max_lateness_ms",
    "log_bytes", "index_bytes", "timeindex_bytes", "zonemap_bytes",
)  # fmt: skip


def refined(
    log: Log, segments: SegmentColumns, chosen: npt.NDArray[Any], spans: TimeSpans
) -> TimeSpans:
    """The spans of segments, with index blocks in the place of those under the mask `chosen`.

    A limited number of zone maps is read, those of the segments with the most records. The other
    segments, and those with damaged files, stay as they are.
    """
    numbers = np.flatnonzero(chosen & (spans.records > 0))
    numbers = numbers[np.argsort(-spans.records[numbers], kind="stable")][:_ZONE_MAPS]
    numbers = numbers[np.cumsum(segments.zonemap_bytes[numbers]) <= _ZONE_MAP_BYTES]
    whole, blocks = np.ones(len(spans.records), bool), list[TimeSpans]()
    for number in numbers.tolist():
        try:
            blocks.append(_blocks(log, segments, number))
            whole[number] = False
        except (CorruptData, MissingObject) as damage:
            _log.warning("the report takes a segment as a whole: %s", damage)
    return TimeSpans(*map(np.concatenate, zip(spans.take(whole), *blocks, strict=True)))


def _blocks(log: Log, segments: SegmentColumns, number: int) -> TimeSpans:
    """The index blocks of a segment whose records all have a timestamp."""
    partition = int(segments.spans.partitions[number])
    reader = log.reader(partition)
    segment = reader.segment(reader.view.index_of(int(segments.ends[number]) - 1))
    offsets, lows, highs = reader.ask(segment, ZoneSearch.times)
    dated = lows >= 0
    offsets, lows, highs = offsets[dated], lows[dated], highs[dated]
    ratio = int(segments.spans.records[number]) / max(1, int(offsets.sum()))  # below 1 with gaps
    return TimeSpans(np.full(len(lows), partition), np.rint(offsets * ratio), lows, highs)
