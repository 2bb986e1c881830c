"""Large logs of records with keys, made array at a time: for memory and for benchmarks."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from seglake.catalog.schema import RunRow, SegmentId, SegmentRow, TopicRow
from seglake.config import Topic
from seglake.format.encode import EncodedBatches, encode_batches, encode_bodies
from seglake.format.records import Records, Spans
from seglake.layout import new_attempt
from seglake.log.writer import SegmentWriter, encoding_of
from tests.makers.catalog_rows import commit_rows
from tests.makers.lakes import create_catalog

TOPIC = "events"
AT_ONCE = 1 << 18  # records
KEY_BYTES = 16
_SPREAD = np.uint64(0x9E3779B97F4A7C15)  # odd: numbers become other numbers, one to one


class Keyed(NamedTuple):
    """So many records, with `keys` different keys in a random order, or each key once in turn."""

    records: int
    keys: int
    in_turn: bool = False
    value_bytes: int = 20
    codec: str = "zstd"
    segment_bytes: int = 2**30

    def numbers(self) -> npt.NDArray[np.uint64]:
        """The number of the key of each record."""
        if self.in_turn:
            return np.arange(self.records, dtype=np.uint64) % np.uint64(self.keys)
        return np.random.default_rng(7).integers(self.keys, size=self.records, dtype=np.uint64)

    def last(self) -> npt.NDArray[np.int64]:
        """The offset of the last record of each key, ascending: what compaction leaves."""
        _, first_from_end = np.unique(self.numbers()[::-1], return_index=True)
        return np.sort(self.records - 1 - first_from_end)


def make_keyed_lake(root: Path, made: Keyed, **settings: object) -> list[SegmentRow]:
    """A lake with one log partition that may be compacted; returns its segments."""
    named = {"name": TOPIC, "segment.bytes": made.segment_bytes, "compression.type": made.codec}
    topic, catalog = Topic.model_validate(named), create_catalog(str(root))
    attempt = new_attempt()
    first = SegmentId(TOPIC, 0, 0, attempt, attempt)
    with SegmentWriter(catalog.store, first, topic, 0) as writer:
        for batches in _batches(made, topic):
            writer.append(batches)
        rows = writer.close()
    text = json.dumps({"cleanup.policy": "compact", "segment.bytes": made.segment_bytes} | settings)
    about = TopicRow(
        topic=TOPIC, sequence=1, partitions=1, partitioner="murmur2", timestamp_type="CreateTime",
        settings=text,
    )  # fmt: skip
    run = RunRow(
        topic=TOPIC, pipeline="keyed", run_id="1", attempt_id=attempt, fingerprint="",
        records=made.records, input_rows=made.records, started_at_ms=0, finished_at_ms=0,
    )  # fmt: skip
    commit_rows(catalog, [about, run, *rows], attempt_id=attempt)
    return rows


def _batches(made: Keyed, topic: Topic) -> Iterator[EncodedBatches]:
    numbers, chance = made.numbers(), np.random.default_rng(8)
    encoding = encoding_of(topic, 0)
    for first in range(0, made.records, AT_ONCE):
        some = numbers[first : first + AT_ONCE] * _SPREAD
        keys = np.zeros((len(some), KEY_BYTES), np.uint8)
        keys[:, :8] = some.view(np.uint8).reshape(-1, 8)
        values = chance.integers(256, size=(len(some), made.value_bytes), dtype=np.uint8)
        values[:, made.value_bytes // 4 :] = 32  # a quarter cannot be compressed
        times = np.arange(first, first + len(some), dtype=np.int64) + 1_700_000_000_000
        records = Records(times, _spans(keys), _spans(values))
        bodies = encode_bodies(records, np.arange(len(some)))
        yield encode_batches(times, bodies, encoding, base_offset=first)


def _spans(rows: npt.NDArray[np.uint8]) -> Spans:
    count, size = rows.shape
    lengths = np.full(count, size, np.int32)
    return Spans(rows.reshape(-1), np.arange(count, dtype=np.int64) * size, lengths)
