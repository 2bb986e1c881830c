"""The map side of one unit: read its splits, make records of their rows, sort and encode them.

A unit is consecutive splits of about `task.split_bytes` together, of more in a large run (see
`gather`); many small files share a unit. Units are a function of the input list and the settings.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from seglake.config import Pipeline
from seglake.engine import TASKS_PER_CORE, Amounts, Engine, share_in_order
from seglake.errors import SeglakeError
from seglake.format.records import concatenate
from seglake.log.encoding import encoding_of
from seglake.store import Store
from seglake.write.input.content import InputStore
from seglake.write.input.files import Split
from seglake.write.map.gather import Sizes
from seglake.write.map.sort import BlobMaker, reject_blob
from seglake.write.map.summary import UnitSummary
from seglake.write.rows.records import Extracted, RowLimits, join_broker_fields, read_split
from seglake.write.rows.rows import MOST_ROWS
from seglake.write.spool.spool import HOLD_BYTES, Blob, SpoolWriter, packed_rows

_SPLIT_COST_BYTES = 1024  # counted for each split, so that no unit gets countless empty files


class Unit(NamedTuple):
    """Consecutive splits, numbered in the order of the input list."""

    number: int
    splits: tuple[Split, ...]

    @property
    def size_bytes(self) -> int:
        """Bytes of the unit's splits as they are stored, compressed or not."""
        return sum(map(size_bytes, self.splits))


def size_bytes(split: Split) -> int:
    """Bytes of a split as it is stored, compressed or not."""
    return min(split.end - split.start, split.file.size)


def group_splits(splits: Sequence[Split], max_bytes: int) -> list[Unit]:
    """Group consecutive splits into units of at most `max_bytes`, or of one split."""
    units: list[list[Split]] = []
    room = 0
    for split in splits:
        size = size_bytes(split) + _SPLIT_COST_BYTES
        if size > room:
            units.append([])
            room = max_bytes
        units[-1].append(split)
        room -= size
    return [Unit(number, tuple(members)) for number, members in enumerate(units)]


def shared_units(splits: Sequence[Split], max_bytes: int, engine: Engine) -> list[list[Unit]]:
    """The units of some splits, shared out over the map tasks.

    A task has neighbours where that is fair, since their blobs are read together, see `spool`.
    """
    units = group_splits(splits, max_bytes)
    sizes = [unit.size_bytes for unit in units]
    shares = share_in_order(sizes, TASKS_PER_CORE * engine.cores_for(sum(sizes)))
    return [[units[number] for number in share] for share in shares]


class MapSettings(NamedTuple):
    """What all map tasks of an attempt get: the lake, the pipeline, and facts of the run.

    `pipeline` has its topic's settings in the catalog. Records of a LogAppendTime topic get
    `append_time_ms`.
    """

    store: Store
    pipeline: Pipeline
    attempt_id: str
    append_time_ms: int
    limits: RowLimits
    sizes: Sizes

    @property
    def files(self) -> InputStore:
        """Where the input is read."""
        settings = self.pipeline.input
        return InputStore(self.pipeline.storage, settings.compression, settings.encoding)


Reader = Callable[[Split, InputStore, MapSettings], Iterator[Extracted]]


class MapUnits(NamedTuple):
    """The map task: units of input files → rows of SPOOLED, packed.

    `plain_bytes` is for its `SpoolWriter`.
    """

    settings: MapSettings
    plain_bytes: int = 0

    def __call__(self, units: Sequence[Unit]) -> bytes:
        """Write the blobs of the units to the spool."""
        settings, files = self.settings, self.settings.files
        hold_bytes = 0 if settings.sizes.gather_bytes else HOLD_BYTES  # they come in order
        with SpoolWriter(
            settings.store, settings.attempt_id, plain_bytes=self.plain_bytes, hold_bytes=hold_bytes
        ) as spool:
            for unit in units:
                for blob in blobs_of_unit(unit, files, settings):
                    spool.add(blob)
        return packed_rows(spool.rows())

    def amounts(self, items: Sequence[Sequence[Unit]]) -> Amounts:
        """The stored bytes of each item's files."""
        return Amounts("bytes", [sum(unit.size_bytes for unit in units) for units in items])


def read_every_row(split: Split, files: InputStore, settings: MapSettings) -> Iterator[Extracted]:
    """The chunks of a split; InputError if the file changes before its last byte is read."""
    chunks = read_split(split, files, settings.pipeline, settings.limits)
    return unchanged(split, files, chunks)


def blobs_of_unit(
    unit: Unit, files: InputStore, settings: MapSettings, read: Reader = read_every_row
) -> Iterator[Blob]:
    """The blobs of a unit: records or batches, rejects, and a summary at the end."""
    pipeline = settings.pipeline
    in_order = pipeline.order == "arrival" and pipeline.topic.offset_field is None
    encoding = encoding_of(pipeline.topic, settings.append_time_ms) if in_order else None
    summary = UnitSummary()
    paths = {split.number: split.file.path for split in unit.splits}
    with BlobMaker(pipeline, settings.sizes, unit.number, encoding) as maker:
        for chunks in _joined(unit, files, settings, summary, read):
            yield from _blobs_of(chunks, maker, unit.number, paths)
            chunks.clear()  # the unit's end needs the memory
        yield from maker.rest()
    yield summary.blob(unit.number, maker.arrivals)


def _blobs_of(
    chunks: Sequence[tuple[int, Extracted]], maker: BlobMaker, unit: int, paths: Mapping[int, str]
) -> Iterator[Blob]:
    """The blobs that some chunks complete together, and those of their rejects."""
    full = [chunk for _, chunk in chunks if len(chunk.records)]
    if full:
        parts = [chunk.records for chunk in full]
        records = parts[0] if len(parts) == 1 else concatenate(parts)
        chosen = [chunk.partitions for chunk in full if chunk.partitions is not None]
        fields = [chunk.broker_fields for chunk in full if chunk.broker_fields is not None]
        partitions = np.concatenate(chosen) if chosen else None
        yield from maker.blobs(records, partitions, broker_fields=join_broker_fields(fields))
    for split, chunk in chunks:
        if len(chunk.rejects):
            yield reject_blob(unit, split, chunk.rejects, paths[split])


def _joined(
    unit: Unit, files: InputStore, settings: MapSettings, summary: UnitSummary, read: Reader
) -> Iterator[list[tuple[int, Extracted]]]:
    """Lists of (split number, chunk), in order; small chunks share a list."""
    together: list[tuple[int, Extracted]] = []
    size = rows = 0
    for split in unit.splits:
        summary.begin(split.number)
        for chunk in read(split, files, settings):
            summary.add(split.number, chunk)
            together.append((split.number, chunk))
            size += chunk.memory_bytes
            rows += chunk.row_count
            if size >= settings.pipeline.task.chunk_bytes // 2 or rows >= MOST_ROWS:
                yield together
                together, size, rows = [], 0, 0
    if together:
        yield together


def unchanged(split: Split, files: InputStore, chunks: Iterator[Extracted]) -> Iterator[Extracted]:
    """The same chunks; InputError if the file changes before the last of them is read."""
    try:
        yield from chunks
    except SeglakeError:
        files.require_unchanged(split.file)  # a changed file explains any other error
        raise
    files.require_unchanged(split.file)
