"""Compile every kernel once, so that a user's first command does not wait for it.

numba compiles a kernel once and caches it next to the source, or in the user's cache if that folder
is read-only. `python -m seglake.warm` ingests a few events of each input format, then searches,
reads, prints, rewrites and compacts them. No JVM starts.
"""

import _thread
import gc
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from seglake.catalog.table import CatalogTable
from seglake.catalog.topic_change import Change
from seglake.cli.record_formats import json_lines
from seglake.cli.terminal.progress import display
from seglake.compile import cache, fallback
from seglake.config import Pipeline
from seglake.engine import LocalEngine
from seglake.errors import ConfigError, QuarantineLimit
from seglake.format.value_format import JSON, value_format_of
from seglake.infer.pipeline import infer_pipeline
from seglake.layout import new_attempt
from seglake.log.rewrite.keep import ExcludeKeys, KeepOffsets, RecordFilter
from seglake.log.rewrite.segments import RewriteTarget, rewrite
from seglake.maintain.compaction.compact import compact
from seglake.read.field_list import listed
from seglake.read.fields import Fields
from seglake.read.lake import open as open_lake
from seglake.read.where import Where
from seglake.store import open_store
from seglake.text.value_fields import field_finder
from seglake.write.driver.redrive import redrive
from seglake.write.driver.run import DeclaredRun, ingest_files

START_MS = 1_700_000_000_000
EVENTS = 300
LINES = {
    "jsonl": '{{"ts":{1},"user":"u\\u00e9{0}","path":"/a b","n":{{"m":[1,2.5e3,null]}}}}\n',
    "csv": '2026-11-20T01:{2:02}:00Z,"u ""é{0}",{3}\n',
    "text": "u{0} [20/Nov/2026:01:02:{2:02} +0000] GET\n",
}

Settings = dict[str, Any]  # tables of a pipeline file


def main(progress: Callable[[int, int], None] = lambda _done, _total: None) -> None:
    """Compile all kernels with a few events of each input format in a temporary lake.

    After each kernel, `progress` is called with the numbers of compiled kernels and of all kernels.
    """
    os.environ[fallback.WAITS] = "wait"
    with tempfile.TemporaryDirectory(prefix="seglake-warm-") as name, _watched(progress):
        folder = Path(name)
        with fallback.long_way():  # the code that small work runs until all kernels are compiled
            _round_trip(folder / "lake", {**_parquet_settings(folder), "order": "arrival"})
        for number, settings in enumerate(_pipelines(folder)):
            for order in ("time", "arrival"):
                _round_trip(folder / f"lake-{number}-{order}", {**settings, "order": order})
        _round_trip(folder / "lake-offsets", _with_offsets(folder))
        _without_a_lake(folder)


def _without_a_lake(folder: Path) -> None:
    """Run the steps that need only the files of `_pipelines`, and no lake."""
    _fields()
    for form in ("jsonl", "csv"):
        infer_pipeline([str(folder / form)])


@contextmanager
def _second_process() -> Iterator[None]:
    """During the block, compile the kernels that need no lake (a third) in another process."""
    with subprocess.Popen(
        [sys.executable, "-m", "seglake.warm", "--second"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        try:
            yield
        except BaseException:
            process.kill()
            raise


@contextmanager
def _watched(progress: Callable[[int, int], None]) -> Iterator[None]:
    """Report the number of compiled kernels after each kernel in the block, and all at the end."""
    modules = [module for name, module in sys.modules.items() if name.startswith("seglake.")]
    values = [value for module in modules for value in vars(module).values()]
    kernels = {id(value): value for value in values if hasattr(value, "py_func")}

    def tell() -> None:
        progress(sum(bool(kernel.signatures) for kernel in kernels.values()), len(kernels))

    cache.WATCHERS.append(tell)
    tell()
    yield
    cache.WATCHERS.remove(tell)
    progress(len(kernels), len(kernels))


def _pipelines(folder: Path) -> Iterator[Settings]:
    """Yield settings for a small file of each format. Together they use every kernel of ingest."""
    user = {"key": {"fields": ["user"]}}
    headers = {"headers": {"fields": ["user"], "source": True}}
    columns = {"value": {"from": "columns"}}
    cut = {"task": {"split_bytes": 6000, "chunk_bytes": 3000}}
    pattern = {"pattern": r"(?P<user>\S+) \[(?P<ts>[^\]]+)\]", "multiline_start_pattern": r"\S+ \["}
    jsonl = {**_input(folder, "jsonl"), **_time("epoch_ms")}
    yield {**jsonl, **user, **headers, **cut}
    events = {"records": "a[].b[]", "inherit": ["c"]}
    (folder / "documents").write_text('{"a":[{"c":1,"b":[{"ts":1700000000000}]}]}\n' * EVENTS)
    documents = {"paths": [str(folder / "documents")], "format": "jsonl", **events}
    yield {**_time("epoch_ms"), "input": documents}
    csv = {**_input(folder, "csv"), **_time("iso8601"), **columns}
    topic = {"partition_field": "p", "compression.type": "lz4"}  # the others: zstd
    yield {**csv, "topic": topic, "key": {"fields": ["user", "p"]}}
    yield {**_input(folder, "text", pattern), **_time("%d/%b/%Y:%H:%M:%S %z"), **user}
    parquet = _parquet_settings(folder)
    yield {**parquet, **user, **columns, **headers}  # some keys are null: compaction drops these
    yield {**parquet, "value": {"from": "field", "field": "raw"}}


def _input(folder: Path, form: str, settings: Settings | None = None) -> Settings:
    """Write a file of lines, the last of them malformed. Return its `input` settings."""
    rows = ((i, START_MS + 7 * i, i % 60, i % 2) for i in range(EVENTS))
    path, heading = folder / form, "ts,user,p\n" if form == "csv" else ""
    path.write_text(heading + "".join(LINES[form].format(*row) for row in rows) + "broken\n")
    return {"input": {"paths": [str(path)], "format": form, **(settings or {})}}


def _parquet_settings(folder: Path) -> Settings:
    path, numbers = folder / "parquet", range(EVENTS)
    times = pa.array([START_MS + 7 * i for i in numbers], pa.timestamp("ms"))
    user = [f"é{i}" if i % 3 else None for i in numbers]
    columns: dict[str, Any] = {"ts": times, "user": user}
    columns |= {"raw": [b"\xff"] * EVENTS, "list": [[1.5, None]] * EVENTS}
    pq.write_table(pa.table(columns), path)
    return {"input": {"paths": [str(path)], "format": "parquet"}, "timestamp": {"field": "ts"}}


def _with_offsets(folder: Path) -> Settings:
    """Return settings for records that keep their offsets, with their headers in one column."""
    numbers = range(EVENTS)
    header = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    columns: dict[str, Any] = {
        "ts": pa.array([START_MS + 7 * i for i in numbers], pa.timestamp("ms")),
        "p": [i % 2 for i in numbers], "o": [i // 2 + 50 * (i > 203) for i in numbers],
        "k": [b"k" if i % 3 else None for i in numbers], "kind": [i // 9 % 2 for i in numbers],
        "h": pa.array([[{"key": "a", "value": None}]] * EVENTS, header),
    }  # fmt: skip
    path = folder / "offsets.parquet"
    pq.write_table(pa.table(columns), path)
    return {
        "input": {"paths": [str(path)], "format": "parquet"}, "order": "arrival",
        "timestamp": {"field": "ts", "type_field": "kind"}, "headers": {"array_field": "h"},
        "key": {"fields": ["k"]}, "value": {"from": "field", "field": "k"},
        "topic": {"partition_field": "p", "offset_field": "o"},
    }  # fmt: skip


def _time(form: str) -> Settings:
    return {"timestamp": {"field": "ts", "format": form}}


def _round_trip(root: Path, settings: Settings) -> None:
    topic = {"name": "warm", "partitions": 2, "batch.size": 2048, "index.keys": True}
    topic |= settings.get("topic", {})
    tables = {**settings, "name": "warm", "root": str(root), "topic": topic}
    tables["max_quarantine_ratio"] = 0.5
    pipeline = Pipeline.model_validate(tables)
    ingest_files(LocalEngine(), pipeline, DeclaredRun("warm"))
    with suppress(QuarantineLimit, ConfigError):  # rejected again; no redrive with kept offsets
        redrive(LocalEngine(), pipeline, "warm")
    log, keys = open_lake(str(root)).topic("warm"), list[str | bytes](["u0"])
    for partition, end in log.end_offsets().items():
        if end:
            middle = log.record_at(partition, end // 2)
            keys += filter(None, [middle.key])
            log.offsets_for_times({partition: middle.timestamp})
            for _ in range(4):  # read, read again, put into the cache, read from the cache
                log.read_range(middle.timestamp, middle.timestamp + 1000).read_all()
    for batch in log.read_range(None, None, order="time"):
        json_lines(batch)
    log.find(keys=keys).read_all()  # finds some records, also with headers
    _rewrite(root)
    _compact(root)


def _fields() -> None:
    """Read fields of values as columns, and compare them with conditions."""
    values: Any = pa.array([b'{"n":[1,"x"],"t":"\\u00e9"}', b'{"n":200.5}'], pa.binary())
    csv = value_format_of({"value.format": "csv", "value.columns": ["n", "t"]})
    text = value_format_of({"value.format": "text", "value.pattern": "(?P<n>.*)"})
    for form in (JSON, csv, text):
        Fields({"n": "int64", "t": "string"}).read(values, field_finder(form, ["n", "t"]))
        where = Where({"n": [1, "x"]}, None, form)
        where.mask(pa.record_batch([values], ["value"]))
        assert where.sought  # noqa: S101  # the hashes of numbers, as in key indexes
    listed([b'{"t":"2026-01-01T00:00:00Z"}'], JSON)


def _compact(root: Path) -> None:
    """Compact the topic twice. In the second pass, tombstones have a delete horizon."""
    table = CatalogTable.open(open_store(str(root)))
    base = table.snapshot()
    row = base.topic("warm")
    row = replace(row, sequence=row.sequence + 1, settings='{"cleanup.policy": "compact"}')
    table.commits.make(Change([row]), topic="warm", base=base, attempt_id=new_attempt())
    for _ in range(2):
        compact(str(root), "warm", force=True)


def _rewrite(root: Path) -> None:
    """Rewrite the segments with joined batches, like a merge, and without some records."""
    table = CatalogTable.open(open_store(str(root)))
    for row in table.rows.segments(table.snapshot(), "warm"):
        some = KeepOffsets.from_bitmaps([(row.base_offset, b"\x77" * (EVENTS // 8))])
        for keep in (RecordFilter(), ExcludeKeys.from_keys([b"u0"]), some):
            for batch_bytes in (None, 2**14):
                target = RewriteTarget(new_attempt(), batch_bytes=batch_bytes)
                rewrite(table.store, [row], keep, target)


def _in_second_process() -> None:
    """Compile the kernels that need no lake, see `_second_process`."""
    os.environ[fallback.WAITS] = "wait"
    with tempfile.TemporaryDirectory(prefix="seglake-warm-") as name:
        deque(_pipelines(Path(name)), 0)
        _without_a_lake(Path(name))


def _stop_without_package() -> None:
    """Interrupt this process repeatedly as soon as its package is deleted, until it ends."""
    while True:
        time.sleep(0.5)
        if not cache.is_installed():
            _thread.interrupt_main()


if __name__ == "__main__":
    # With the default thresholds, the garbage collector takes a seventh of the time of numba.
    gc.set_threshold(50_000, 20, 50)
    # Other processes do not wait for this process, see `seglake.compile.fallback`.
    if "--beside" in sys.argv:
        os.nice(10)
        threading.Thread(target=_stop_without_package, daemon=True).start()
        main()
    elif "--second" in sys.argv:
        _in_second_process()
    else:
        with _second_process(), display("compiling kernels", unit="kernels") as shown:
            main(shown.amount)
