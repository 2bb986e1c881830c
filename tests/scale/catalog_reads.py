"""What an open and an ingest read of a catalog with a long history: requests and bytes.

The history is committed through the catalog, some hundred runs at once, so that its files are those
that merges make; of the other topics a thousand come in one commit. Counted are the reads of the
catalog's data files; the checkpoint and the commits after it are delta-rs's. Merges, which a commit
may do after it is made, are left out.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pytest

from seglake.catalog.commits import CatalogCommits
from seglake.catalog.delta import data_files
from seglake.catalog.delta.actions import Action, DeltaCommit, add_action
from seglake.catalog.delta.data_files import DataFile
from seglake.catalog.delta.delta_rs import checkpoint_if_due
from seglake.catalog.delta.file_merges import cut_rows
from seglake.catalog.schema import Kind, Row, RunRow, file_table
from seglake.catalog.table import CatalogTable
from seglake.catalog.topic_change import TopicChange
from seglake.catalog.version.snapshot import EMPTY
from seglake.catalog.version.snapshot_files import files_after
from seglake.config import Pipeline
from seglake.engine import LocalEngine
from seglake.read.lake import Lake
from seglake.store import Store, open_store
from seglake.write.driver import run as driver
from seglake.write.driver.report import Report
from tests.harness.counting import CountingStore
from tests.makers.catalog_rows import new_attempt, run, segment, source, topic
from tests.makers.lakes import create_catalog, open_catalog
from tests.makers.raw_events import Line, T, pipeline_of, write_file

TOPIC, NAMES = "events", ("dated", "folders", "random")
_FACTORS = (2_654_435_761, 2_246_822_519, 3_266_489_917, 668_265_263)  # odd: they mix numbers
Outcome = TypeVar("Outcome")
_TOPICS_AT_ONCE = 1000  # of a commit
_AT_ONCE, _SINGLE = 256, 30  # runs of a commit; commits of one run each, at the end


class History(NamedTuple):
    """What the catalog has; `names` says what the names of files and runs are like.

    Each run of the one large topic appends a segment to each log partition. `dated` names ascend.
    In `folders` the names of runs and folders ascend, and those of files are random. `random` ones
    do neither, and all files lie in one folder.
    """

    runs: int
    partitions: int
    sources: int
    topics: int
    names: str = "dated"

    def run_id(self, number: int) -> str:
        """The name of a run."""
        return _mixed(number) if self.names == "random" else f"scheduled__{number:09}"

    def run(self, number: int, attempt_id: str) -> RunRow:
        """The row of a run."""
        ranges = {p: [[number * 1000, number * 1000 + 1000]] for p in range(self.partitions)}
        report = {f"step {step}": number * 31 + step for step in range(40)}
        return run(
            self.run_id(number), attempt_id, TOPIC, pipeline="test", fingerprint="f" * 64,
            started_at_ms=T + number * 60_000, finished_at_ms=T + number * 60_000 + 30_000,
            report=json.dumps(report), offset_ranges=json.dumps(ranges),
            records=1000 * self.partitions,
        )  # fmt: skip

    def path(self, root: Path, number: int) -> str:
        """The path of an input file."""
        folder = "" if self.names == "random" else f"/{number // 100_000:05}"
        name = f"{number:09}" if self.names == "dated" else _mixed(number)
        return f"{root}/in{folder}/{name}.jsonl"


class Reads(NamedTuple):
    """Requests for the catalog's data files, and the bytes that came, by kind of rows."""

    requests: Counter[str]
    bytes: Counter[str]

    def copy(self) -> Reads:
        """The same, as it is now."""
        return Reads(self.requests.copy(), self.bytes.copy())

    def since(self, before: Reads) -> Reads:
        """What came after some earlier reads."""
        return Reads(self.requests - before.requests, self.bytes - before.bytes)

    def __str__(self) -> str:
        kinds = ", ".join(f"{count} of {kind}" for kind, count in sorted(self.requests.items()))
        whole, size = self.requests.total(), self.bytes.total() / 1e6
        return f"{whole} requests ({kinds}), {size:.3f} MB"


class DataFiles(CountingStore):
    """Counts reads of the catalog's data files only."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.reads = Reads(Counter(), Counter())

    def read_all(self, key: str) -> Any:
        return self._noted(key, super().read_all(key))

    def read(self, key: str, start: int, end: int) -> Any:
        return self._noted(key, super().read(key, start, end))

    def _noted(self, key: str, data: Any) -> Any:
        if key.startswith("catalog/log/kind="):
            kind = key.split("/")[2].removeprefix("kind=")
            self.reads.requests[kind] += 1
            self.reads.bytes[kind] += len(memoryview(data).cast("B"))
        return data


def _mixed(number: int) -> str:
    return hashlib.blake2b(b"%d" % number, digest_size=16).hexdigest()


def build(root: Path, history: History) -> None:
    """Make the lake."""
    add_topics(root, history.topics)
    add_history(root, history)


def add_topics(root: Path, count: int) -> None:
    """Make the lake with its small topics."""
    table = create_catalog(str(root / "lake"))
    for first in range(0, count, _TOPICS_AT_ONCE):
        _add_topics(table, range(first, min(first + _TOPICS_AT_ONCE, count)))


def add_history(root: Path, history: History) -> None:
    """Give the lake its large topic."""
    table = open_catalog(str(root / "lake"))
    files, version = table.newest_files(), table.handle.newest().version()
    single = min(_SINGLE, history.runs // 2)
    cuts = [*range(0, history.runs - single, _AT_ONCE)]
    cuts += range(history.runs - single, history.runs + 1)
    for start, end in pairwise(cuts):
        made = _commit(table, version, files, _history_tables(root, history, start, end))
        files, version = files_after(files, made), made[-1].version


def _add_topics(table: CatalogTable, numbers: Iterable[int]) -> None:
    """Commit some topics at once, with the files that each one's first commit would write."""
    actions: list[Action] = []
    for number in numbers:
        name = f"t-{number:06}"
        change = TopicChange(name, _other_topic(name), (), ())
        actions += table.commits._write_files(change, (), EMPTY)
    log = table.log
    version = log.commit(table.handle.newest().version(), actions)[-1].version
    checkpoint_if_due(log, [version])


def _other_topic(name: str) -> list[Row]:
    attempt_id = new_attempt()
    one = segment(0, 1, topic=name, attempt_id=attempt_id, min_timestamp=T, max_timestamp=T)
    return [topic(name, 1), one, run("test", attempt_id, name)]


def _commit(
    table: CatalogTable, version: int, files: frozenset[DataFile], rows: dict[Kind, pa.Table]
) -> Sequence[DeltaCommit]:
    """Commit rows as the catalog does, and let it merge its files; returns all commits."""
    log = table.log
    written = [data_files.write_file(log.store, log.folder, kind, TOPIC, *part)
               for kind, some in rows.items() if len(some) for part in cut_rows(some)]  # fmt: skip
    made = log.commit(version, [*map(add_action, written)], application=f"seglake/{TOPIC}")
    table.commits._merge_small_files(made[-1].version, files_after(files, made))
    return log.since(version, len(made) + 1)


def _history_tables(root: Path, history: History, start: int, end: int) -> dict[Kind, pa.Table]:
    """What some runs commit, by kind. Of runs that made millions of rows none is an object."""
    numbers = np.arange(start, end)
    attempts = [new_attempt() for _ in numbers]
    bounds = [number * history.sources // history.runs for number in range(start, end + 1)]
    tables: dict[Kind, pa.Table] = {
        "run": file_table([*map(history.run, range(start, end), attempts)]),
        "segment": _segments(numbers, np.array(attempts), history.partitions),
        "source": _sources(root, history, bounds, attempts),
    }
    return tables if start else {**tables, "topic": file_table([topic(TOPIC, history.partitions)])}


def _repeated(row: Row, count: int, **columns: Any) -> pa.Table:
    """So many rows that differ in some columns."""
    table = file_table([row]).take(np.zeros(count, np.int64))
    for name, values in columns.items():
        at = table.schema.get_field_index(name)
        table = table.set_column(at, name, pa.array(values, table.schema.field(at).type))
    return table


def _segments(runs: np.ndarray, attempts: np.ndarray, partitions: int) -> pa.Table:
    """A segment in each log partition by each run.

    Sizes and checksums compress as little as real ones.
    """
    number, partition = np.repeat(runs, partitions), np.tile(np.arange(partitions), len(runs))
    low, attempt_id = T + number * 60_000, np.repeat(attempts, partitions)
    mixed = [(number * 1000 + partition) * factor % 2**32 for factor in _FACTORS]
    names = ("log_crc32c", "index_crc32c", "timeindex_crc32c", "zonemap_crc32c")
    return _repeated(
        segment(0, 1000), len(number), **dict(zip(names, mixed, strict=True)),
        partition=partition, base_offset=number * 1000, end_offset=number * 1000 + 1000,
        attempt_id=attempt_id, index_attempt_id=attempt_id, created_at_ms=low,
        min_timestamp=low + mixed[1] % 1000, max_timestamp=low + 59_000 + mixed[2] % 1000,
        offset_of_max_timestamp=number * 1000 + 999, log_bytes=mixed[0] % 2**20,
    )  # fmt: skip


def _sources(
    root: Path, history: History, bounds: Sequence[int], attempts: Sequence[str]
) -> pa.Table:
    """The input files between bounds, each attempt's."""
    numbers = np.arange(bounds[0], bounds[-1])
    return _repeated(
        source(""), len(numbers),
        path=[history.path(root, number) for number in numbers.tolist()],
        attempt_id=np.repeat(attempts, np.diff(bounds)),
        size_bytes=1000 + numbers % 7, modified_ms=T + numbers,
    )  # fmt: skip


def opened(root: Path, name: str) -> Reads:
    """What the open of one topic reads."""
    store = DataFiles(open_store(str(root / "lake")))
    log = Lake(store).topic(name)
    if not log.partitions():
        raise AssertionError("the topic lacks its partitions")
    return store.reads


def ingested(root: Path, history: History, files: int) -> Reads:
    """What an ingest of some new files reads of the catalog, up to and with its commit."""
    with _counted() as stores:
        _ingest(root, history, files)
    return stores[0].reads


def overtaken(root: Path, history: History, files: int) -> Reads:
    """What an ingest reads again of the catalog after another run took its offsets."""
    commit, before = CatalogCommits.make, list[Reads]()

    def lose(commits: CatalogCommits, *rows: Any, **how: Any) -> int:
        if not before:
            before.append(stores[0].reads.copy())
            _ingest(root, history, files)
        return commit(commits, *rows, **how)

    with _counted() as stores, pytest.MonkeyPatch.context() as patched:
        patched.setattr(CatalogCommits, "make", lose)
        if not _ingest(root, history, files).rebased:
            raise AssertionError("no race was lost")
    return stores[0].reads.since(*before)


@contextmanager
def _counted() -> Iterator[list[DataFiles]]:
    """The stores that ingests use, in the order of the ingests; their commits merge nothing."""
    stores: list[DataFiles] = []

    def opened_store(*how: Any) -> DataFiles:
        stores.append(DataFiles(open_store(*how)))
        return stores[-1]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(driver, "open_store", opened_store)
        patched.setattr(CatalogCommits, "_merge_small_files", lambda *_: None)
        yield stores


def _ingest(root: Path, history: History, files: int) -> Report:
    pipeline, run_id = _next_run(root, history, files)
    report = driver.ingest_files(LocalEngine(), pipeline, driver.DeclaredRun(run_id))
    if report.records != files:
        raise AssertionError(f"{report.records} of {files} records")
    return report


def _next_run(root: Path, history: History, files: int) -> tuple[Pipeline, str]:
    """A run of new files whose names follow those of the history."""
    done = len(list((root / "made").glob("*"))) if (root / "made").exists() else 0
    (root / "made").mkdir(exist_ok=True)
    (root / "made" / str(done)).touch()
    first = history.sources + done * files
    paths = [Path(history.path(root, first + number)) for number in range(files)]
    for path in paths:
        write_file(path, [Line(T)])
    changes: dict[str, Any] = {"topic": {"name": TOPIC, "partitions": history.partitions}}
    return pipeline_of(root / "lake", paths, **changes), history.run_id(history.runs + done)
