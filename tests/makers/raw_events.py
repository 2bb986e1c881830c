"""Raw input for ingests, and what must come of it: read again here with `json` and `sorted` alone.

Every good line holds a number of its own, so that a record in a log can be traced to its line.
"""

import bz2
import gzip
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import zstandard
from hypothesis import strategies as st

import seglake
from seglake.catalog.quarantine.table import QuarantineTable
from seglake.catalog.schema import SegmentRow
from seglake.config import Pipeline
from seglake.engine import LocalEngine
from seglake.write.driver.report import Report
from seglake.write.driver.run import DeclaredRun, ingest_files
from tests.judges.kafka_model import read_log
from tests.makers.lakes import open_catalog
from tests.makers.murmur2 import murmur2

T = 1_700_000_000_000
TINY = {  # every file is cut, blobs overlap, and log partitions have several pieces
    "split_bytes": 600, "chunk_bytes": 300, "blob_bytes": 130, "merge_bytes": 400,
    "piece_bytes": 900,
}  # fmt: skip
PACKED: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".zst": zstandard.compress,
}
UNPACKED: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.decompress,
    ".bz2": bz2.decompress,
    ".zst": zstandard.decompress,
}


class Line(NamedTuple):
    """A line to write: an event, or, where `broken`, that text instead of it."""

    timestamp: int
    key: str | None = None
    partition: int = 0
    broken: str | None = None


class Told(NamedTuple):
    """A good line as it was read back, with its place in the order of arrival."""

    timestamp: int
    key: bytes | None
    value: bytes
    partition: int
    place: tuple[str, int]


class Reject(NamedTuple):
    """A bad line; the number counts from 1."""

    path: str
    number: int
    raw: bytes


class Stored(NamedTuple):
    """A record of a log."""

    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None


# ------------------------------------------------------------------ input

_BROKEN = st.sampled_from(["{", '{"n":1}', '{"ts":"soon"}', "no json", '{"ts":-5}'])
_TIMES = st.one_of(
    st.integers(T, T + 30), st.integers(T, T + 10**6), st.sampled_from([0, T, T + 10**12])
)


def lines(keys: Sequence[str | None] = (None, "", "a", "b", "käse", "hot")) -> st.SearchStrategy:
    """Lines with late, equal and far times; one in ten is broken, some are empty."""
    good = st.builds(Line, _TIMES, st.sampled_from(keys), st.integers(0, 2), st.none())
    bad = st.builds(Line, st.just(0), broken=_BROKEN | st.just(""))
    return st.integers(0, 9).flatmap(lambda roll: good if roll else bad)


def file_lists(max_files: int = 3, max_lines: int = 40) -> st.SearchStrategy:
    """Lines of several files, and how each is packed."""
    packing = st.sampled_from(["", "", "", *UNPACKED])
    one = st.tuples(st.lists(lines(), max_size=max_lines), packing)
    return st.lists(one, min_size=1, max_size=max_files)


def write_file(path: Path, content: Iterable[Line]) -> Path:
    """A file of JSON lines, packed as its name says."""
    text, name = [], f"{path.parent.name}/{path.name}"  # runs have files of the same name
    for number, line in enumerate(content):
        event = {"ts": line.timestamp, "p": line.partition, "n": f"{name}:{number}"}
        if line.key is not None:
            event["k"] = line.key
        text.append(json.dumps(event, ensure_ascii=False) if line.broken is None else line.broken)
    data = "".join(f"{each}\n" for each in text).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(PACKED[path.suffix if path.suffix in PACKED else ""](data))
    return path


def write_files(folder: Path, files: Iterable[tuple[Sequence[Line], str]]) -> list[Path]:
    """Files named in the order in which they are given."""
    return [
        write_file(folder / f"{number:03}.jsonl{packing}", content)
        for number, (content, packing) in enumerate(files)
    ]


def pipeline_of(root: Path | str, paths: Any, **changes: Any) -> Pipeline:
    """A pipeline over such files; `changes` has tables, or keys of [pipeline]."""
    tables: dict[str, Any] = {
        "name": "test", "root": str(root), "max_quarantine_ratio": 1.0,
        "input": {"format": "jsonl"},
        "timestamp": {"field": "ts", "format": "epoch_ms", "allow_1970": True},
        "key": {"fields": ["k"]},
        "topic": {"name": "events", "partitions": 3},
    }  # fmt: skip
    for name, change in changes.items():
        old = tables.get(name)
        tables[name] = {**old, **change} if isinstance(old, dict) else change
    given = [paths] if isinstance(paths, str | Path) else paths
    tables["input"] = {**tables["input"], "paths": [str(path) for path in given]}
    return Pipeline.model_validate(tables)


def write_settings(
    path: Path, root: object, paths: object, topic: str = "events", /, **changes: Mapping[str, Any]
) -> Path:
    """Write the settings of a pipeline over JSON lines; `changes` has tables, or keys of them."""
    tables: dict[str, dict[str, Any]] = {
        "pipeline": {"root": str(root)},
        "input": {"paths": [str(paths)], "format": "jsonl"},
        "timestamp": {"field": "ts", "format": "epoch_ms"},
        "topic": {"name": topic},
    }
    lines = list[str]()
    for name in {**tables, **changes}:
        lines.append(f"[{name}]")
        for key, value in {**tables.get(name, {}), **changes.get(name, {})}.items():
            spelled = key if key.isidentifier() else json.dumps(key)
            lines += [f"{spelled} = {json.dumps(value)}"] * (value is not None)
    path.write_text("\n".join([*lines, ""]))
    return path


def ingest(pipeline: Pipeline, run_id: str = "1", interval: Any = None) -> Report:
    """One run, in this process, without a word."""
    return ingest_files(LocalEngine(), pipeline, DeclaredRun(run_id, interval))


# ------------------------------------------------------------------ the model


def read_back(paths: Iterable[Path]) -> tuple[list[Told], list[Reject]]:
    """What the files hold, line by line."""
    good, bad = [], []
    for path in sorted(paths):
        data = UNPACKED.get(path.suffix, bytes)(path.read_bytes())
        for number, raw in enumerate(data.split(b"\n")[:-1], 1):
            if not raw:
                continue
            told = _told(raw, (str(path), number))
            if told is None:
                bad.append(Reject(str(path), number, raw))
            else:
                good.append(told)
    return good, bad


def _told(raw: bytes, place: tuple[str, int]) -> Told | None:
    try:
        event = json.loads(raw)
    except ValueError:
        return None
    time = event.get("ts") if isinstance(event, dict) else None
    if not isinstance(time, int) or time < 0:
        return None
    key = event.get("k")
    return Told(time, None if key is None else key.encode(), raw, event["p"], place)


# ------------------------------------------------------------------ what a lake holds


def read_lake(root: Path | str, topic: str = "events") -> dict[int, list[Stored]]:
    """The records of each partition, as a reader gets them."""
    log = seglake.open(str(root)).topic(topic)
    starts, ends = log.beginning_offsets(), log.end_offsets()
    found: dict[int, list[Stored]] = {partition: [] for partition in ends}
    names = ["partition", "offset", "timestamp", "timestamp_type", "key", "value"]
    plan = log.plan_offsets({p: (starts[p], ends[p]) for p in ends}, columns=names)
    for batch in plan.execute():
        times = batch["timestamp"].cast(pa.int64()).to_pylist()
        columns = [times if n == "timestamp" else batch[n].to_pylist() for n in names]
        for row in zip(*columns, strict=True):
            found[row[0]].append(Stored(*row))
    return found


def segments_of(root: Path | str, topic: str = "events") -> list[SegmentRow]:
    """The catalog's rows, in the order of the log."""
    catalog = open_catalog(str(root))
    return catalog.rows.segments(catalog.snapshot(), topic)


def read_raw(root: Path | str, topic: str = "events") -> dict[int, list[Stored]]:
    """The records of each partition, decoded from the .log files without any code under test."""
    found: dict[int, list[Stored]] = {}
    for row in segments_of(root, topic):
        records = read_log((Path(root) / row.key("log")).read_bytes())
        offsets = range(row.base_offset, row.end_offset) if row.record_count else ()
        assert [each.offset for each in records] == list(offsets)
        found.setdefault(row.partition, []).extend(
            Stored(row.partition, offset, r.timestamp, kind, r.key, r.value)
            for offset, kind, r in records
        )
    return found


def quarantined(root: Path | str, topic: str = "events") -> list[Reject]:
    """The rows of committed runs."""
    catalog = open_catalog(str(root))
    attempts = [run.attempt_id for run in catalog.rows.runs(catalog.snapshot(), topic)]
    tables = QuarantineTable(catalog.store).read(topic, attempts)
    names = ("source_file", "line", "raw")
    return sorted(
        Reject(*row) for t in tables for row in zip(*(t[n].to_pylist() for n in names), strict=True)
    )


def assert_holds(
    found: dict[int, list[Stored]], pipeline: Pipeline, runs: Sequence[Sequence[Path]]
) -> None:
    """The log is what the files of these runs give: all of it, once, in the promised order."""
    stamped = pipeline.topic.message_timestamp_type == "LogAppendTime"
    places = {record.value: record.partition for log in found.values() for record in log}
    wanted: dict[int, list[Told]] = {
        partition: [] for partition in range(pipeline.topic.partitions)
    }
    for paths in runs:
        told = read_back(paths)[0]
        missing = [each.value for each in told if each.value not in places]
        assert not missing, f"lost: {missing[:3]}"
        for each in sorted(told, key=lambda t: (t.timestamp * (pipeline.order == "time"), t.place)):
            wanted[_partition(each, pipeline, places)].append(each)
    for partition, expected in wanted.items():
        log = found.get(partition, [])
        assert [record.offset for record in log] == list(range(len(expected)))
        assert [(r.key, r.value) for r in log] == [(t.key, t.value) for t in expected]
        assert {record.timestamp_type for record in log} <= {int(stamped)}
        times = [record.timestamp for record in log]
        assert times == (sorted(times) if stamped else [told.timestamp for told in expected])


def _partition(told: Told, pipeline: Pipeline, places: dict[bytes | None, int]) -> int:
    if pipeline.topic.partition_field:
        return told.partition
    if told.key is not None:
        return murmur2(told.key) % pipeline.topic.partitions
    return places[told.value]  # anywhere: that it is the same again is tested apart
