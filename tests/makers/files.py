"""Pipelines over a folder of test files, and everything that reading one gives, as plain Python."""

import itertools
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from seglake.config import Pipeline
from seglake.text.simd import padded
from seglake.write.rows.lines import LineChunk
from seglake.write.rows.records import RowLimits
from seglake.write.rows.rows import REASON_TEXTS
from tests.makers.inputs import UNLIMITED, chunks_of, splits_of


class Row(NamedTuple):
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()


class Reject(NamedTuple):
    line: int
    reason: str
    raw: bytes


class Result(NamedTuple):
    rows: list[Row]
    rejects: list[Reject]
    partitions: list[int]
    chunks: int
    comments: int = 0


def pipeline(paths: str | Path | list[str], form: str = "jsonl", **tables: Any) -> Pipeline:
    """Settings over `paths`: without a timestamp unless a table says where it stands."""
    named = (
        [paths] if isinstance(paths, str) else paths if isinstance(paths, list) else [str(paths)]
    )
    timed = "timestamp" in tables
    clock = {} if timed else {"message.timestamp.type": "LogAppendTime"}
    return Pipeline.model_validate(
        {
            "name": "test",
            "root": "lake",
            "order": "time" if timed else "arrival",
            **tables,
            "input": {"paths": named, "format": form, **tables.get("input", {})},
            "topic": {"name": "test", **clock, **tables.get("topic", {})},
        }
    )


def read(settings: Pipeline, limits: RowLimits = UNLIMITED) -> Result:
    """Every row of every input, with line numbers counted over the splits of a file."""
    rows: list[Row] = []
    rejects: list[Reject] = []
    partitions: list[int] = []
    path, first, chunks, comments = "", 0, 0, 0
    for split in splits_of(settings):
        first = first if split.file.path == path else 0
        path, lines = split.file.path, 0
        for found in chunks_of(split, settings, limits):
            assert found.row_count == len(found.records) + len(found.rejects)
            rows += _rows(found.records)
            bad = found.rejects
            raw = [item or b"" for item in bad.raw.tolist()]
            reasons = REASON_TEXTS[bad.reasons].tolist()
            places = zip((bad.lines + first).tolist(), reasons, raw, strict=True)
            rejects += [Reject(*place) for place in places]
            partitions += [] if found.partitions is None else found.partitions.tolist()
            lines += found.line_count
            comments += found.comment_lines
            chunks += 1
        first += lines
    return Result(rows, rejects, partitions, chunks, comments)


def _rows(records: Any) -> list[Row]:
    columns = (records.timestamps.tolist(), records.keys.tolist(), records.values.tolist())
    plain = [Row(*cells) for cells in zip(*columns, strict=True)]
    if records.headers is None:
        return plain
    pairs = list(zip(records.headers.keys.tolist(), records.headers.values.tolist(), strict=True))
    bounds = records.headers.firsts.tolist()
    spans = itertools.pairwise(bounds)
    return [
        row._replace(headers=tuple(pairs[a:b])) for row, (a, b) in zip(plain, spans, strict=True)
    ]


def read_bytes(data: bytes, form: str = "jsonl", name: str = "file", **tables: Any) -> Result:
    """What comes out of one file with the content `data`."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_bytes(data)
        return read(pipeline(path, form, **tables))


def chunk(data: bytes) -> LineChunk:
    """The lines of `data` as one chunk."""
    buffer = padded(len(data))
    buffer[: len(data)] = np.frombuffer(data, np.uint8)
    return LineChunk(buffer, 0, len(data), too_long=False)
