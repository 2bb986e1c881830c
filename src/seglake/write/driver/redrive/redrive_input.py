"""The input of a redrive: the open rejects of a run, in their files or as raw bytes.

A file is read again if the version that the run ingested is still there. If all its rows are open
rejects, it is read anew, so any setting may have changed. Otherwise the rejects are chosen among
its rows. Where the file is gone, rows of lines are made of their raw bytes. What can be read in
neither way is refused, and stays a reject.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from seglake.catalog.quarantine.files import FILE_SCHEMA as QUARANTINE_SCHEMA
from seglake.catalog.quarantine.files import FILES, read_rejects
from seglake.catalog.quarantine.open_rejects import Chain, Leaving, has_one_of
from seglake.catalog.quarantine.table import QuarantineTable
from seglake.catalog.schema import SourceRow, rows_of
from seglake.catalog.version.snapshot import Snapshot
from seglake.config import Pipeline
from seglake.engine import Amounts, Engine
from seglake.errors import MissingObject, StoreError
from seglake.format.records import Flags, Headers, Int64s, Spans
from seglake.limits import REQUESTS
from seglake.store import Store
from seglake.text.spans import constant, fnv_hashes, from_arrow, join_rows, with_line_feed
from seglake.times.grammar import TimeFormat
from seglake.times.readers import Times
from seglake.write.driver.run_input import (
    InputSelection,
    RunInput,
    Sources,
    SplitCounts,
    plan_splits,
    value_settings_of,
)
from seglake.write.input.content import InputStore, unreadable
from seglake.write.input.encodings import UTF_8, from_encoding, in_encoding
from seglake.write.input.files import SourceFile, Split
from seglake.write.input.listing import FileList
from seglake.write.map.unit import (
    MapSettings,
    Unit,
    blobs_of_unit,
    read_every_row,
    shared_units,
    unchanged,
)
from seglake.write.quarantine import KeepRefused, SplitOrigin, origins
from seglake.write.rows.formats.registry import FORMATS
from seglake.write.rows.lines import REJECTED_BYTES, LineChunk, LineFormat
from seglake.write.rows.records import Extracted, RowLimits, extract, rows_of_split
from seglake.write.rows.rows import LackedFields, Reason, Rows
from seglake.write.spool.spool import (
    REFUSED,
    Blob,
    SpoolWriter,
    of_kinds,
    packed_rows,
    read_blobs,
    unpacked_rows,
)

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


# ---------------- rejects
# The map side of a redrive: rejects of an earlier run are read again.
#
# A split of a redrive is a whole file. If all rows of a file are rejects, all of it is read,
# divided as the settings have it now. From other files, only the rejects are read. If the file is
# gone, its rows are made of the raw bytes in the quarantine.

_ROWS = 4096  # quarantined rows whose raw bytes are looked at together


class Chosen(NamedTuple):
    """The rejects to choose from a file, and, if it is gone, the quarantine's files with them."""

    rejects: Rejected
    keys: Sequence[str] = ()


class MapRejects(NamedTuple):
    """The map task: units of rejects → rows of SPOOLED, packed.

    A unit comes with what is chosen of its splits; of a split that is not there every row is read.
    The lines of rejects that are not found as they were become a blob of the kind REFUSED, whose
    text is the number of the split. With `dry_run` the spool gets no data.
    """

    settings: MapSettings
    rejects_of: str  # the attempt whose rejects are read
    dry_run: bool

    def __call__(self, units: Sequence[tuple[Unit, Mapping[int, Chosen]]]) -> bytes:
        """Write the blobs of the units to the spool."""
        store, files = self.settings.store, self.settings.files
        raw_rows = RawRows(store, self.rejects_of)
        with SpoolWriter(store, self.settings.attempt_id) as spool:
            for unit, chosen in units:
                for blob in self._blobs(unit, files, _RejectReader(chosen, raw_rows)):
                    spool.add(blob._replace(data=b"") if self.dry_run else blob)
        return packed_rows(spool.rows())

    def amounts(self, items: Sequence[Sequence[tuple[Unit, Mapping[int, Chosen]]]]) -> Amounts:
        """The stored bytes of each item's files; of files that are gone, those of their rejects."""
        return Amounts("bytes", [sum(unit.size_bytes for unit, _ in units) for units in items])

    def _blobs(self, unit: Unit, files: InputStore, reader: _RejectReader) -> Iterator[Blob]:
        yield from blobs_of_unit(unit, files, self.settings, reader)
        for split, lines in reader.refused().items():
            data = lines.tobytes()
            yield Blob(REFUSED, unit.number, data, records=len(lines), text=str(split))


class _RejectReader:
    """Reads the splits of a unit, and remembers which rejects were found."""

    def __init__(self, chosen: Mapping[int, Chosen], raw_rows: RawRows) -> None:
        self._chosen, self._raw_rows = chosen, raw_rows
        self._hits: dict[int, RejectFlags] = {
            split: np.zeros(len(rows.rejects), np.bool_) for split, rows in chosen.items()
        }

    def __call__(
        self, split: Split, files: InputStore, settings: MapSettings
    ) -> Iterator[Extracted]:
        """The chunks of a split."""
        if split.number not in self._chosen:
            return read_every_row(split, files, settings)
        chosen, hits = self._chosen[split.number], self._hits[split.number]
        if not chosen.keys:
            pipeline, limits = settings.pipeline, settings.limits
            chunks = read_chosen(split, files, pipeline, limits, chosen.rejects, hits)
            return unchanged(split, files, chunks)
        return self._from_raw(split.file.path, settings, chosen, hits)

    def _from_raw(
        self, path: str, settings: MapSettings, chosen: Chosen, hits: RejectFlags
    ) -> Iterator[Extracted]:
        pipeline, rejects = settings.pipeline, chosen.rejects
        for key in chosen.keys:
            size = pipeline.task.chunk_bytes
            for lines, raw in self._raw_rows.of(key, path, rejects["line"], size):
                yield read_raw(path, lines, raw, pipeline, settings.limits, rejects, hits)

    def refused(self) -> dict[int, Int64s]:
        """The lines of the rejects that were not found, by the number of the split."""
        lines = {s: self._chosen[s].rejects["line"][~hits] for s, hits in self._hits.items()}
        return {split: missing for split, missing in lines.items() if len(missing)}


class RawRows:
    """The raw bytes of an attempt's rejects; the file of the quarantine read last is kept."""

    def __init__(self, store: Store, attempt_id: str) -> None:
        self._store, self._attempt_id = store, attempt_id
        self._key, self._rows = "", QUARANTINE_SCHEMA.empty_table()
        self._places: dict[str, Int64s] = {}

    def of(self, key: str, path: str, lines: Int64s, size: int) -> Iterator[tuple[Int64s, Spans]]:
        """Lines and raw bytes of the rejects at `lines` of a source file, `size` bytes at once.

        They come in the order of lines.
        """
        if key != self._key:
            self._rows = read_rejects(self._store, key, [self._attempt_id])
            self._key, self._places = key, places_by_file(self._rows)
        at = self._places[path]
        line_numbers: Int64s = self._rows["line"].take(at).to_numpy()
        order = np.argsort(line_numbers)
        order = order[np.isin(line_numbers[order], lines)]
        raw = self._rows["raw"]
        ends = np.cumsum(pc.binary_length(raw).take(at[order]).to_numpy(), dtype=np.int64)
        cuts = (np.diff(ends // size) > 0) | (np.arange(1, len(ends)) % _ROWS == 0)
        parts = np.split(order, np.flatnonzero(cuts) + 1)
        for part in parts if len(order) else []:
            yield line_numbers[part], from_arrow(raw.take(at[part]).combine_chunks())


def places_by_file(rows: pa.Table) -> dict[str, Int64s]:
    """The positions of the quarantined rows of each source file."""
    names: Any = rows["source_file"].dictionary_encode().combine_chunks()
    codes = names.indices.to_numpy(zero_copy_only=False)
    order: Int64s = np.argsort(codes, kind="stable")
    paths: list[Any] = names.dictionary.to_pylist()
    ends = np.cumsum(np.bincount(codes, minlength=len(paths)))
    return dict(zip(paths, np.split(order, ends[:-1]), strict=True)) if paths else {}


class ListRejects(NamedTuple):
    """The task: a file of the quarantine → an attempt's rejects in it, by source file."""

    store: Store
    attempt_id: str

    def __call__(self, key: str) -> dict[str, Rejected]:
        """The rejects without their raw bytes, in the order of the file."""
        rows = read_rejects(self.store, key, [self.attempt_id])
        parts = [np.zeros(0, REJECT)]
        for batch in rows.to_batches(max_chunksize=_ROWS):
            lines: Int64s = batch["line"].to_numpy()
            reasons: npt.NDArray[Any] = batch["reason"].to_numpy(zero_copy_only=False)
            parts.append(rejected(lines, reasons, from_arrow(batch["raw"])))
        listed = np.concatenate(parts)
        return {path: listed[at] for path, at in places_by_file(rows).items()}

    def amounts(self, keys: Sequence[str]) -> Amounts:
        """Each item is a file."""
        return Amounts.alike(FILES, keys)


# ---------------- chosen
# Chosen rows: the rejects of an earlier run, found again in their file or made of their raw
# bytes.
#
# A reject is known by the line at which it begins. It counts as found only if the row that begins
# there now has the bytes that the quarantine has. Other settings may divide a file into other
# rows, and such a row could hold lines that are records already.

# One reject without its raw bytes: where it begins, counted from 1, the length and hash of the raw
# bytes, whether the row may be longer than they are, and whether they have a line feed.
REJECT = np.dtype(
    [("line", "i8"), ("hash", "i8"), ("length", "i4"), ("cut", "?"), ("line_feed", "?")]
)
# reasons of rows that the quarantine may cut before 64 KiB
_CUT = [reason.text for reason in Reason if reason.name.endswith(("TOO_LARGE", "TOO_LONG"))]

Rejected = npt.NDArray[np.void]  # of REJECT, in the order of lines
RejectFlags = npt.NDArray[np.bool_]  # which of the rejects are found


def rejected(lines: Int64s, reasons: npt.NDArray[Any], raw: Spans) -> Rejected:
    """Quarantined rows without their raw bytes, in the given order."""
    rows = np.zeros(len(lines), REJECT)
    rows["line"], rows["length"] = lines, np.maximum(raw.lengths, 0)
    rows["hash"], rows["line_feed"] = fnv_hashes(*raw.fixed()), with_line_feed(*raw.fixed())
    rows["cut"] = (raw.lengths >= REJECTED_BYTES) | np.isin(reasons, _CUT)
    return rows


def keeps_whole_rows(pipeline: Pipeline) -> bool:
    """Whether a row of the input format can be made of its raw bytes alone."""
    return isinstance(FORMATS[pipeline.input.format], LineFormat)


def read_chosen(
    split: Split,
    store: InputStore,
    pipeline: Pipeline,
    limits: RowLimits,
    rejects: Rejected,
    hits: RejectFlags,
) -> Iterator[Extracted]:
    """The records and rejects of the chosen rows of a file, read once; sets `hits`.

    Lines of the rejects count from 0 in the file. Raises InputError as `read_split` does.
    """
    for path, rows, first_line, path_line in rows_of_split(split, store, pipeline):
        numbers = rows.numbers + first_line
        chosen = _choose(rows, numbers, rejects, hits, pipeline.input.encoding)
        if len(chosen.numbers):
            yield extract(chosen, pipeline, limits, path, 0, path_line)


def read_raw(
    path: str,
    lines: Int64s,
    raw: Spans,
    pipeline: Pipeline,
    limits: RowLimits,
    rejects: Rejected,
    hits: RejectFlags,
) -> Extracted:
    """The records and rejects of rows made of their raw bytes, which begin at `lines` (from 1)."""
    form = FORMATS[pipeline.input.format]
    assert isinstance(form, LineFormat)  # noqa: S101  # see `keeps_whole_rows`
    encoding = pipeline.input.encoding
    raw = raw if encoding == UTF_8 else from_encoding(raw, encoding)
    text = join_rows([raw, constant(b"\n", len(raw))])
    end = int(np.sum(text.lengths, dtype=np.int64))
    rows = form.row_maker(pipeline)(LineChunk(text.data, 0, end, False))
    chosen = _choose(rows, lines[rows.numbers] - 1, rejects, hits, encoding)
    return extract(chosen, pipeline, limits, path, 0)


def _choose(
    rows: Rows, lines: Int64s, rejects: Rejected, hits: RejectFlags, encoding: str
) -> ChosenRows:
    """The rejects among rows that begin at `lines` (from 0); marks them in `hits`."""
    at = np.searchsorted(rejects["line"], lines + 1)
    at[at == len(rejects)] = 0
    begun = np.flatnonzero(rejects["line"][at] == lines + 1)
    if len(begun):
        raw, ours = rows.take_raw(begun), rejects[at[begun]]
        same = _same(raw, ours)
        if encoding != UTF_8:  # bytes that an earlier encoding did not have stand as they are
            same |= _same(in_encoding(raw, encoding), ours)
        begun = begun[same]
    hits[at[begun]] = True
    return ChosenRows(rows, begun, lines[begun])


def _same(raw: Spans, rejects: Rejected) -> RejectFlags:
    """Whether each row is its reject; if the reject is cut, whether a line begins with its bytes.

    A row of several lines may have ended elsewhere, so its beginning is not enough.
    """
    sizes = np.minimum(raw.lengths, rejects["length"])
    alike = fnv_hashes(*Spans(raw.data, raw.starts, sizes).fixed()) == rejects["hash"]
    line = rejects["cut"] & (raw.lengths >= rejects["length"])
    if line.any():
        line &= ~with_line_feed(*raw.fixed())
    whole = (raw.lengths == rejects["length"]) & (sizes < REJECTED_BYTES)
    same: RejectFlags = alike & (line | whole)
    return same


class ChosenRows:
    """Some rows of a chunk, which begin at the lines `numbers`."""

    line_count = 0

    def __init__(self, rows: Rows, at: Int64s, numbers: Int64s) -> None:
        self._rows, self._at = rows, at
        self.numbers, self.reasons = numbers, rows.reasons[at]

    @property
    def raw(self) -> Spans:
        """The bytes of the rows in the file."""
        return self._rows.raw.take(self._at)

    def take_raw(self, rows: Int64s) -> Spans:
        """The raw bytes of the rows at these positions."""
        return self._rows.take_raw(self._at[rows])

    def field(self, name: str) -> Spans:
        """The values of a field as bytes; null if a row has no value."""
        return self._rows.field(name).take(self._at)

    def times(self, name: str, form: TimeFormat) -> Times:
        """The values of a field as times."""
        ms, codes, local = self._rows.times(name, form)
        return Times(ms[self._at], codes[self._at], local[self._at])

    def headers(self, name: str) -> tuple[Headers, Flags]:
        """The values of a field as record headers, and which cannot be read."""
        headers, unreadable = self._rows.headers(name)
        return headers.take(self._at), unreadable[self._at]

    def objects(self, names: Sequence[str]) -> Spans:
        """One JSON object per row, of these fields; without names, of every field."""
        return self._rows.objects(names).take(self._at)

    def absent(self, names: Iterable[str]) -> LackedFields | None:
        """None: some rows of a chunk do not show which fields no row has."""
        del names
        return None
