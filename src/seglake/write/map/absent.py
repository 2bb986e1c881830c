"""Fields that the pipeline names and no row has: most often one is misspelt.

Only JSON lines can lack a field without an error; other formats check the names beforehand.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from seglake.config import Pipeline
from seglake.write.rows.records import Extracted
from seglake.write.rows.rows import nearest

_NAMES, _NAME_LENGTH = 200, 100  # of the members of one row that are remembered


class AbsentFields(NamedTuple):
    """The fields that no row of some rows has, and the names of the members of one row.

    `fields` is None if there are no rows.
    """

    fields: list[str] | None
    names: list[str]

    def and_in(self, others: AbsentFields) -> AbsentFields:
        """Those of these rows and others together."""
        if self.fields is None or others.fields is None:
            return others if self.fields is None else self
        fields = [name for name in self.fields if name in others.fields]
        return AbsentFields(fields, self.names or others.names)

    def sentences(self, pipeline: Pipeline) -> list[str]:
        """A sentence for each setting that names an absent field, with the nearest name."""
        return [
            f"{setting} {name!r} is in no row; {nearest(name, self.names, 'a row')}"
            for setting, names in _settings(pipeline).items()
            for name in names
            if name in (self.fields or ())
        ]


NO_ROWS = AbsentFields(None, [])


def absent_in(chunk: Extracted) -> AbsentFields:
    """The fields that no row of a chunk has."""
    if chunk.absent is None:
        return NO_ROWS
    fields, row = chunk.absent
    return AbsentFields(fields, list(islice(_names(row), _NAMES)) if fields else [])


def _settings(pipeline: Pipeline) -> dict[str, Sequence[str]]:
    """The names of fields in each setting that has some."""
    named: dict[str, Sequence[str | None]] = {
        "timestamp.field": [pipeline.timestamp.field],
        "timestamp.fields": pipeline.timestamp.fields,
        "key.fields": pipeline.key.fields,
        "value.field": [pipeline.value.field],
        "value.columns": pipeline.value.columns,
        "headers.fields": pipeline.headers.fields,
        "headers.array_field": [pipeline.headers.array_field],
        "topic.partition_field": [pipeline.topic.partition_field],
        "topic.offset_field": [pipeline.topic.offset_field],
        "timestamp.type_field": [pipeline.timestamp.type_field],
    }
    return {setting: [name for name in names if name] for setting, names in named.items()}


def _names(row: bytes) -> Iterator[str]:
    """The names of the members of a JSON object, those of nested objects with dots."""
    try:
        level: list[tuple[str, Any]] = [("", json.loads(row))]
    except (ValueError, RecursionError):
        return
    while level:
        below = []
        for prefix, members in level:
            for name, value in members.items():
                yield f"{prefix}{name}"[:_NAME_LENGTH]
                if isinstance(value, dict):
                    below.append((f"{prefix}{name}.", value))
        level = below
