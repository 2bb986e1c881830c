"""The input files of a pipeline, listed, split and read as a run does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from seglake.config import Pipeline
from seglake.write.driver.splits import plan_splits
from seglake.write.input.content import InputStore
from seglake.write.input.files import SourceFile, Split
from seglake.write.input.listing import list_inputs
from seglake.write.rows.records import Extracted, read_split


def store_of(settings: Pipeline) -> InputStore:
    return InputStore(settings.storage, settings.input.compression)


def listed(settings: Pipeline) -> list[SourceFile]:
    return list_inputs(settings.input, store_of(settings))


def splits_of(settings: Pipeline, files: Sequence[SourceFile] | None = None) -> list[Split]:
    """The splits of all input files, or of some."""
    chosen = listed(settings) if files is None else files
    return plan_splits(chosen, store_of(settings), settings)


def chunks_of(split: Split, settings: Pipeline) -> Iterator[Extracted]:
    return read_split(split, store_of(settings), settings)
