"""The frozen input list of a run, and which of its files still have to be ingested.

The first attempt at a run key lists the input and writes the list, once and for all: every later
attempt reads it back, so a rerun ingests what the first one would have. Files that the topic
already has are left out; files that changed since then are met by `on_changed_source`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, ValidationError

from seglake.config import Pipeline
from seglake.errors import ConfigError, CorruptData, InputError, MissingObject, StoreError
from seglake.layout import inputs_key
from seglake.store import Store, open_store
from seglake.write.input.listing import SourceFile
from seglake.write.input.streams import locate


class Inputs(NamedTuple):
    """What a run reads, what it leaves out as ingested before, and what changed since."""

    files: list[SourceFile]
    skipped: list[SourceFile]
    changed: list[SourceFile]


class Version(NamedTuple):
    """How a file looked when it was ingested."""

    size: int
    modified_ms: int
    etag: str | None


def freeze(
    store: Store, pipeline: Pipeline, run_id: str, listing: Callable[[], list[SourceFile]]
) -> list[SourceFile]:
    """The input list of the run key; `listing` makes it if no attempt has frozen one before.

    Raises ConfigError if it was frozen from other `input.paths`, CorruptData if it is damaged.
    """
    key = inputs_key(pipeline.topic.name, pipeline.name, run_id)
    try:
        text = store.read_all(key)
    except MissingObject:
        files = [list(file) for file in listing()]
        made = {"format": 1, "run_id": run_id, "paths": pipeline.input.paths, "files": files}
        store.put_if_absent(key, json.dumps(made).encode())
        text = store.read_all(key)  # another attempt may have been first
    frozen = _thaw(bytes(text), key)
    if frozen.paths != list(pipeline.input.paths):
        raise ConfigError(
            f"run {run_id!r} of pipeline {pipeline.name!r} froze its input from {frozen.paths}, "
            f"and input.paths is now {list(pipeline.input.paths)}: give this run another --run-id"
        )
    return frozen.files


class _Frozen(BaseModel):
    """What stands in the object that `freeze` writes."""

    format: Literal[1]
    paths: list[str]
    files: list[SourceFile]


def _thaw(text: bytes, key: str) -> _Frozen:
    try:
        return _Frozen.model_validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        what = f"this is not the input list of a run: {where}: {first['msg']}"
        raise CorruptData(f"{what}; give the run another --run-id", file=key) from None


def require_unchanged(file: SourceFile, pipeline: Pipeline) -> None:
    """Raise InputError if the file is not the one that was listed."""
    root, key = locate(file.path)
    try:
        found = Version(*open_store(root, pipeline.storage).stat(key))
    except StoreError as error:
        raise InputError(f"{file.path}: cannot be read: {error}; check path and rights") from error
    if not _same(file, found):
        raise InputError(
            f"{file.path} changed since this run listed it: run again with another --run-id, when "
            "nothing writes to it any more"
        )


def known_sources(sources: pa.Table, files: list[SourceFile]) -> dict[str, list[Version]]:
    """What the catalog's source rows say about these files, by path."""
    paths = pa.array([file.path for file in files], pa.string())
    rows = sources.filter(pc.is_in(sources["path"], paths))
    known: dict[str, list[Version]] = {}
    columns: list[list[Any]]
    columns = [rows[name].to_pylist() for name in ("path", "size_bytes", "modified_ms", "etag")]
    for path, *version in zip(*columns, strict=True):
        known.setdefault(path, []).append(Version(*version))
    return known


def choose(files: list[SourceFile], known: Mapping[str, list[Version]], policy: str) -> Inputs:
    """Divide a run's files by what the topic has already.

    Raises InputError for a changed file under policy "fail".
    """
    inputs = Inputs([], [], [])
    for file in files:
        versions = known.get(file.path)
        if versions is None:
            inputs.files.append(file)
        elif any(_same(file, version) for version in versions):
            inputs.skipped.append(file)
        else:
            inputs.changed.append(file)
    if inputs.changed and policy == "fail":
        raise InputError(
            f"{inputs.changed[0].path} changed after it was ingested ({len(inputs.changed)} such "
            "files): set on_changed_source = 'skip' or 'ingest-as-new', or give it a new name"
        )
    if policy == "ingest-as-new":
        return inputs._replace(files=sorted([*inputs.files, *inputs.changed]))
    return inputs


def _same(file: SourceFile, known: Version) -> bool:
    """Size and etag agree; where a store gives no etag, size and modification time."""
    if file.etag and known.etag:
        return file.size == known.size and file.etag == known.etag
    return file.size == known.size and file.modified_ms == known.modified_ms
