"""What each commit put into the catalog, kept beside the segments: the catalog can be made again.

`attempts/<attempt>/manifest.json` is written before the commit, `attempts/<attempt>/success` after
it. A manifest with that mark is part of the history; one without it may or may not be, and only a
person can tell. The history needs no order: live is every segment that a manifest added and none
replaced.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, NamedTuple, get_args

from seglake.catalog.rows import Row, SegmentRow
from seglake.errors import CorruptData
from seglake.layout import manifest_key, success_key
from seglake.store import Store

FORMAT = 1
_ROW_TYPES = {row_type.KIND: row_type for row_type in get_args(Row)}


class SegmentId(NamedTuple):
    """What tells a segment row from every other one that there ever was."""

    topic: str
    partition: int
    base_offset: int
    attempt_id: str
    index_attempt_id: str

    @staticmethod
    def of(row: SegmentRow) -> SegmentId:
        """The id of a row."""
        return SegmentId(*(getattr(row, name) for name in SegmentId._fields))


class Manifest(NamedTuple):
    """One commit: the rows that it added, and the segments that it took away."""

    attempt_id: str
    rows: Sequence[Row]
    replaced: Sequence[SegmentId]


def write_manifest(store: Store, manifest: Manifest) -> None:
    """Write down what is about to be committed, replacing what an earlier try wrote."""
    rows = [{"kind": row.KIND, **asdict(row)} for row in manifest.rows]
    replaced = [segment._asdict() for segment in manifest.replaced]
    content = {"format": FORMAT, "rows": rows, "replaced": replaced}
    store.put(manifest_key(manifest.attempt_id), json.dumps(content).encode())


def mark_committed(store: Store, attempt_id: str) -> None:
    """Say that the manifest of this attempt is in the catalog."""
    store.put(success_key(attempt_id), b"")


def read_manifest(store: Store, attempt_id: str) -> Manifest:
    """The manifest of an attempt. Raises MissingObject, and CorruptData if it is none of ours."""
    key = manifest_key(attempt_id)
    try:
        content: Any = json.loads(bytes(store.read_all(key)))
        if content["format"] != FORMAT:
            raise CorruptData(f"a manifest of format {content['format']}, not {FORMAT}", file=key)
        rows = [_row(fields) for fields in content["rows"]]
        replaced = [SegmentId(**fields) for fields in content["replaced"]]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptData(f"this is not a manifest: {error!r}", file=key) from error
    return Manifest(attempt_id, rows, replaced)


def _row(fields: dict[str, Any]) -> Row:
    row: Row = _ROW_TYPES[fields.pop("kind")](**fields)
    return row
