"""The input of a redrive: the open rejects of a run, in their files or as raw bytes.

A file is read again if the version that the run ingested is still there. If all its rows are open
rejects, it is read anew, so any setting may have changed. Otherwise the rejects are chosen among
its rows. Where the file is gone, rows of lines are made of their raw bytes. What can be read in
neither way is refused, and stays a reject.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seglake.catalog.quarantine.leaving import Leaving, has_one_of
from seglake.catalog.quarantine.redrives import Chain
from seglake.catalog.quarantine.table import QuarantineTable
from seglake.catalog.schema import SourceRow, rows_of
from seglake.catalog.version.snapshot import Snapshot
from seglake.config import Pipeline
from seglake.engine import Engine
from seglake.errors import MissingObject, StoreError
from seglake.format.records import Int64s
from seglake.limits import REQUESTS
from seglake.store import Store
from seglake.write.driver.run_input import RunInput, Sources, SplitCounts, value_settings_of
from seglake.write.driver.selection import InputSelection
from seglake.write.driver.splits import plan_splits
from seglake.write.input.content import InputStore, unreadable
from seglake.write.input.file_list import FileList
from seglake.write.input.files import SourceFile, Split
from seglake.write.map.rejects import Chosen, ListRejects, MapRejects
from seglake.write.map.unit import MapSettings, Unit, shared_units
from seglake.write.quarantine import KeepRefused, SplitOrigin, origins
from seglake.write.rows.chosen import Rejected, keeps_whole_rows
from seglake.write.rows.formats.registry import FORMATS
from seglake.write.spool.spool import REFUSED, of_kinds, read_blobs, unpacked_rows

_GONE = "the file is gone or changed, and "
NOT_LINES = _GONE + "a {} row cannot be made of its raw bytes alone"
CUT = _GONE + "the raw bytes are cut"
SEVERAL_LINES = _GONE + "the raw bytes have several lines"
OTHER_ROW = "these settings find another row at the line"


class _OpenRejects(NamedTuple):
    """The open rejects of one source file, and the quarantine's files that have them."""

    rejects: Rejected
    keys: list[str]


class RedriveInput(RunInput):
    """The open rejects of a chain of runs; `sources` are the topic's source rows.

    `have_left` says of a newer version whether it differs in these rejects. `count` is their
    number. `refused` counts the rejects that cannot be read again, by cause; it is complete after
    `spool`, which writes nothing in a `dry_run`. There are no source rows: the first run has
    recorded the files. Raises InputError for a file that is there and cannot be read, or if the
    files do not go together in one run.
    """

    def __init__(
        self,
        engine: Engine,
        pipeline: Pipeline,
        store: Store,
        chain: Chain,
        sources: pa.Table,
        have_left: Callable[[Snapshot], bool],
        *,
        dry_run: bool = False,
    ) -> None:
        self._engine, self._pipeline, self._store = engine, pipeline, store
        self._chain, self._have_left, self._dry_run = chain, have_left, dry_run
        self.keeps_rejects = not dry_run
        self.refused: Counter[str] = Counter()
        self._refused_lines: dict[str, list[Int64s]] = {}
        topic, attempt_id = chain.first.topic, chain.last.attempt_id
        self._keys = QuarantineTable(store).keys(topic, [attempt_id])
        listed = _by_path(engine.map(ListRejects(store, attempt_id), self._keys), self._keys)
        self._lines: dict[str, Int64s] = {p: each.rejects["line"] for p, each in listed.items()}
        self.count = sum(map(len, self._lines.values()))
        sources_of_run = rows_of(SourceRow, topic, _of_attempt(sources, chain.first.attempt_id))
        files = InputStore(pipeline.storage, pipeline.input.compression, pipeline.input.encoding)
        self._files = files
        present = _present([row for row in sources_of_run if row.path in listed], files)
        self.selection = InputSelection(sorted(present), FileList.of([]), [])
        FORMATS[pipeline.input.format].check(self.selection.files, files, pipeline)
        rows = {row.path: row.rows for row in sources_of_run}
        anew = [
            file
            for file in self.selection.files
            if not chain.redrives and len(listed[file.path].rejects) == rows[file.path]
        ]
        self._plan(listed, plan_splits(anew, files, pipeline))

    def value_settings(self) -> Mapping[str, Any]:
        """Those of the files that are there. Raises InputError."""
        return value_settings_of(self.selection.files, self._files, self._pipeline)

    def _plan(self, listed: Mapping[str, _OpenRejects], anew: Sequence[Split]) -> None:
        """Number the splits in the order of paths. Files not in `anew` have chosen rows."""
        whole: dict[str, list[Split]] = {}
        for split in anew:
            whole.setdefault(split.file.path, []).append(split)
        present = {file.path: file for file in self.selection.files}
        self._splits: list[Split] = []
        self._chosen: dict[int, Chosen] = {}
        for path, open_rejects in sorted(listed.items()):
            number = len(self._splits)
            if path in whole:
                splits = whole[path]
                self._splits += [s._replace(number=n) for n, s in enumerate(splits, number)]
            elif path in present:
                self._choose(present[path], Chosen(open_rejects.rejects))
            elif len(usable := self._usable(path, open_rejects.rejects)):
                size = int(usable["length"].sum(dtype=np.int64))
                self._choose(SourceFile(path, size, 0, None), Chosen(usable, open_rejects.keys))

    def _choose(self, file: SourceFile, chosen: Chosen) -> None:
        number = len(self._splits)
        self._splits.append(Split(number, file, 0, file.size))
        self._chosen[number] = chosen

    def _usable(self, path: str, rejects: Rejected) -> Rejected:
        """The rejects of a gone file that can be read from raw bytes; refuses the others."""
        if not keeps_whole_rows(self._pipeline):
            self._refuse(path, rejects["line"], NOT_LINES.format(self._pipeline.input.format))
            return rejects[:0]
        cut, several = rejects["cut"], rejects["line_feed"]
        self._refuse(path, rejects["line"][cut], CUT)
        self._refuse(path, rejects["line"][several & ~cut], SEVERAL_LINES)
        usable: Rejected = rejects[~(cut | several)]
        return usable

    def _refuse(self, path: str, lines: Int64s, why: str) -> None:
        if len(lines):
            self.refused[why] += len(lines)
            self._refused_lines.setdefault(path, []).append(lines)

    def has_one_of(self, leaving: Leaving) -> bool:
        """Whether an erasure's list has some of the rejects."""
        return has_one_of(leaving, self._chain.last.attempt_id, self._lines)

    def is_empty(self) -> bool:
        """Whether no reject can be read again."""
        return not self._splits

    def spool(self, settings: MapSettings) -> pa.Table:
        """Run the map side over all units."""
        shares = shared_units(self._splits, self._pipeline.task.split_bytes, self._engine)
        tasks = [[self._with_chosen(unit) for unit in units] for units in shares]
        map_rejects = MapRejects(settings, self._chain.last.attempt_id, self._dry_run)
        spooled = unpacked_rows(self._engine.map(map_rejects, tasks))
        self._take_refused(of_kinds(spooled, REFUSED))
        return spooled

    def _with_chosen(self, unit: Unit) -> tuple[Unit, dict[int, Chosen]]:
        numbers = (split.number for split in unit.splits)
        return unit, {number: self._chosen[number] for number in numbers if number in self._chosen}

    def _take_refused(self, refused: pa.Table) -> None:
        if self._dry_run:
            count = int(refused["records"].to_numpy().sum())
            self.refused += Counter({OTHER_ROW: count} if count else {})
            return
        for blob in read_blobs(self._store, refused):
            path = self._splits[int(blob.row["text"])].file.path
            self._refuse(path, np.frombuffer(memoryview(blob.data), np.int64), OTHER_ROW)

    def keep_refused(self, attempt_id: str, now_ms: int) -> None:
        """Copy the refused rejects as rejects of the redrive's attempt. Raises StoreError."""
        lines = {path: np.concatenate(some) for path, some in self._refused_lines.items()}
        if not lines:
            return
        topic, rejects_of = self._chain.first.topic, self._chain.last.attempt_id
        keep = KeepRefused(self._store, topic, rejects_of, attempt_id, now_ms, lines)
        written = self._engine.map(keep, self._keys)
        if sum(count for _, count in written) != self.refused.total():
            raise AssertionError(f"{written} are not the rows of {self.refused}")
        QuarantineTable(self._store).add_files([file for file, _ in written if file], attempt_id)

    def origins(self, counts: SplitCounts) -> dict[int, SplitOrigin]:
        """The file of each split, and the lines before the split."""
        return origins(self._splits, counts)

    def is_taken(self, newest: Snapshot, sources: Sources) -> bool:
        """Whether some of the rejects are not open any more, or are those of another run now."""
        del sources
        return self._have_left(newest)


def _by_path(
    lists: Sequence[Mapping[str, Rejected]], keys: Sequence[str]
) -> dict[str, _OpenRejects]:
    """The rejects of each source file in the order of lines, and the files that have them."""
    parts: dict[str, list[Rejected]] = {}
    having: dict[str, list[str]] = {}
    for key, by_path in zip(keys, lists, strict=True):
        for path, rejects in by_path.items():
            parts.setdefault(path, []).append(rejects)
            having.setdefault(path, []).append(key)
    joined = {path: np.concatenate(some) for path, some in parts.items()}
    return {
        path: _OpenRejects(rejects[np.argsort(rejects["line"])], having[path])
        for path, rejects in joined.items()
    }


def _of_attempt(sources: pa.Table, attempt_id: str) -> pa.Table:
    return sources.filter(pc.equal(sources["attempt_id"], pa.scalar(attempt_id)))


def _present(rows: Sequence[SourceRow], files: InputStore) -> list[SourceFile]:
    """The files that are still the version that was ingested. Raises InputError."""
    listed = [SourceFile(row.path, row.size_bytes, row.modified_ms, row.etag) for row in rows]
    with ThreadPoolExecutor(REQUESTS) as pool:
        same = list(pool.map(partial(_is_same, files=files), listed))
    return [file for file, is_same in zip(listed, same, strict=True) if is_same]


def _is_same(file: SourceFile, files: InputStore) -> bool:
    try:
        return file.version.is_same(files.stat(file.path))
    except MissingObject:
        return False
    except StoreError as error:
        raise unreadable(file.path, error) from error
