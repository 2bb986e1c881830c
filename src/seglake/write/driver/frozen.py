"""The frozen input list of a run.

The first attempt at a run key lists the input and writes the list. Every later attempt reads that
list, so a rerun ingests the files that the first attempt saw.
"""

import json
from collections.abc import Callable
from typing import Literal

from pydantic import BaseModel, ValidationError

from seglake.config import Pipeline
from seglake.errors import ConfigError, CorruptData, MissingObject
from seglake.layout import inputs_key
from seglake.store import Store
from seglake.write.input.files import SourceFile


def freeze(
    store: Store, pipeline: Pipeline, run_id: str, listing: Callable[[], list[SourceFile]]
) -> list[SourceFile]:
    """The input list of the run key; `listing` makes the list if no earlier attempt wrote one.

    Raises ConfigError if the list was made from other `input.paths`, CorruptData if it is damaged.
    """
    key = inputs_key(pipeline.topic.name, pipeline.name, run_id)
    try:
        text = store.read_all(key)
    except MissingObject:
        files = [list(file) for file in listing()]
        new = {"format": 1, "run_id": run_id, "paths": pipeline.input.paths, "files": files}
        store.put_if_absent(key, json.dumps(new).encode())
        text = store.read_all(key)  # another attempt may have been first
    first = _parsed(bytes(text), key)
    if first.paths != list(pipeline.input.paths):
        raise ConfigError(
            f"run {run_id!r} of pipeline {pipeline.name!r} froze its input from {first.paths}, "
            f"and input.paths is now {list(pipeline.input.paths)}: give this run another --run-id"
        )
    return first.files


class _InputList(BaseModel):
    """The content of the object that `freeze` writes."""

    format: Literal[1]
    paths: list[str]
    files: list[SourceFile]


def _parsed(text: bytes, key: str) -> _InputList:
    try:
        return _InputList.model_validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        what = f"this is not the input list of a run: {where}: {first['msg']}"
        raise CorruptData(f"{what}; give the run another --run-id", file=key) from None
