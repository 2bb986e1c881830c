"""Manifests: what each commit adds to the catalog, written down so that it can be rebuilt.

`attempts/<attempt>/manifest.json` is written before the commit, `attempts/<attempt>/success` after
it. A manifest with that mark is part of the history. Whether one without it is, the catalog says;
if the catalog cannot be read, only a person can say. The history needs no order: a segment is live
if a manifest adds it and no manifest replaces it, an input file is known if a manifest adds its row
and no manifest forgets its attempt.

After a lost race an attempt writes another manifest. A request of an earlier try may reach storage
late, and put the old one back. So each later try also has a key of its own: the last one counts.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, NamedTuple, get_args

from seglake.catalog.delta.data_files import read_at_once
from seglake.catalog.schema import Row, SegmentId, SegmentRow
from seglake.errors import CorruptData, MissingObject
from seglake.layout import ATTEMPTS, manifest_key, success_key
from seglake.store import Store

FORMAT = 3
_ROW_TYPES = {row_type.KIND: row_type for row_type in get_args(Row)}
_FIELDS = {
    kind: [field.name for field in fields(row_type)] for kind, row_type in _ROW_TYPES.items()
}


class Manifest(NamedTuple):
    """One commit: the rows that it adds; it removes the segments `replaced`.

    It also removes the source rows of the attempts `forgotten`. `version` is the lowest version of
    the catalog that it may make, and `lake` the lake's identity.
    """

    attempt_id: str
    rows: Sequence[Row]
    replaced: Sequence[SegmentId] = ()
    forgotten: Sequence[str] = ()
    version: int = -1
    lake: str = ""

    @property
    def segments(self) -> list[SegmentRow]:
        """The segments that it adds."""
        return [row for row in self.rows if isinstance(row, SegmentRow)]


def write_manifest(store: Store, manifest: Manifest, lost_races: int = 0) -> None:
    """Write the manifest of a commit to come; it replaces that of an earlier try.

    `lost_races` counts the earlier tries.
    """
    rows = [{"kind": row.KIND, **_values(row)} for row in manifest.rows]
    replaced = [segment._asdict() for segment in manifest.replaced]
    content = {
        "format": FORMAT,
        "version": manifest.version,
        "rows": rows,
        "replaced": replaced,
        "forgotten": list(manifest.forgotten),
        "lake": manifest.lake,
    }
    data = json.dumps(content).encode()
    for number in sorted({lost_races, 0}, reverse=True):
        store.put(manifest_key(manifest.attempt_id, number), data)


def _values(row: Row) -> dict[str, Any]:
    """Return the fields of a row that are not None."""
    names = _FIELDS[row.KIND]  # `asdict` would copy every value
    return {name: value for name in names if (value := getattr(row, name)) is not None}


def mark_committed(store: Store, attempt_id: str) -> None:
    """Mark the manifest of an attempt as committed."""
    store.put(success_key(attempt_id), b"")


def lacks_mark(store: Store, attempt_id: str) -> bool:
    """Whether a committed attempt has a manifest, and no mark."""
    return not _is_there(store, success_key(attempt_id)) and _is_there(
        store, manifest_key(attempt_id)
    )


def _is_there(store: Store, key: str) -> bool:
    try:
        store.size(key)
    except MissingObject:
        return False
    return True


def unmarked(store: Store) -> dict[str, int]:
    """The attempts with a manifest and no mark, with the time at which the manifest was written.

    They failed, are about to commit, or died between their commit and the mark. The time is that
    of storage, in milliseconds.
    """
    written: dict[str, int] = {}
    marked = set[str]()
    for item in store.list(ATTEMPTS):
        attempt_id, _, name = item.key.removeprefix(f"{ATTEMPTS}/").partition("/")
        if name == "manifest.json":
            written[attempt_id] = item.modified_ms
        elif name == "success":
            marked.add(attempt_id)
    return {attempt_id: ms for attempt_id, ms in written.items() if attempt_id not in marked}


def read_manifest(store: Store, attempt_id: str, lost_races: int = 0) -> Manifest:
    """The manifest of an attempt. Raises MissingObject, and CorruptData if it is not a manifest."""
    key = manifest_key(attempt_id, lost_races)
    return parsed_manifest(attempt_id, bytes(store.read_all(key)), key)


def parsed_manifest(attempt_id: str, data: bytes, key: str) -> Manifest:
    """The manifest that an object has. Raises CorruptData if it is not one."""
    try:
        content: Any = json.loads(data)
        if content["format"] != FORMAT:
            raise CorruptData(f"a manifest of format {content['format']}, not {FORMAT}", file=key)
        rows: list[Row] = [_ROW_TYPES[row.pop("kind")](**row) for row in content["rows"]]
        replaced = [SegmentId(**fields) for fields in content["replaced"]]
        forgotten = list(map(str, content["forgotten"]))
        version, lake = int(content["version"]), str(content["lake"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptData(f"this is not a manifest: {error!r}", file=key) from error
    return Manifest(attempt_id, rows, replaced, forgotten, version, lake)


def read_manifests(store: Store, lost_races: Mapping[str, int]) -> dict[str, Manifest]:
    """The manifests of some attempts, given the number of each one's lost races.

    They are read side by side where a read waits for a network. Raises as `read_manifest`.
    """
    pairs = [*lost_races.items()]
    manifests = read_at_once(store, lambda pair: read_manifest(store, *pair), pairs)
    return dict(zip(lost_races, manifests, strict=True))
