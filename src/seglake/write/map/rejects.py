"""The map side of a redrive: rejects of an earlier run are read again.

A split of a redrive is a whole file. If all rows of a file are rejects, all of it is read, divided
as the settings have it now. From other files, only the rejects are read. If the file is gone, its
rows are made of the raw bytes in the quarantine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from seglake.catalog.quarantine.files import FILE_SCHEMA as QUARANTINE_SCHEMA
from seglake.catalog.quarantine.files import FILES, read_rejects
from seglake.engine import Amounts
from seglake.format.records import Int64s, Spans
from seglake.store import Store
from seglake.text.spans import from_arrow
from seglake.write.input.content import InputStore
from seglake.write.input.files import Split
from seglake.write.map.unit import MapSettings, Unit, blobs_of_unit, read_every_row, unchanged
from seglake.write.rows.chosen import REJECT, Rejected, RejectFlags, read_chosen, read_raw, rejected
from seglake.write.rows.records import Extracted
from seglake.write.spool.spool import REFUSED, Blob, SpoolWriter, packed_rows

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
