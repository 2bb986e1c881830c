"""What an ingest would make of its input: the files, and a sample of their rows.

Nothing is written, no lake and no Spark are needed.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from seglake.config import Pipeline
from seglake.errors import ConfigError
from seglake.format.partitioner import partition_of
from seglake.format.records import Records, Spans
from seglake.write.driver.splits import plan_splits
from seglake.write.input.content import InputStore
from seglake.write.input.files import SourceFile, Split
from seglake.write.input.listing import find_inputs
from seglake.write.map.absent import NO_ROWS, absent_in
from seglake.write.rows.formats.registry import FORMATS
from seglake.write.rows.records import Extracted, extract
from seglake.write.rows.rows import REASON_TEXTS

_SPLITS = 5  # that the sample is taken from
_SPLIT_BYTES = 1 << 20  # read of a split for the sample, if it is part of a file
_FILES = 5  # described one by one
_TEXT = 200  # bytes that are shown of a key, a header or a value

Headers = list[tuple[str, str | None]]


class FileNote(NamedTuple):
    """One of the files; `packing` is "", a codec, "tar", or both."""

    path: str
    size_bytes: int
    packing: str


@dataclass(frozen=True)
class SampledRow:
    """A record, or a reject if it has a `reason`.

    `line` is 1-based, counted from the byte `start` of the file or from the member's beginning.
    `timestamp` is None if the record gets the time of the run, `partition` if the key is null and
    any partition may get the record. A reject has `path`, `start`, `line`, `reason`, and its raw
    bytes as `value`. Texts are cut at 200 bytes.
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


@dataclass(frozen=True)
class Checked:
    """The files of a pipeline, and a sample of their rows.

    `first_files` are the first of the `files`. `problems` are sentences about fields that no row of
    the sample's chunks has.
    """

    files: int
    size_bytes: int
    splits: int
    first_files: list[FileNote]
    left_out: list[str]
    rows: list[SampledRow]
    problems: list[str]

    @property
    def reasons(self) -> dict[str, int]:
        """The count of rejects in the sample for each reason."""
        return dict(Counter(row.reason for row in self.rows if row.reason))

    @property
    def exit_code(self) -> int:
        """0 if all sampled rows are records, 3 if some are rejected."""
        return 3 if self.reasons else 0

    def as_dict(self) -> dict[str, Any]:
        """The result as plain values."""
        first = [note._asdict() for note in self.first_files]
        return {**asdict(self), "first_files": first, "reasons": self.reasons}


def check(pipeline: Pipeline, sample: int) -> Checked:
    """Read `sample` rows from up to five places of the input, and say what they become.

    Raises ConfigError or InputError, as an ingest would.
    """
    if not pipeline.input.kind.in_files:
        raise ConfigError(
            f"input.format = {pipeline.input.format!r} has no files to check: "
            "seglake.ingest takes its rows"
        )
    pipeline = pipeline.for_run(pipeline.topic, time.time_ns() // 1_000_000)
    store = InputStore(pipeline.storage, pipeline.input.compression)
    found = find_inputs(pipeline.input, store)
    splits = plan_splits(found.files, store, pipeline)
    rows, problems = _sample(splits, store, pipeline, sample)
    return Checked(
        files=len(found.files),
        size_bytes=sum(file.size for file in found.files),
        splits=len(splits),
        first_files=[_note(file, store, pipeline) for file in found.files[:_FILES]],
        left_out=found.left_out,
        rows=rows,
        problems=problems,
    )


def _note(file: SourceFile, store: InputStore, pipeline: Pipeline) -> FileNote:
    packing = "" if pipeline.input.columnar else store.packing(file)
    return FileNote(file.path, file.size, packing)


def _sample(
    splits: Sequence[Split], store: InputStore, pipeline: Pipeline, sample: int
) -> tuple[list[SampledRow], list[str]]:
    """Rows from the beginning of splits that lie far apart, and the problems of all of them."""
    full = [split for split in splits if split.file.size]
    chosen = np.unique(np.linspace(0, len(full) - 1, min(len(full), _SPLITS)).astype(int)).tolist()
    rows: list[SampledRow] = []
    absent = NO_ROWS
    for left, number in zip(range(len(chosen), 0, -1), chosen, strict=True):
        wanted = len(rows) + -(-(sample - len(rows)) // left)
        for path, chunk, numbers in _chunks(full[number], store, pipeline):
            absent = absent.and_in(absent_in(chunk))
            found = _rows(chunk, numbers, path, full[number].start, pipeline)
            rows += islice(found, wanted - len(rows))
            if len(rows) >= wanted:
                break
    return rows, absent.sentences(pipeline)


def _chunks(
    split: Split, store: InputStore, pipeline: Pipeline
) -> Iterator[tuple[str, Extracted, list[int]]]:
    """The path, the records and rejects, and the line numbers (from 0) of all rows of a chunk."""
    if not (split.is_whole or pipeline.input.columnar):
        split = split._replace(end=min(split.end, split.start + _SPLIT_BYTES))
    current, line = split.file.path, 0
    for path, rows in FORMATS[pipeline.input.format].read(split, store, pipeline):
        line = line if path == current else 0
        current = path
        yield path, extract(rows, pipeline, path, line), (rows.numbers + line).tolist()
        line += rows.line_count


def _rows(
    chunk: Extracted, numbers: Sequence[int], path: str, start: int, pipeline: Pipeline
) -> Iterator[SampledRow]:
    """The rows of a chunk, in the order of the file."""
    rejects = dict(zip(chunk.rejects.lines.tolist(), range(len(chunk.rejects)), strict=True))
    partitions = chunk.partitions
    if partitions is None:
        partitions = partition_of(chunk.records.keys, pipeline.topic.partitions)
    record = 0
    for number in numbers:
        at = rejects.get(number)
        if at is None:
            known = chunk.partitions is not None or chunk.records.keys.lengths[record] >= 0
            partition = int(partitions[record]) if known else None
            yield _record(chunk.records, record, (path, start, number + 1), partition, pipeline)
            record += 1
        else:
            raw = _text(chunk.rejects.raw, at)
            yield SampledRow(
                path, start, number + 1, str(REASON_TEXTS[chunk.rejects.reasons[at]]), raw
            )


def _record(
    records: Records,
    at: int,
    where: tuple[str, int, int],
    partition: int | None,
    pipeline: Pipeline,
) -> SampledRow:
    by_run = pipeline.topic.message_timestamp_type == "LogAppendTime"
    headers: Headers = []
    if records.headers is not None:
        first, end = records.headers.firsts[at : at + 2].tolist()
        names, values = records.headers.keys, records.headers.values
        headers = [(_text(names, k) or "", _text(values, k)) for k in range(first, end)]
    return SampledRow(
        *where,
        reason="",
        value=_text(records.values, at),
        timestamp=None if by_run else int(records.timestamps[at]),
        key=_text(records.keys, at),
        partition=partition,
        headers=headers,
    )


def _text(spans: Spans, at: int) -> str | None:
    """The beginning of an item as text."""
    start, length = int(spans.starts[at]), int(spans.lengths[at])
    if length < 0:
        return None
    shown = bytes(spans.data[start : start + min(length, _TEXT)]).decode("utf-8", "replace")
    return shown + "…" if length > _TEXT else shown
