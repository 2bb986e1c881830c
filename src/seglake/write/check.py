"""Preview an ingest by listing the input files and parsing a sample of their rows.

A check writes nothing, and needs neither a lake nor Spark.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from seglake.advice.conclude import AbsentFields, Observations, conclude, is_blocking, merge_times
from seglake.advice.file_times import FileTimes
from seglake.advice.finding import Finding, merge_findings
from seglake.clock import now_ms
from seglake.config import Pipeline
from seglake.errors import ConfigError, StoreError
from seglake.format.partitioner import partition_of
from seglake.format.records import Records, Spans
from seglake.layout import LOG_TABLE
from seglake.store import open_store
from seglake.text.utf8 import invalid_utf8
from seglake.write.driver.run_input import plan_splits
from seglake.write.input.content import InputStore
from seglake.write.input.encodings import is_single_byte
from seglake.write.input.files import SourceFile, Split
from seglake.write.input.listing import find_inputs
from seglake.write.rows.records import UNREAD_TIMES, ExtractedChunk, RowLimits, extract, read_rows
from seglake.write.rows.rows import REASON_TEXTS, time_texts

_SPLITS = 5  # number of splits in the sample
_SPLIT_BYTES = 1 << 20  # bytes that the sample reads from a split that is part of a file
_FILES = 5  # number of files that are described one by one
TEXT_BYTES = 200  # by default, a key, a header or a value is cut at this size

Headers = list[tuple[str, str | None]]


class FileNote(NamedTuple):
    """A description of an input file. `packing` is "", a codec, "tar", or both ("gzip tar")."""

    path: str
    size_bytes: int
    packing: str


@dataclass(frozen=True)
class SampledRow:
    """A row of the sample: a record, or a reject if `reason` is not empty.

    `line` is 1-based, counted from the byte `start` of the file, or from the beginning of an
    archive's member. `timestamp` (ms) is None if the record gets the append time. `partition` is
    None if the key is null, because any partition may get the record. For a reject, `value` has its
    raw bytes as text, and only `path`, `start`, `line` and `reason` are set as well. If its time
    cannot be read, `time_value` is the text of the time, never cut. Other texts are cut at 200
    bytes by default.
    """

    path: str
    start: int
    line: int
    reason: str
    value: str | None
    timestamp: int | None = None
    key: str | None = None
    partition: int | None = None
    headers: Headers | None = None
    time_value: str | None = None


@dataclass(frozen=True)
class CheckResult:
    """The result of a check, with the files of a pipeline and a sample of their rows.

    `files` is the number of files and `size_bytes` their stored size. `first_files` describes up to
    five of them. `paths` has the paths of all files, and is not in `as_dict`. `left_out` maps the
    path of each excluded file to the reason. `stops` is true if one of the `findings` would make a
    run fail.
    """

    files: int
    size_bytes: int
    splits: int
    first_files: list[FileNote]
    left_out: dict[str, str]
    rows: list[SampledRow]
    findings: list[Finding]
    stops: bool
    paths: list[str]

    @property
    def reasons(self) -> dict[str, int]:
        """Return reason → number of rejects in the sample with that reason."""
        return dict(Counter(row.reason for row in self.rows if row.reason))

    @property
    def exit_code(self) -> int:
        """Return 3 if a sampled row is rejected or a finding would make a run fail, else 0."""
        return 3 if self.reasons or self.stops else 0

    def as_dict(self) -> dict[str, Any]:
        """Return the result and its counts of reasons as a dictionary of JSON values."""
        first = [note._asdict() for note in self.first_files]
        values = {**asdict(self), "first_files": first, "reasons": self.reasons}
        del values["paths"]  # omitted, because there may be many
        return values


def check(pipeline: Pipeline, sample: int, text_bytes: int | None = TEXT_BYTES) -> CheckResult:
    """Parse about `sample` rows from up to five splits of the input, like an ingest would.

    Texts are cut at `text_bytes`. If it is None, they are not cut. Raises ConfigError or
    InputError, like an ingest.
    """
    if not pipeline.input.kind.in_files:
        raise ConfigError(
            f"input.format = {pipeline.input.format!r} has no files to check: "
            "seglake.ingest takes its rows"
        )
    limits = RowLimits(pipeline.topic.event_times(now_ms()))
    store = InputStore(pipeline.storage, pipeline.input.compression, pipeline.input.encoding)
    inputs = find_inputs(pipeline.input, store, pipeline.root).distinct()
    packing = (lambda _: "") if pipeline.input.kind.columnar else store.packing
    splits = plan_splits(inputs.files, store, pipeline)
    rows, found = _Sampler(pipeline, store, limits, text_bytes).sample(splits, sample)
    files, missing = inputs.files, [Finding("missing-path", path) for path in inputs.missing]
    return CheckResult(
        files=len(files),
        size_bytes=files.size_bytes,
        splits=len(splits),
        first_files=[FileNote(file.path, file.size, packing(file)) for file in files[:_FILES]],
        left_out=inputs.left_out,
        rows=rows,
        findings=[*missing, *_unsplit(files, pipeline), *found],
        stops=any(map(is_blocking, found)),
        paths=[*files.paths],
    )


def check_topic_settings(pipeline: Pipeline) -> str:
    """Raise ConfigError, like an ingest, if the settings contradict the topic in the lake.

    Returns a sentence if the lake cannot be read, else "". The lake need not exist. Raises
    CorruptData.
    """
    try:
        store = open_store(pipeline.root, pipeline.storage)
        if next(iter(store.list(LOG_TABLE)), None) is not None:  # otherwise an ingest creates it
            # Imported here, because a check without a lake works without Delta.
            from seglake.catalog.table import CatalogTable  # noqa: PLC0415
            from seglake.write.driver.topics import current_topic  # noqa: PLC0415

            current_topic(CatalogTable.open(store).snapshot(), pipeline)
    except StoreError as error:
        return f"these settings were not checked against the lake: {error}"
    return ""


def _unsplit(files: Sequence[SourceFile], pipeline: Pipeline) -> Iterator[Finding]:
    """Yield a finding if a large file cannot be split because of its encoding."""
    encoding, size = pipeline.input.encoding, max((file.size for file in files), default=0)
    if pipeline.input.recoded and not is_single_byte(encoding) and size > pipeline.task.split_bytes:
        yield Finding("unsplit-encoding", "input.encoding", {"encoding": encoding, "size": size})


class _Sampler(NamedTuple):
    """A reader of rows at the beginnings of splits. Texts are cut at `text_bytes`."""

    pipeline: Pipeline
    store: InputStore
    limits: RowLimits
    text_bytes: int | None

    def sample(self, splits: Sequence[Split], count: int) -> tuple[list[SampledRow], list[Finding]]:
        """Return up to `count` rows from splits that are far apart, and findings about them."""
        full = [split for split in splits if split.file.size]
        chosen = np.linspace(0, len(full) - 1, min(len(full), _SPLITS)).astype(int)
        numbers, rows = np.unique(chosen).tolist(), list[SampledRow]()
        absent, found, records = AbsentFields(), list[Finding](), 0
        times, members = list[tuple[str, FileTimes]](), list[Finding]()
        for left, number in zip(range(len(numbers), 0, -1), numbers, strict=True):
            enough, split = len(rows) + -(-(count - len(rows)) // left), full[number]
            for path, chunk, lines, texts, keys in self._chunks(split):
                absent = absent.merge(chunk.absent)
                timestamps = chunk.records.timestamps
                times.append((split.file.path, FileTimes.from_timestamps(timestamps)))
                found = merge_findings([*found, *chunk.findings, *keys])
                records += len(chunk.records)
                sampled = self._rows(chunk, path, split.start, lines, texts)
                rows += islice(sampled, enough - len(rows))
                if len(rows) >= enough:
                    if not self.pipeline.input.kind.columnar and "tar" in self.store.packing(
                        split.file
                    ):
                        members.append(Finding("archive-member", split.file.path, {"member": path}))
                    break
        observed = Observations(found, records, absent, merge_times(times))
        return rows, [*conclude(self.pipeline, observed), *members]

    def _chunks(
        self, split: Split
    ) -> Iterator[tuple[str, ExtractedChunk, list[int], Spans | None, list[Finding]]]:
        """Yield (path, chunk, line numbers, texts of times, findings) for each chunk of a split.

        The line numbers count from 0. The texts are None if every time can be read. The findings
        are about rows that are not UTF-8, which an ingest does not check.
        """
        pipeline, settings = self.pipeline, self.pipeline.timestamp
        if not (split.is_whole or pipeline.input.kind.columnar):
            split = split._replace(end=min(split.end, split.start + _SPLIT_BYTES))
        for path, rows, first_line, path_line in read_rows(split, self.store, pipeline):
            line = first_line - path_line
            chunk = extract(rows, pipeline, self.limits, path, line)
            unread = np.isin(chunk.rejects.reasons, UNREAD_TIMES).any()
            times = time_texts(rows, settings) if settings.names and unread else None
            text = not (pipeline.input.kind.columnar or pipeline.input.recoded)
            wrong = text and not chunk.findings and invalid_utf8(*rows.raw).any()
            found = [Finding("not-utf-8", path, count=1)] if wrong else []
            yield path, chunk, (rows.numbers + line).tolist(), times, found

    def _rows(
        self, chunk: ExtractedChunk, path: str, start: int, lines: list[int], times: Spans | None
    ) -> Iterator[SampledRow]:
        """Yield the rows of a chunk as SampledRow, in the order of the file.

        `lines` are their line numbers (from 0), and `times` the texts of their times.
        """
        rejects = {line: at for at, line in enumerate(chunk.rejects.lines.tolist())}
        partitions, record = chunk.partitions, 0
        if partitions is None:
            partitions = partition_of(chunk.records.keys, self.pipeline.topic.partitions)
        for place, line in enumerate(lines):
            where, at = (path, start, line + 1), rejects.get(line)
            if at is None:
                certain = chunk.partitions is not None or chunk.records.keys.lengths[record] >= 0
                partition = int(partitions[record]) if certain else None
                yield self._record(chunk.records, record, where, partition)
                record += 1
            else:
                reason = chunk.rejects.reasons[at]
                value = _text(chunk.rejects.raw, at, self.text_bytes)
                unread = times is not None and reason in UNREAD_TIMES
                time = _text(times, place, None) if times is not None and unread else None
                yield SampledRow(*where, str(REASON_TEXTS[reason]), value, time_value=time)

    def _record(
        self, records: Records, at: int, where: tuple[str, int, int], partition: int | None
    ) -> SampledRow:
        most = self.text_bytes
        headers: Headers = []
        if records.headers is not None:
            numbers = range(*records.headers.firsts[at : at + 2].tolist())
            names, values = records.headers.keys, records.headers.values
            headers = [(_text(names, k, most) or "", _text(values, k, most)) for k in numbers]
        by_run = self.pipeline.topic.message_timestamp_type == "LogAppendTime"
        value, key = (_text(spans, at, most) for spans in (records.values, records.keys))
        timestamp = None if by_run else int(records.timestamps[at])
        return SampledRow(*where, "", value, timestamp, key, partition, headers)


def _text(spans: Spans, at: int, most: int | None) -> str | None:
    """Return item `at` as text, cut at `most` bytes with "…". A null item gives None."""
    start, length = int(spans.starts[at]), int(spans.lengths[at])
    if length < 0:
        return None
    size = length if most is None else min(length, most)
    shown = bytes(spans.data[start : start + size]).decode("utf-8", "replace")
    return shown + "…" if length > size else shown
