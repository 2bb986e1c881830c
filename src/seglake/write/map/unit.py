"""Units: the numbered pieces of input that the map side reads, and the blobs that come out of one.

A unit is a run of consecutive splits of about `task.split_bytes`; many small files share one. Units
are a function of the frozen input list and the settings. `blobs_of_unit` is the whole map side of a
unit: read, extract, cut; and at the end one summary with the line count of each split, so that the
driver can turn line numbers within a split into line numbers of the file, with the reasons of
rejected rows, and with how late the events came.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from seglake.config import Pipeline
from seglake.errors import SeglakeError
from seglake.format.records import concatenate
from seglake.write.driver.inputs import require_unchanged
from seglake.write.input.listing import Split
from seglake.write.map.lateness import Arrivals, latest
from seglake.write.map.sort import Cutter
from seglake.write.rows.records import Extracted, Rejects, read_split
from seglake.write.spool.blob import REJECTS, SUMMARY, Blob

_REJECT_COLUMNS: dict[str, pa.DataType] = {
    "split": pa.int64(),
    "line": pa.int64(),
    "reason": pa.string(),
    "raw": pa.binary(),
}
REJECT_SCHEMA = pa.schema(_REJECT_COLUMNS)


class Unit(NamedTuple):
    """Consecutive splits, numbered in the order of the frozen input list."""

    number: int
    splits: tuple[Split, ...]

    @property
    def size_bytes(self) -> int:
        """Stored bytes of the unit's splits; row groups of Parquet count as they are."""
        return sum(_share(split) for split in self.splits)


def _share(split: Split) -> int:
    return min(split.end - split.start, split.file.size)


def group_splits(splits: list[Split], max_bytes: int) -> list[Unit]:
    """Consecutive splits in units of at most `max_bytes`, one split at least."""
    units: list[list[Split]] = []
    room = 0
    for split in splits:
        size = _share(split) + 1024  # a file costs something even when it is empty
        if size > room:
            units.append([])
            room = max_bytes
        units[-1].append(split)
        room -= size
    return [Unit(number, tuple(members)) for number, members in enumerate(units)]


def blobs_of_unit(unit: Unit, pipeline: Pipeline, append_time_ms: int) -> Iterator[Blob]:
    """Everything that the unit sends to the next stage."""
    merged = pipeline.order == "time"
    cutter = Cutter(pipeline, unit.number, append_time_ms, merged=merged)
    summary = Summary()
    for chunks in _gather(unit, pipeline, summary):
        full = [chunk for _, chunk in chunks if len(chunk.records)]
        if full:
            records = full[0].records if len(full) == 1 else concatenate([c.records for c in full])
            given = [chunk.partitions for chunk in full if chunk.partitions is not None]
            yield from cutter.cut(records, np.concatenate(given) if given else None)
        for number, chunk in chunks:
            if len(chunk.rejects):
                yield reject_blob(unit.number, number, chunk.rejects)
    yield summary.blob(unit.number, cutter.arrivals)


class SplitCount(NamedTuple):
    """How much of a file one split holds: lines, and rows among them."""

    lines: int
    rows: int


class Summary:
    """What the driver has to know of a unit beside its blobs."""

    def __init__(self) -> None:
        self._splits: dict[int, SplitCount] = {}
        self._reasons: Counter[str] = Counter()

    def begin(self, split: int) -> None:
        """Count a split, even if nothing is in it."""
        self._splits[split] = SplitCount(0, 0)

    def add(self, split: int, chunk: Extracted) -> None:
        """Count a chunk of a split that was begun."""
        lines, counted = self._splits[split]
        self._splits[split] = SplitCount(lines + chunk.line_count, counted + chunk.row_count)
        reasons, counts = np.unique(chunk.rejects.reasons, return_counts=True)
        self._reasons.update(dict(zip(reasons.tolist(), counts.tolist(), strict=True)))

    def blob(self, unit: int, arrivals: Arrivals | None = None) -> Blob:
        """The summary, on its way to the driver; `arrivals` where there is an order of arrival."""
        noted = None if arrivals is None else arrivals.noted()
        counted = {"splits": self._splits, "reasons": self._reasons}
        return Blob(SUMMARY, unit, counts=json.dumps({**counted, "unit": unit, "arrivals": noted}))


class Summarised(NamedTuple):
    """What the summaries of all units say together.

    The counts of every split, how many rows were rejected for each reason, and the lateness of the
    latest event, which is None where there is no order of arrival.
    """

    splits: dict[int, SplitCount]
    reasons: dict[str, int]
    max_lateness_ms: int | None


def summarised(texts: list[Any]) -> Summarised:
    """The summaries of all units, in any order, together."""
    splits: dict[int, SplitCount] = {}
    reasons: Counter[str] = Counter()
    summaries = sorted(map(json.loads, texts), key=lambda summary: int(summary["unit"]))
    for summary in summaries:
        splits |= {int(number): SplitCount(*counts) for number, counts in summary["splits"].items()}
        reasons.update(summary["reasons"])
    arrivals = [summary["arrivals"] for summary in summaries]
    lateness = None if None in arrivals else latest(arrivals)
    return Summarised(splits, dict(sorted(reasons.items())), lateness)


def _gather(
    unit: Unit, pipeline: Pipeline, summary: Summary
) -> Iterator[list[tuple[int, Extracted]]]:
    """Chunks of the unit's splits with their split numbers, small ones together."""
    gathered: list[tuple[int, Extracted]] = []
    size = 0
    for split in unit.splits:
        summary.begin(split.number)
        for chunk in _as_listed(split, pipeline):
            summary.add(split.number, chunk)
            gathered.append((split.number, chunk))
            size += _held_bytes(chunk)
            if size >= pipeline.task.chunk_bytes // 2:
                yield gathered
                gathered, size = [], 0
    if gathered:
        yield gathered


def _held_bytes(chunk: Extracted) -> int:
    """What the buffers of a chunk take, each counted once."""
    records, rejects = chunk.records, chunk.rejects
    spans = [records.keys, records.values, rejects.raw]
    spans += [records.headers.values] if records.headers else []
    return sum({id(each.data): len(each.data) for each in spans}.values())


def _as_listed(split: Split, pipeline: Pipeline) -> Iterator[Extracted]:
    """The chunks of a split; InputError unless the file is the one that was listed to the last."""
    try:
        yield from read_split(split, pipeline)
    except SeglakeError:
        require_unchanged(split.file, pipeline)  # or that is what is wrong
        raise
    require_unchanged(split.file, pipeline)


def reject_blob(unit: int, split: int, rejects: Rejects) -> Blob:
    """Rejected rows of one split."""
    table = pa.RecordBatch.from_arrays(
        [
            pa.array(np.full(len(rejects), split)),
            pa.array(rejects.lines),
            pa.array(rejects.reasons, pa.string()),
            pa.array(rejects.raw.tolist(), pa.binary()),
        ],
        schema=REJECT_SCHEMA,
    )
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, REJECT_SCHEMA, options=options) as stream:
        stream.write_batch(table)
    data = sink.getvalue().to_pybytes()
    return Blob(REJECTS, unit, data, records=len(rejects), size_bytes=len(data))
