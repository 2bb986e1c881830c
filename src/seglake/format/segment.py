"""Decide which batches share a segment and which get index entries, and build the index files.

`Roller` is Kafka's append path as a pure function of batch tables: it decides where a segment ends
(`LogSegment.shouldRoll`) and which batches get an index entry (`LogSegment.append`, the per-batch
rule of KAFKA-806). `seal` makes the three index files of a segment. `rebuild` makes the same files
from an existing log.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from seglake.errors import ConfigError
from seglake.format import encode_kernels, zonemap
from seglake.format.batch import BatchTable
from seglake.format.index import OFFSET_ENTRY, TIME_ENTRY, IndexPolicy, offset_index, time_index
from seglake.format.records import end_to_end, fixed, join_tables
from seglake.limits import INT64_MAX


@dataclass(frozen=True)
class SegmentLimits:
    """The limits at which a segment ends. The defaults are Kafka's, except for `segment_ms`.

    A segment has at most `segment_bytes`, and each of its index files at most `index_bytes`. A
    batch begins a new segment if its largest timestamp is more than `segment_ms` above the largest
    timestamp of the segment's first batch.
    """

    segment_bytes: int = 2**30
    segment_ms: int = INT64_MAX
    index_bytes: int = 10 * 2**20


class Sealed(NamedTuple):
    """The index files of a finished segment by suffix, and the values for its catalog row.

    Optional index files that need the records, such as a key index, are not included.
    """

    files: dict[str, bytes]
    end_offset: int  # exclusive
    record_count: int
    min_timestamp: int
    max_timestamp: int
    offset_of_max_timestamp: int  # -1 without records, like both timestamps
    max_lateness_ms: int


class Roller:
    """Assigns batches to segments in the order in which they are appended."""

    def __init__(self, base_offset: int, limits: SegmentLimits, policy: IndexPolicy) -> None:
        self._limits, self._policy = limits, policy
        self.begin(base_offset)

    @property
    def base_offset(self) -> int:
        """Return the base offset of the segment that is being filled."""
        return int(self._state[encode_kernels.BASE])

    @property
    def size_bytes(self) -> int:
        """Return the size in bytes of the segment that is being filled."""
        return int(self._state[encode_kernels.SIZE])

    @property
    def indexed(self) -> npt.NDArray[np.bool_]:
        """Return, for each batch of the segment being filled, whether it has an index entry."""
        return np.concatenate(self._indexed)

    @property
    def newly_indexed(self) -> npt.NDArray[np.bool_]:
        """Return, for each batch of the last `append`, whether it has an index entry."""
        return self._indexed[-1]

    def begin(self, base_offset: int) -> None:
        """Start an empty segment at `base_offset`."""
        self._state = np.zeros(8, np.int64)
        self._state[encode_kernels.BASE] = base_offset
        for unseen in (encode_kernels.FIRST_MAX, encode_kernels.HIGHEST, encode_kernels.LAST_TIME):
            self._state[unseen] = -1
        self._tables: list[BatchTable] = []
        self._indexed: list[npt.NDArray[np.bool_]] = []

    def append(self, table: BatchTable) -> int:
        """Append batches of `table` until the segment must roll. Return how many were appended.

        Batches are put one after another, whatever their positions in the table. Raises ConfigError
        for a batch that is larger than `segment_bytes`.
        """
        self._require_possible(table)
        indexed = np.zeros(len(table), np.bool_)
        limits, policy = self._limits, self._policy
        taken = encode_kernels.append(
            self._state, fixed(table), policy.interval,
            limits.segment_bytes, limits.segment_ms, limits.index_bytes // OFFSET_ENTRY.itemsize,
            limits.index_bytes // TIME_ENTRY.itemsize, indexed,
        )  # fmt: skip
        self._tables.append(table[:taken])
        self._indexed.append(indexed[:taken])
        return int(taken)

    def _require_possible(self, table: BatchTable) -> None:
        largest = int(table["size"].max(initial=0))
        if largest > self._limits.segment_bytes:
            raise ConfigError(
                f"a record batch of {largest} bytes does not fit segment.bytes = "
                f"{self._limits.segment_bytes}. Raise it, or lower batch.size and max.message.bytes"
            )

    def seal(self) -> Sealed:
        """Make the index files of the current segment, which must have at least one batch."""
        table = end_to_end(join_tables(self._tables))
        return seal(self.base_offset, table, self.indexed)


def seal(base_offset: int, table: BatchTable, indexed: npt.NDArray[np.bool_]) -> Sealed:
    """Make the index files of the segment whose batches `table` describes."""
    files = {
        "index": offset_index(base_offset, table, indexed).encode(),
        "timeindex": time_index(base_offset, table, indexed).encode(),
        "zonemap": zonemap.encode(zonemap.build(base_offset, table, indexed)),
    }
    return Sealed(
        files,
        int(table["last_offset"][-1]) + 1,
        int(table["count"].sum(dtype=np.int64)),
        *_times(table[table["count"] > 0]),
    )


def _times(table: BatchTable) -> tuple[int, int, int, int]:
    """Return the last four values of `Sealed`. Batches without records do not count.

    An empty batch has the largest timestamp of its removed records, which no read returns.
    """
    if not len(table):
        return -1, -1, -1, 0
    highs, lows = table["max_timestamp"], table["min_timestamp"]
    top = int(np.argmax(highs))
    # If a batch has a record without a timestamp, its `min_timestamp` is -1, so only its `lateness`
    # counts.
    before = np.maximum(np.maximum.accumulate(highs)[:-1], 0)
    behind = np.where(lows[1:] >= 0, before - lows[1:], 0)
    late = max(int(behind.max(initial=0)), int(table["lateness"].max(initial=0)))
    return int(lows.min()), int(highs[top]), int(table["offset_of_max"][top]), late


def choose_indexed(table: BatchTable, policy: IndexPolicy) -> npt.NDArray[np.bool_]:
    """Return, for each batch of one complete segment, whether it gets an index entry."""
    no_limits = SegmentLimits(INT64_MAX, INT64_MAX, INT64_MAX)
    roller = Roller(int(table["base_offset"][0]) if len(table) else 0, no_limits, policy)
    roller.append(table)
    return roller.indexed


def rebuild(base_offset: int, table: BatchTable, policy: IndexPolicy) -> Sealed:
    """Make the index files of the log that `table` describes, like Kafka's `recover()`."""
    return seal(base_offset, table, choose_indexed(table, policy))
