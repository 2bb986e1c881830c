"""Targets: everything that is read from input files, which anybody may have written."""

import bz2
import gzip
import io
import os
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from seglake.config import Pipeline, Timestamp
from seglake.errors import ConfigError, InputError
from seglake.format.records import Spans
from seglake.text import simd as bytescan
from seglake.times.readers import read_times
from seglake.times.time_kernels import MAX_MS, READ
from seglake.write.input.files import SourceFile, Split
from seglake.write.rows.records import ExtractedChunk
from tests.fuzz.targets import target
from tests.judges.json_lines import check
from tests.makers.files import pipeline
from tests.makers.inputs import chunks_of, splits_of

MOST_BYTES = 4 * 2**20  # that are read of what a small file unpacks to
_MEMORY = Path("/dev/shm")
_TEMPORARY = tempfile.TemporaryDirectory(
    prefix="seglake-fuzz-", dir=_MEMORY if _MEMORY.is_dir() else None
)
FILE = Path(_TEMPORARY.name, "file")

# ------------------------------------------------------------------ values


def _json() -> list[bytes]:
    return [
        b'{"a":1,"b":"x\\n\\u00e9\\ud83d\\ude00"}\n{"a":{"b":{"c":[1,2.5e-3,null,true]}}}\r\n\n{',
        '{"a.b":"é","é":-0.0,"":false}'.encode(),
        b'{"a":"\xff"}\n{"a":"' + b"x" * 70 + b'"}\n{"a":1}}\n{"a":01}',
        b'{"a":' + b"[" * 40 + b"]" * 40 + b"}",
    ]


@target(seeds=_json)
def json_lines(data: bytes) -> None:
    """Lines of JSON, against Python's json."""
    check(data.split(b"\n"))


FORMATS = (
    "epoch_s", "epoch_ms", "epoch_us", "epoch_ns", "iso8601", "%d/%b/%Y:%H:%M:%S %z",
    "%Y-%m-%d %H:%M:%S.%f", "%A %e %B %y %I:%M %p %Z", "%j %Y %T", "%b %d %R",
)  # fmt: skip
ZONES = ("UTC", "Europe/Berlin", "Pacific/Apia")
TIMES = [
    Timestamp.model_validate(
        {"field": "t", "format": form, "zone": zone, **({"year": 2026} if "%b %d" in form else {})}
    )
    for form in FORMATS
    for zone in ZONES
]


def _times() -> list[bytes]:
    said = {
        0: b"1700000000.5\x001e9\x00-1",
        3: b"1700000000123",
        12: b"2026-11-20T01:02:03.123+01:00\x002026-03-29 02:30",
        13: b"2026-03-29T02:30:00\x009999-12-31T23:59:60Z",
        15: b"20/Nov/2026:01:02:03 +0100",
        18: b"2026-11-20 01:02:03.123456",
        21: b"Friday 20 November 26 01:02 am UTC",
        24: b"366 2024 23:59:60",
        27: b"Feb 29 12:30",
    }
    return [bytes([number]) + text for number, text in said.items()]


@target(seeds=_times, max_bytes=200)
def times(data: bytes) -> None:
    """Texts of a format of times; what was read lies in the years that there are."""
    if not data:
        return
    items = data[1:].split(b"\0")
    buffer = bytescan.padded(len(data))
    buffer[: len(data)] = np.frombuffer(data, np.uint8)
    lengths = np.array([len(item) for item in items], np.int32)
    starts = 1 + np.cumsum(lengths + 1, dtype=np.int64) - lengths - 1
    form = TIMES[data[0] % len(TIMES)].time_format
    ms, codes, _ = read_times(Spans(buffer, starts, lengths), form)
    read = ms[codes == READ]
    assert np.all((read >= 0) & (read <= MAX_MS))


# ------------------------------------------------------------------ files


def _pipelines(form: str, *changes: dict[str, Any]) -> list[Pipeline]:
    sizes = {"split_bytes": 200, "chunk_bytes": 128}
    timed = {"timestamp": {"field": "t", "format": "epoch_ms"}, "key": {"fields": ["k"]}}
    return [pipeline(FILE, form, **{"task": sizes, **timed, **change}) for change in changes]


def _read(data: bytes, settings: Pipeline) -> list[tuple[Any, ...]]:
    """Every row of a file with this content, with the checks that any row must pass."""
    FILE.write_bytes(data)
    os.utime(FILE, (1, 1))
    file = SourceFile(str(FILE), len(data), 1000, None)
    rows: list[tuple[Any, ...]] = []
    try:
        for split in splits_of(settings, [file]):
            rows += _rows(split, settings)
    except ConfigError as error:  # of a file, nobody can be told to correct the settings
        raise AssertionError("a file cannot contradict settings") from error
    return rows


def _rows(split: Split, settings: Pipeline) -> Iterator[tuple[Any, ...]]:
    total = 0
    for found in chunks_of(split, settings):
        yield from _told(found)
        total += len(found.records.values.data)
        if total > MOST_BYTES:
            return


def _told(found: ExtractedChunk) -> Iterator[tuple[Any, ...]]:
    records, rejects = found.records, found.rejects
    assert records.timestamps.min(initial=0) >= -1
    assert records.timestamps.max(initial=0) <= MAX_MS
    assert found.row_count == len(records) + len(rejects) <= found.line_count + 1
    columns = (records.timestamps.tolist(), records.keys.tolist(), records.values.tolist())
    yield from zip(*columns, strict=True)
    yield from zip(rejects.reasons.tolist(), rejects.raw.tolist(), strict=True)
    if records.headers is not None:
        assert len(records.headers.keys.tolist()) == len(records.headers.values.tolist())


def _whole(settings: Pipeline) -> Pipeline:
    return settings.model_copy(
        update={"task": settings.task.model_copy(update={"split_bytes": 2**30})}
    )


def _cut_alike(data: bytes, settings: Pipeline) -> None:
    """However a file is divided among tasks, its rows are the same."""
    cut, whole = _read(data, settings), _read(data, _whole(settings))
    assert sorted(map(repr, cut)) == sorted(map(repr, whole))


LINES = _pipelines(
    "jsonl", {}, {"headers": {"fields": ["k", "x.y"]}, "value": {"from": "field", "field": "x"}}
)


def _line_files() -> list[bytes]:
    line = b'{"t":1700000000000,"k":"a","x":{"y":[1,"\\u00e9"]}}\n'
    made = [
        line * 5,
        b"\xef\xbb\xbf" + line,
        line * 2 + b"{" * 300 + b"\n" + line,
        b"\n\r\n" + line[:-1],
    ]
    return [mode + data for data in made for mode in (b"\0", b"\1")]


@target(InputError, seeds=_line_files, share=1)
def line_files(data: bytes) -> None:
    """A file of JSON lines, cut into chunks and splits."""
    if data:
        _cut_alike(data[1:], LINES[data[0] % len(LINES)])


CSVS = _pipelines(
    "csv", {}, {"input": {"multiline": True}, "value": {"from": "columns"}},
    {"input": {"delimiter": ";", "quote": "'"}, "value": {"from": "columns", "columns": ["k"]}},
)  # fmt: skip


def _csv_files() -> list[bytes]:
    made = b'k,t,x\na,1700000000000,"x, ""y"""\nb,5,\n\n"a\nb",6,z\n,,\n1,2\n"q"q,7,8'
    return [
        b"\0" + made,
        b"\1" + made,
        b"\2" + made.replace(b",", b";").replace(b'"', b"'"),
        b"\0k,t\r\na,1\r\n",
    ]


@target(InputError, seeds=_csv_files, share=1)
def csv_files(data: bytes) -> None:
    """A CSV file with its header."""
    if data:
        settings = CSVS[data[0] % len(CSVS)]
        _cut_alike(data[1:], settings)


TEXTS = _pipelines(
    "text",
    {
        "task": {"split_bytes": 400, "chunk_bytes": 256},
        "input": {"pattern": r"(?P<k>\S*) \[(?P<t>\d*)\] (?P<x>.*)"},
        "value": {"from": "columns"},
    },
)


def _text_files() -> list[bytes]:
    return [b"a [1700000000000] \xc3\xa9\n [5] x\n\xff [5]\nno\n" * 2, b"a [1] \n" * 30]


@target(InputError, seeds=_text_files, share=1)
def text_files(data: bytes) -> None:
    """Lines with a pattern."""
    _cut_alike(data, TEXTS[0])


EVENTS = _pipelines(
    "text",
    {
        "task": {"split_bytes": 50, "chunk_bytes": 128},
        "input": {
            "pattern": r"(?P<k>\S*) \[(?P<t>\d*)\](?P<x>(?s:.*))",
            "multiline_start_pattern": r"\S* \[",
            "multiline_max_lines": 5,
            "multiline_max_bytes": 63,
        },
        "value": {"from": "columns"},
    },
)


def _event_files() -> list[bytes]:
    made = b"a [1700000000000] x\n at y\n\n at z\r\n\r\nb [5]\n\xff [5]\n at\n"
    return [made * 3, b"\xef\xbb\xbf\n at\n" + made, made + b"\n at" * 40, b"\n" * 99 + made]


@target(InputError, seeds=_event_files, share=1)
def event_files(data: bytes) -> None:
    """Events of several lines."""
    _cut_alike(data, EVENTS[0])


PACKED = _pipelines("jsonl", {"headers": {"source": True}}, {})
BARE = _pipelines(
    "jsonl",
    {"input": {"compression": "gzip"}},
    {"input": {"compression": "bz2"}},
    {"input": {"compression": "zstd"}},
)


def _tar(form: int, name: str) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form, bufsize=512) as archive:
        for number in range(2):
            member = tarfile.TarInfo(f"{name}{number}")
            member.size = 22
            archive.addfile(member, io.BytesIO(b'{"t":1,"k":"a","x":1}\n'))
    return out.getvalue()[:4096]


def _packed_files() -> list[bytes]:
    text = b'{"t":1700000000000,"k":"a","x":1}\n' * 6
    packed = [
        gzip.compress(text),
        bz2.compress(text),
        zstandard.compress(text),
        gzip.compress(text[:3]) * 2,
    ]
    tars = [
        _tar(tarfile.USTAR_FORMAT, "a"),
        _tar(tarfile.GNU_FORMAT, "n" * 120),
        _tar(tarfile.PAX_FORMAT, "é" * 90),
    ]
    made = [*packed, *tars, gzip.compress(tars[0])]
    return [bytes([number % 5]) + data for number, data in enumerate(made)] + [
        b"\0" + data for data in made
    ]


@target(InputError, seeds=_packed_files, max_bytes=5_000, share=1)
def packed_files(data: bytes) -> None:
    """A compressed file or an archive, recognised or named by the settings."""
    if data:
        _read(data[1:], (PACKED + BARE)[data[0] % 5])


ROWS = _pipelines("parquet", {"value": {"from": "columns"}})


def _parquet_files() -> list[bytes]:
    columns: dict[str, Any] = {
        "t": pa.array([1700000000000, 5, None]), "k": pa.array(["a", None, "é"]),
        "n": pa.array([[1, 2], None, []]), "s": pa.array([{"a": 1.5}, {"a": None}, None]),
    }  # fmt: skip
    made = []
    for options in ({"compression": "none"}, {"compression": "zstd", "use_dictionary": False}):
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table(columns), sink, store_schema=False, **options)
        made.append(sink.getvalue().to_pybytes())
    return made


@target(InputError, seeds=_parquet_files, max_bytes=4_000, share=1)
def parquet_files(data: bytes) -> None:
    """A Parquet file of events."""
    _read(data, ROWS[0])
