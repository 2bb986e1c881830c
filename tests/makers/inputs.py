"""The input files of a pipeline, listed, split and read as a run does."""

from collections.abc import Iterator, Sequence

from seglake.config import Pipeline
from seglake.layout import new_attempt
from seglake.store import open_store
from seglake.write.driver.run_input import plan_splits
from seglake.write.input.content import InputStore
from seglake.write.input.files import SourceFile, Split
from seglake.write.input.listing import find_inputs
from seglake.write.map.unit import MapSettings, map_sizes
from seglake.write.rows.records import ExtractedChunk, RowLimits, read_split
from tests.makers.strategies import T

UNLIMITED = RowLimits()


def store_of(settings: Pipeline) -> InputStore:
    return InputStore(settings.storage, settings.input.compression, settings.input.encoding)


def listed(settings: Pipeline) -> list[SourceFile]:
    return [*find_inputs(settings.input, store_of(settings)).distinct().files]


def splits_of(settings: Pipeline, files: Sequence[SourceFile] | None = None) -> list[Split]:
    """The splits of all input files, or of some."""
    chosen = listed(settings) if files is None else files
    return plan_splits(chosen, store_of(settings), settings)


def chunks_of(
    split: Split, settings: Pipeline, limits: RowLimits = UNLIMITED
) -> Iterator[ExtractedChunk]:
    return read_split(split, store_of(settings), settings, limits)


def map_settings(settings: Pipeline) -> MapSettings:
    """What map tasks of an attempt without limits get."""
    store, sizes = open_store(settings.root), map_sizes(0, settings)
    return MapSettings(store, settings, new_attempt(), T, UNLIMITED, sizes)
