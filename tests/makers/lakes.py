"""Lakes for tests, written without Spark: rows in, segments and catalog commits out.

`LakeMaker` remembers every record that it wrote, so a test can compare any answer with the plain
list: that is the brute-force model.
"""

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import crc32c
import numpy as np

from seglake.catalog.schema import Row, RunRow, SegmentRow, TopicRow
from seglake.catalog.table import CatalogTable
from seglake.catalog.topic_change import Change
from seglake.catalog.version.snapshot import Snapshot
from seglake.format.codecs.compression import IDS, compressor
from seglake.format.decode import scan_batches
from seglake.format.encode import EncodedBatches, Encoding, encode_batches, encode_bodies
from seglake.format.index import IndexPolicy
from seglake.format.records import Headers, Records, Spans
from seglake.format.segment import Roller, Sealed, SegmentLimits
from seglake.layout import attempt_folder, new_attempt
from seglake.log.files import content_of
from seglake.log.key_indexes import KeyIndexBuilder
from seglake.maintain.commit import TopicReport, commit_change
from seglake.maintain.expiry.retention import log_start_change, move_log_starts
from seglake.store import open_store
from seglake.write.driver.commit import offset_ranges
from tests.makers.catalog_rows import commit_rows

T = 1_700_000_000_000  # some time in 2023, in ms


def open_catalog(root: str, options: Mapping[str, str] | None = None) -> CatalogTable:
    """The catalog of the lake at a root."""
    return CatalogTable.open(open_store(root, options))


def create_catalog(root: str, options: Mapping[str, str] | None = None) -> CatalogTable:
    """The catalog of the lake at a root, created if there is none."""
    return CatalogTable.create(open_store(root, options))


class Event(NamedTuple):
    """A record to write; `gap` offsets are left out before it."""

    timestamp: int
    key: bytes | None = None
    value: bytes | None = b""
    headers: tuple[tuple[str, bytes | None], ...] = ()
    gap: int = 0


class Written(NamedTuple):
    """A record as it stands in the log."""

    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


@dataclass(frozen=True)
class Shape:
    """How records are stored."""

    codec: str = "none"
    batch_bytes: int = 256
    segment_bytes: int = 2**30
    policy: IndexPolicy = field(default_factory=lambda: IndexPolicy(200))
    append_time_ms: int | None = None

    @property
    def encoding(self) -> Encoding:
        compress = compressor(self.codec)
        return Encoding(compress, IDS[self.codec], self.batch_bytes, self.append_time_ms)


@dataclass
class LakeMaker:
    """A lake at `root`, one topic unless `topic` is changed between commits."""

    root: Path
    topic: str = "events"
    partitions: int = 1
    written: dict[str, list[Written]] = field(default_factory=dict)
    starts: dict[tuple[str, int], int] = field(default_factory=dict)
    versions: list[int] = field(default_factory=list)
    settings: Mapping[str, object] = field(default_factory=dict)  # of a new topic, by Kafka's names

    def __post_init__(self) -> None:
        self.catalog = create_catalog(str(self.root))
        self.store = self.catalog.store

    def records(self, partition: int | None = None, topic: str | None = None) -> list[Written]:
        """What the log holds, in the order of partition and offset."""
        topic = topic or self.topic
        return sorted(
            (
                record
                for record in self.written.get(topic, [])
                if partition in (None, record.partition)
                and record.offset >= self.starts.get((topic, record.partition), 0)
            ),
            key=lambda record: record[:2],
        )

    def run(
        self,
        rows: Mapping[int, Sequence[Event]],
        shape: Shape = Shape(),
        interval: tuple[int, int] | None = None,
    ) -> int:
        """Commit rows by partition as one run; returns the version."""
        base = self.catalog.snapshot()
        attempt = new_attempt()
        known = {row.topic for row in base.topics()}
        kind = "CreateTime" if shape.append_time_ms is None else "LogAppendTime"
        commit: list[Row] = []
        if self.topic not in known:
            commit.append(
                TopicRow(topic=self.topic, sequence=1, partitions=self.partitions,
                         partitioner="murmur2", timestamp_type=kind,
                         settings=json.dumps(self.settings))
            )  # fmt: skip
        for partition, given in rows.items():
            if self.topic in known:
                next_offset = base.partition(self.topic, partition).end_offset
            else:
                next_offset = 0
            self._remember(partition, given, next_offset, shape)
            parts = _encode(given, next_offset, shape)
            commit += self._segments(partition, next_offset, parts, shape, attempt)
        ranges = offset_ranges(row for row in commit if isinstance(row, SegmentRow))
        run = self._run_row(rows, attempt, interval)
        commit.append(replace(run, offset_ranges=ranges))
        version = commit_rows(self.catalog, commit, base=base, attempt_id=attempt)
        self.versions.append(version)
        return version

    def delete_records(self, partition: int, log_start: int) -> int:
        """Move the log start as `seglake delete-records` does, of a compacted topic too.

        Returns the version that has it.
        """
        report = TopicReport(self.topic)
        commit_change(
            self.catalog, report, partial(_deletion, report, partition, log_start), dry_run=False
        )
        version = self.catalog.snapshot().version if report.version < 0 else report.version
        self.starts[self.topic, partition] = max(
            log_start, self.starts.get((self.topic, partition), 0)
        )
        self.versions.append(version)
        return version

    def files(self, suffix: str) -> list[Path]:
        """All files of one kind."""
        return sorted(self.root.glob(f"topics/*/*/*.{suffix}"))

    def _remember(self, partition: int, rows: Sequence[Event], offset: int, shape: Shape) -> None:
        at = shape.append_time_ms
        for row in rows:
            offset += row.gap
            self.written.setdefault(self.topic, []).append(
                Written(partition, offset, row.timestamp if at is None else at, int(at is not None),
                        row.key, row.value, list(row.headers))
            )  # fmt: skip
            offset += 1

    def _segments(
        self, partition: int, base: int, parts: Iterable[EncodedBatches], shape: Shape, attempt: str
    ) -> list[SegmentRow]:
        roller = Roller(base, SegmentLimits(shape.segment_bytes), shape.policy)
        rows, data = [], b""
        for batches in parts:
            at = 0
            while at < len(batches.table):
                taken = roller.append(batches.table[at:])
                some = batches.table[at : at + taken]
                start = int(some["position"][0]) if taken else 0
                data += batches.data[start : start + int(some["size"].sum())].tobytes()
                at += taken
                if at < len(batches.table):
                    rows.append((roller.base_offset, roller.seal(), data))
                    data = b""
                    roller.begin(rows[-1][1].end_offset)
        if roller.size_bytes:
            rows.append((roller.base_offset, roller.seal(), data))
        return [self._segment_row(partition, *row, shape, attempt) for row in rows]

    def _segment_row(
        self, partition: int, base: int, sealed: Sealed, log: bytes, shape: Shape, attempt: str
    ) -> SegmentRow:
        builder = KeyIndexBuilder(base, shape.policy)
        builder.add(scan_batches(log), log)
        folder = self.root / attempt_folder(self.topic, partition, attempt)
        files: dict[str, bytes] = {"log": log, **sealed.files, **builder.finish(len(log))}
        for suffix, data in files.items():
            path = folder / f"{base:020}.{suffix}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        facts: dict[str, Any] = {f"{name}_bytes": len(data) for name, data in files.items()}
        facts |= {f"{name}_crc32c": crc32c.crc32c(data) for name, data in files.items()}
        facts |= content_of(files.get("keyindex"))
        return SegmentRow(
            topic=self.topic, partition=partition, base_offset=base, end_offset=sealed.end_offset,
            record_count=sealed.record_count, min_timestamp=sealed.min_timestamp,
            max_timestamp=sealed.max_timestamp,
            offset_of_max_timestamp=sealed.offset_of_max_timestamp,
            max_lateness_ms=sealed.max_lateness_ms,
            timestamp_type="CreateTime" if shape.append_time_ms is None else "LogAppendTime",
            codec=shape.codec,
            index_interval=shape.policy.interval, attempt_id=attempt, created_at_ms=0,
            **facts,
        )  # fmt: skip

    def _run_row(
        self, rows: Mapping[int, Sequence[Event]], attempt: str, interval: tuple[int, int] | None
    ) -> RunRow:
        start, end = interval or (None, None)
        number = len(self.versions)
        count = sum(map(len, rows.values()))
        return RunRow(
            topic=self.topic, pipeline="test", run_id=f"run {number}", attempt_id=attempt,
            fingerprint="", interval_start_ms=start, interval_end_ms=end, records=count,
            input_rows=count, started_at_ms=number, finished_at_ms=number,
        )  # fmt: skip


def _deletion(report: TopicReport, partition: int, log_start: int, base: Snapshot) -> Change | None:
    view = base.partition(report.topic, partition)
    if log_start <= view.log_start_offset:
        return None
    return move_log_starts(base, report, "delete-records", [log_start_change(view, log_start)])


def _encode(rows: Sequence[Event], base: int, shape: Shape) -> list[EncodedBatches]:
    """The batches of rows, cut where offsets are left out."""
    parts, offset = [], base
    cuts = [i for i, row in enumerate(rows) if row.gap and i]
    for start, end in itertools.pairwise([0, *cuts, len(rows)]):
        some = rows[start:end]
        offset += some[0].gap if some else 0
        records = records_of(some)
        bodies = encode_bodies(records, np.arange(len(some)))
        if some:
            parts.append(
                encode_batches(records.timestamps, bodies, shape.encoding, base_offset=offset)
            )
        offset += len(some)
    return parts


def records_of(rows: Sequence[Event]) -> Records:
    """The rows as columns."""
    headers = None
    if any(row.headers for row in rows):
        items = [item for row in rows for item in row.headers]
        firsts = np.cumsum([0, *(len(row.headers) for row in rows)])
        keys = Spans.from_list([key.encode() for key, _ in items])
        headers = Headers(firsts, keys, Spans.from_list([value for _, value in items]))
    return Records(
        np.array([row.timestamp for row in rows], np.int64),
        Spans.from_list([row.key for row in rows]),
        Spans.from_list([row.value for row in rows]),
        headers,
    )
