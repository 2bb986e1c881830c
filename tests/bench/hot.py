"""Hot inputs: one key, one archive, one record, very many files or keys; their time and memory."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import seglake
from tests.bench.events import Int64s, numbers_in
from tests.bench.measure import Goal, Section, Table, say, timed
from tests.bench.memory import Peaks, watched
from tests.bench.workbench import TOPIC, Sizes, Workbench, require

MIB = 2**20
START_MS = 1_780_272_000_000
BLOCK = 1 << 16  # lines that are made at once
LATE_MS = 2000
WORKER_BYTES = 512 * MIB  # what docs/deployment.md says a Python worker may take
WINDOWS, WINDOW_MS = 5, 1000
PARTITIONS = 4
COLUMNS = ["input, MB", "log, MB", "records", "s", "MB of input per s"]
COLUMNS += ["MiB of a Python worker at most", "of the driver"]

_TEXT = """\
Each input is ingested by `jobs/ingest.py` in a process of its own, with Spark on all cores of this
machine, `order = "time"` and default settings, except that the record of {record:,.0f} MB has
`max.message.bytes` and `task.chunk_bytes` of twice as much. Events come one millisecond after
another, up to {late} s late; a line has about 300 bytes, most of them random, so that neither gzip
nor zstd makes it much smaller. The archive has {gz:,.0f} MB. Times include the start of Spark.
Afterwards offsets, counts and {windows} random windows are compared with the input. Memory is the
largest resident set that the kernel counted (`VmHWM`), with the shared libraries.
"""


class Given(NamedTuple):
    """An input: how many records it has, and settings by table."""

    paths: list[str]
    records: int
    times: Int64s | None = None  # of the records with a number, by number
    settings: dict[str, dict[str, object]] | None = None


def run(bench: Workbench) -> Section:
    """Measure."""
    sizes = bench.sizes
    rows = []
    for name, make in islice(inputs(sizes).items(), sizes.hot_inputs):
        say(f"  {name}")
        rows.append([name, *_measured(bench.scratch("hot"), make)])
    section = Section("hot", "Hot inputs", _TEXT.format(
        record=sizes.record_bytes / 1e6, gz=sizes.archive_bytes / 1e6, late=LATE_MS // 1000,
        windows=WINDOWS,
    ))  # fmt: skip
    section.tables = [Table("Time and memory", ["input", *COLUMNS], rows)]
    worst = max(row[6] for row in rows if row[0] != "one record among many")
    text = "MiB of a Python worker, by default settings"
    section.goals = [Goal(text, worst, WORKER_BYTES / MIB, at_least=False)]
    return section


def inputs(sizes: Sizes) -> dict[str, Callable[[Path], Given]]:
    """What makes each input in a folder, by name."""
    return {
        "one key has 90 % of the events": partial(_keyed, count=sizes.events, keys=0),
        "a million keys": partial(_keyed, count=sizes.events, keys=1_000_000),
        "one `gz`": partial(_archive, size=sizes.archive_bytes),
        "one record among many": partial(_large, size=sizes.record_bytes),
        f"{sizes.tiny_files:,} files of 3 lines": partial(_tiny, files=sizes.tiny_files),
    }


def _measured(folder: Path, make: Callable[[Path], Given]) -> list[Any]:
    """The figures of one input; it is removed again."""
    source = folder / "input"
    source.mkdir(parents=True)
    given, root = make(source), folder / "lake"
    conf = folder / "hot.toml"
    conf.write_text(pipeline_text(given, root))
    spent = timed(partial(_ingest, conf))
    report, peaks = spent.result
    check(given, str(root), report)
    size = sum(path.stat().st_size for path in source.iterdir())
    written = report["output_bytes"] - report["index_bytes"]
    shutil.rmtree(folder)
    return [
        size / 1e6, written / 1e6, report["records"], spent.seconds, size / 1e6 / spent.seconds,
        peaks.worker / MIB, peaks.driver / MIB,
    ]  # fmt: skip


def pipeline_text(given: Given, root: Path) -> str:
    """The settings of an ingest, as TOML."""
    tables: dict[str, dict[str, object]] = {
        "pipeline": {"name": "hot", "root": str(root), "order": "time"},
        "input": {"paths": given.paths, "format": "jsonl"},
        "timestamp": {"field": "ts", "format": "epoch_ms"},
        "key": {"fields": ["key"]},
        "topic": {"name": TOPIC, "partitions": PARTITIONS},
    }
    for table, changes in (given.settings or {}).items():
        tables[table] = tables.get(table, {}) | changes
    lines: list[str] = []
    for table, settings in tables.items():
        lines += [f"[{table}]", *(f'"{name}" = {json.dumps(v)}' for name, v in settings.items())]
    return "\n".join(lines)


def check(given: Given, root: str, report: dict[str, Any]) -> None:
    """Require that the lake holds the input: counts, offsets, windows."""
    require(report["records"] == given.records, f"records were lost: {report}")
    log = seglake.open(root).topic(TOPIC)
    require(sum(log.end_offsets().values()) == given.records, "offsets are not dense")
    if given.times is None:
        return
    random = np.random.default_rng(2)
    for start in random.integers(START_MS, START_MS + len(given.times), WINDOWS).tolist():
        found = log.read_range(start, start + WINDOW_MS, columns=["value"]).read_all()
        inside = (given.times >= start) & (given.times < start + WINDOW_MS)
        wanted = np.flatnonzero(inside)
        require(np.array_equal(numbers_in(found["value"]), wanted), "a window is wrong")


# one ingest


def _ingest(conf: Path) -> tuple[dict[str, Any], Peaks]:
    """Runs the job; its report, and its memory."""
    job = Path(__file__).parents[2] / "jobs" / "ingest.py"
    command = [sys.executable, str(job), "--conf-file", str(conf)]
    log = conf.with_suffix(".log")
    with log.open("wb") as errors:
        running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        with watched(running.pid) as peaks:
            printed, _ = running.communicate()
    require(running.returncode == 0, log.read_text()[-4000:])
    report: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return report, peaks


# inputs


def _keyed(folder: Path, count: int, keys: int) -> Given:
    """Files of events of so many keys; or of one key in nine of ten, and a thousand others."""
    times = _times(count)
    files = max(1, count // 250_000)
    for number in range(files):
        with (folder / f"{number}.jsonl").open("wb") as out:
            for numbers in _blocks(count * number // files, count * (number + 1) // files):
                out.write(_lines(numbers, times[numbers], keys))
    return Given([str(folder / "*.jsonl")], count, times)


def _archive(folder: Path, size: int) -> Given:
    """One file of at least `size` bytes; its numbers and times go on from block to block."""
    path, count = folder / "all.jsonl.gz", 0
    chunks = []
    with path.open("wb") as out:
        while out.tell() < size:
            numbers = np.arange(count, count + BLOCK)
            times = _times(BLOCK, first=count)
            out.write(gzip.compress(_lines(numbers, times, keys=50_000), compresslevel=1))
            chunks.append(times)
            count += BLOCK
    return Given([str(path)], count, np.concatenate(chunks))


def _large(folder: Path, size: int) -> Given:
    """One record of `size` bytes in the middle of a hundred thousand."""
    count, path = 100_000, folder / "all.jsonl"
    times = _times(count)
    text = os.urandom(size // 2).hex()
    with path.open("wb") as out:
        out.write(_lines(np.arange(count // 2), times[: count // 2], keys=1000))
        out.write(f'{{"ts":{START_MS},"key":"large","text":"{text}"}}\n'.encode())
        out.write(_lines(np.arange(count // 2, count), times[count // 2 :], keys=1000))
    limits: dict[str, dict[str, object]] = {
        "topic": {"max.message.bytes": 2 * size}, "task": {"chunk_bytes": 2 * size},
    }  # fmt: skip
    return Given([str(path)], count + 1, settings=limits)


def _tiny(folder: Path, files: int) -> Given:
    """Very many files of three lines."""
    times = _times(3 * files)
    lines = bytes(_lines(np.arange(3 * files), times, keys=1000)).splitlines(keepends=True)
    for number in range(files):
        (folder / f"{number}.jsonl").write_bytes(b"".join(lines[3 * number : 3 * number + 3]))
    return Given([str(folder / "*.jsonl")], 3 * files, times)


def _blocks(start: int, end: int) -> Iterator[Int64s]:
    for first in range(start, end, BLOCK):
        yield np.arange(first, min(first + BLOCK, end))


def _times(count: int, first: int = 0) -> Int64s:
    late = np.random.default_rng(first).integers(0, LATE_MS, count)
    return START_MS + np.arange(first, first + count) - late


def _lines(numbers: Int64s, times: Int64s, keys: int) -> Any:
    """One line for each number; a number stands where `numbers_in` looks for it."""
    count = len(numbers)
    random = np.random.default_rng(int(numbers[0]))
    chosen = random.integers(0, keys or 1000, count)
    if not keys:
        chosen[random.random(count) < 0.9] = 0
    pieces = pc.binary_join_element_wise(
        '{"ts":', _digits(times, 13), ',"key":"', _digits(chosen, 8), '","id":"',
        _digits(numbers, 12), '","text":"', _texts(random, count), '"}\n', "",
    )  # fmt: skip
    _, offsets, data = pieces.buffers()
    return data.slice(0, int(np.frombuffer(offsets, np.int32)[count]))


def _texts(random: np.random.Generator, count: int, digits: int = 240) -> Any:
    offsets = np.arange(0, (count + 1) * digits, digits, dtype=np.int32)
    data = random.bytes(count * digits // 2).hex().encode()
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets.data), pa.py_buffer(data))


def _digits(numbers: Int64s, digits: int) -> Any:
    return pc.utf8_lpad(pa.array(numbers).cast(pa.string()), digits, "0")
