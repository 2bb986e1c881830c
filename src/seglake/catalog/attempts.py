"""Write and read the objects of an attempt: its claim, its manifest and its success marker.

An attempt is one try at a run or at a command of maintenance. It goes through these steps:

    1. It puts `begun`, its announcement, before it reads input or copies records. Without it, an
       erasure would not wait for an attempt that has read a key and written nothing yet.
    2. It puts `fate`, its claim "committing", unless the object exists. A vacuum or an erasure that
       assumes that the attempt is dead puts "abandoned" in the same way. The first put decides. An
       abandoned attempt stops, so it never commits files that were deleted in the meantime.
    3. It puts `manifest.json` with the rows that its commit adds, and the segments and source rows
       that it removes. A lost catalog is rebuilt from manifests, so every commit needs one. After a
       lost race, the attempt writes another manifest. The put of an earlier try may reach storage
       late and restore the older manifest. So each later try also writes its manifest under a
       separate key, and the manifest of the last try counts.
    4. It commits to the Delta table.
    5. It puts `success`, its marker. A manifest without a marker may belong to a failed attempt.
       Only the catalog can decide that. If the catalog is lost, a person must.
       If the process died before, the same run started again, the next command of maintenance
       (`transaction.write_recent_markers`) or a vacuum (`commits.write_missing_markers`) puts it.
    6. It deletes its announcement.

A claim "committing" may belong to a process that died or that pauses. A vacuum, an erasure, or the
attempt itself when it ends without a commit, overrules it in these steps:

    1. `abandon` overwrites the claim with "abandoned" and the topic.
    2. A fence is committed. After it, the attempt has a commit in an older version, or can never
       commit.
    3. If the catalog has its commit, `restore_claim` writes "committing" again. Otherwise,
       `confirm_abandoned` removes the topic. If the process dies before that, the topic remains,
       and the next process that abandons the attempt commits a fence again.

A rebuild may read manifests in any order. A segment is live if one manifest adds it and no manifest
replaces it. An input file is recorded if one manifest adds its row and no manifest forgets its
attempt.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from typing import Any, NamedTuple, get_args

import zstandard

from seglake import layout
from seglake.catalog.delta.commit_log import highest_version
from seglake.catalog.delta.data_files import read_at_once
from seglake.catalog.schema import Row, SegmentId, SegmentRow
from seglake.errors import (
    AttemptAbandoned,
    CorruptData,
    MissingObject,
    corrupt_unless_parsed,
    require_format,
    warn_on,
)
from seglake.layout import (
    CHRONICLES,
    REBUILDING,
    REBUILT,
    claim_key,
    is_archive_key,
    manifest_key,
    new_archive_key,
    success_key,
)
from seglake.store import Listed, Store

FORMAT = 3  # of a manifest
ARCHIVE_FORMAT = 1
_ABANDONED = json.dumps({"fate": "abandoned"}).encode()
_ROW_TYPES = {row_type.KIND: row_type for row_type in get_args(Row)}
_FIELDS = {
    kind: [field.name for field in fields(row_type)] for kind, row_type in _ROW_TYPES.items()
}
_MOST_BYTES = 64 * 2**20  # of manifests in an archive
_AT_ONCE = 64  # manifests
_log = logging.getLogger(__name__)


# ---------------- claims


class _Claim(NamedTuple):
    """The content of a claim. If it has a `topic`, a commit to that topic may be in progress."""

    abandoned: bool
    topic: str | None


_UNCLAIMED = _Claim(abandoned=False, topic=None)
_FAILED = _Claim(abandoned=True, topic=None)  # it has no commit that counts


def claim(store: Store, attempt_id: str, topic: str) -> None:
    """Write the claim that an attempt may commit to a topic, unless it already exists.

    Every try to commit calls this function. Raises AttemptAbandoned if the attempt was abandoned,
    and StoreError.
    """
    if not store.put_if_absent(claim_key(attempt_id), _encode_claim("committing", topic)):
        require_not_abandoned(store, attempt_id)


def require_not_abandoned(store: Store, attempt_id: str) -> None:
    """Raise AttemptAbandoned if an attempt was abandoned, or StoreError if storage failed."""
    if is_abandoned(store, attempt_id):
        raise AttemptAbandoned(
            f"a vacuum or an erasure abandoned attempt {attempt_id}, which had written nothing "
            f"for longer than the grace period. Nothing was committed. Run again with the same "
            f"run id, and give the vacuum or erasure a longer --grace-hours"
        )


def is_abandoned(store: Store, attempt_id: str) -> bool:
    """Return whether an attempt was abandoned. Raises CorruptData, StoreError."""
    return _read_claim(store, attempt_id).abandoned


def abandon(store: Store, attempt_id: str) -> str | None:
    """Forbid an attempt to commit. Return its topic if it has already claimed, else None.

    The commit of an attempt that has claimed may exist or be in progress. So if this function
    returns a topic, the caller must commit a fence, and then call `restore_claim` or
    `confirm_abandoned`.
    """
    if store.put_if_absent(claim_key(attempt_id), _ABANDONED):
        return None
    before = _read_claim(store, attempt_id)
    if not before.abandoned:
        store.put(claim_key(attempt_id), _encode_claim("abandoned", before.topic))
    return before.topic


def confirm_abandoned(store: Store, attempt_id: str) -> None:
    """Record that an abandoned attempt has no commit and can never commit."""
    store.put(claim_key(attempt_id), _ABANDONED)


def restore_claim(store: Store, attempt_id: str, topic: str) -> None:
    """Restore the claim of an attempt that had already committed when it was abandoned."""
    store.put(claim_key(attempt_id), _encode_claim("committing", topic))


def has_failed(store: Store, attempt_id: str) -> bool:
    """Return whether an attempt was abandoned and has no commit that counts.

    The log of a rebuilt catalog may still name such an attempt:

        1. A commit loses its race, and its attempt is abandoned.
        2. A rebuild makes a new log.
        3. Storage executes the request of the commit again, late. This creates a version below the
           first version of the new log.
    """
    return _read_claim(store, attempt_id) == _FAILED


def abandon_unless_claimed(store: Store, attempt_id: str) -> bool:
    """Abandon an attempt that has not claimed. Return whether it can no longer commit.

    Return False for an attempt that has claimed, unless `confirm_abandoned` was called for it.
    Raises CorruptData and StoreError.
    """
    before = _read_claim(store, attempt_id)
    return abandon(store, attempt_id) is None if before == _UNCLAIMED else before == _FAILED


def _encode_claim(decision: str, topic: str | None) -> bytes:
    return json.dumps({"fate": decision, "topic": topic}).encode()


def _read_claim(store: Store, attempt_id: str) -> _Claim:
    """Read the claim of an attempt. Return `_UNCLAIMED` if it does not exist."""
    key = claim_key(attempt_id)
    with suppress(MissingObject), corrupt_unless_parsed("the claim of an attempt", key):
        content: Any = json.loads(bytes(store.read_all(key)))
        if content["fate"] == "committing":
            return _Claim(abandoned=False, topic=str(content["topic"]))
        topic = content.get("topic")
        return _Claim(abandoned=True, topic=None if topic is None else str(topic))
    return _UNCLAIMED


# ---------------- manifests


class Manifest(NamedTuple):
    """The rows that an attempt's commit adds and removes, as the attempt writes them to storage.

    The commit adds `rows`, and removes the segments `replaced` and the source rows of the attempts
    `forgotten`. `version` is the lowest version that the commit may make. `lake` is the identity of
    the lake.
    """

    attempt_id: str
    rows: Sequence[Row]
    replaced: Sequence[SegmentId] = ()
    forgotten: Sequence[str] = ()
    version: int = -1
    lake: str = ""

    @property
    def segments(self) -> list[SegmentRow]:
        """Return the segment rows that the commit adds."""
        return [row for row in self.rows if isinstance(row, SegmentRow)]


def write_manifest(store: Store, manifest: Manifest, lost_races: int = 0) -> None:
    """Write the manifest of the next commit, after `lost_races` earlier tries."""
    content = {
        "format": FORMAT,
        "version": manifest.version,
        "rows": [{"kind": row.KIND, **_values(row)} for row in manifest.rows],
        "replaced": [segment._asdict() for segment in manifest.replaced],
        "forgotten": list(manifest.forgotten),
        "lake": manifest.lake,
    }
    data = json.dumps(content).encode()
    for number in sorted({lost_races, 0}, reverse=True):
        store.put(manifest_key(manifest.attempt_id, number), data)


def _values(row: Row) -> dict[str, Any]:
    """Return the fields of a row that are not None."""
    # `asdict` would copy every value.
    names = _FIELDS[row.KIND]
    return {name: value for name in names if (value := getattr(row, name)) is not None}


def read_manifest(store: Store, attempt_id: str, lost_races: int = 0) -> Manifest:
    """Read the manifest that an attempt wrote after a number of lost races.

    Raises MissingObject, and CorruptData if it is damaged.
    """
    key = manifest_key(attempt_id, lost_races)
    return _parsed_manifest(attempt_id, bytes(store.read_all(key)), key)


def read_manifests(store: Store, lost_races: Mapping[str, int]) -> dict[str, Manifest]:
    """Read the last manifest of each attempt, concurrently.

    `lost_races` maps each attempt to the number of its lost races. Raises what `read_manifest`
    raises.
    """
    pairs = [*lost_races.items()]
    manifests = read_at_once(store, lambda pair: read_manifest(store, *pair), pairs)
    return dict(zip(lost_races, manifests, strict=True))


def _parsed_manifest(attempt_id: str, data: bytes, key: str) -> Manifest:
    with corrupt_unless_parsed("a manifest", key):
        content: Any = json.loads(data)
        require_format(content["format"], FORMAT, "the manifest", key)
        rows: list[Row] = [_ROW_TYPES[row.pop("kind")](**row) for row in content["rows"]]
        replaced = [SegmentId(**fields) for fields in content["replaced"]]
        forgotten = list(map(str, content["forgotten"]))
        version, lake = int(content["version"]), str(content["lake"])
        return Manifest(attempt_id, rows, replaced, forgotten, version, lake)


# ---------------- markers


def mark_committed(store: Store, attempt_id: str) -> None:
    """Write the success marker of an attempt."""
    store.put(success_key(attempt_id), b"")


def lacks_marker(store: Store, attempt_id: str) -> bool:
    """Return whether an attempt has a manifest and no success marker."""
    return not _is_there(store, success_key(attempt_id)) and _is_there(
        store, manifest_key(attempt_id)
    )


def _is_there(store: Store, key: str) -> bool:
    try:
        store.size(key)
    except MissingObject:
        return False
    return True


class AttemptObjects(NamedTuple):
    """A summary of the objects of an attempt.

    `lost_races` is the number of its last manifest, or -1 without a manifest. `manifest_ms` is the
    time (ms) when `manifest.json` was written, or -1. `marked` is whether it has a success marker.
    `newest_ms` is the time of its newest object. It is `unfinished` if it has an object that is not
    part of a commit, such as the list of an erasure.
    """

    lost_races: int = -1
    manifest_ms: int = -1
    marked: bool = False
    newest_ms: int = 0
    unfinished: bool = False


def list_attempts(store: Store) -> dict[str, AttemptObjects]:
    """Return a summary of each attempt that has objects in `attempts/`. Raises StoreError."""
    attempts = dict[str, AttemptObjects]()
    for item in store.list(layout.ATTEMPTS):
        with suppress(CorruptData):  # a key that Seglake does not write
            attempt_id, name = layout.parse_attempt_key(item.key)
            before, number = attempts.get(attempt_id, AttemptObjects()), layout.lost_races(name)
            attempts[attempt_id] = AttemptObjects(
                max(before.lost_races, -1 if number is None else number),
                item.modified_ms if number == 0 else before.manifest_ms,
                before.marked or name == "success",
                max(before.newest_ms, item.modified_ms),
                before.unfinished or not layout.is_of_commit(name),
            )
    return attempts


def attempts_without_marker(store: Store) -> dict[str, int]:
    """Return the attempts that have a manifest and no success marker.

    The values are the times (ms) when the manifests were written. These attempts failed, are about
    to commit, or died between their commit and the marker.
    """
    return {
        attempt_id: each.manifest_ms
        for attempt_id, each in list_attempts(store).items()
        if each.manifest_ms >= 0 and not each.marked
    }


# ---------------- archives
# A manifest archive, `chronicles/<name>` on storage, has the manifests of many old commits, byte
# for byte, so that `attempts/` stays small. It is one Zstandard frame with a checksum. Its first
# line has the number of manifests. Each further line has an attempt, a space and its manifest.
#
#     1. A vacuum writes archives of old manifests whose attempts have markers.
#     2. When an archive is older than the grace period, a vacuum deletes the archived manifests,
#        then their markers. A reader that began before step 1 still finds the manifests. In the
#        other order, a vacuum that dies would leave manifests that look like failed attempts.


def write_archives(store: Store, lost_races: Mapping[str, int]) -> set[str]:
    """Write manifest archives for attempts that have success markers.

    `lost_races` maps each attempt to the number of its lost races. Return the archived attempts.
    Attempts with a damaged manifest are skipped. Raises StoreError, and CorruptData if storage does
    not return what was written.
    """
    archived = set[str]()
    lines, size = list[bytes](), 0
    for attempt_id, manifest in _manifests(store, lost_races):
        lines.append(attempt_id.encode() + b" " + manifest)
        size += len(manifest)
        archived.add(attempt_id)
        if size >= _MOST_BYTES:
            _write_archive(store, lines)
            lines, size = [], 0
    if lines:
        _write_archive(store, lines)
    return archived


def read_archives(store: Store) -> dict[str, Manifest]:
    """Return the archived manifests by attempt. Raises CorruptData and StoreError.

    If several archives have an attempt, the oldest archive counts. A later archive may have a
    manifest whose put reached storage late.
    """
    manifests = dict[str, Manifest]()
    for item in archives(store):
        for attempt_id, manifest in _lines(store, item.key):
            if attempt_id not in manifests:
                manifests[attempt_id] = _parsed_manifest(attempt_id, manifest, item.key)
    return manifests


def archived_since(store: Store, after_ms: float) -> dict[str, float]:
    """Return the attempts in archives written after `after_ms`, as attempt → time (ms) of archive.

    If several of these archives have an attempt, the earliest time is returned. A damaged archive
    is skipped, because `seglake verify` reports it. Raises StoreError.
    """
    attempts = dict[str, float]()
    for item in archives(store):
        if item.modified_ms > after_ms:
            with warn_on(CorruptData, "a manifest archive is not read", _log):
                for attempt_id, _ in _lines(store, item.key):
                    attempts.setdefault(attempt_id, item.modified_ms)
    return attempts


def archives(store: Store) -> list[Listed]:
    """Return the objects of all manifest archives, oldest first."""
    listed = (item for item in store.list(CHRONICLES) if is_archive_key(item.key))
    return sorted(listed, key=lambda item: item.modified_ms)


def find_manifest(store: Store, attempt_id: str, finished_ms: int) -> Manifest:
    """Read the manifest of an attempt from its object, or else from an archive.

    Archives written at or after `finished_ms` are read first. Raises what `read_manifest` raises.
    """
    try:
        return read_manifest(store, attempt_id)
    except MissingObject:
        for item in sorted(archives(store), key=lambda item: item.modified_ms < finished_ms):
            for name, manifest in _lines(store, item.key):
                if name == attempt_id:
                    return _parsed_manifest(attempt_id, manifest, item.key)
        raise


def _manifests(store: Store, lost_races: Mapping[str, int]) -> Iterator[tuple[str, bytes]]:
    """Yield each attempt and the bytes of its manifest. Skip damaged manifests with a warning."""
    pairs = [*lost_races.items()]
    for first in range(0, len(pairs), _AT_ONCE):
        some = pairs[first : first + _AT_ONCE]
        keys = [manifest_key(*pair) for pair in some]
        read = read_at_once(store, lambda key: bytes(store.read_all(key)), keys)
        for (attempt_id, _), key, data in zip(some, keys, read, strict=True):
            with warn_on(CorruptData, "a manifest is not archived", _log):
                _parsed_manifest(attempt_id, data, key)
                yield attempt_id, data.replace(b"\n", b" ")


def _write_archive(store: Store, lines: list[bytes]) -> None:
    head = json.dumps({"format": ARCHIVE_FORMAT, "manifests": len(lines)}).encode()
    data = zstandard.ZstdCompressor(write_checksum=True).compress(b"\n".join([head, *lines]))
    key = new_archive_key()
    store.put(key, data)
    if bytes(store.read_all(key)) != data:
        raise CorruptData("storage did not return the bytes that Seglake wrote", file=key)


def _lines(store: Store, key: str) -> Iterator[tuple[str, bytes]]:
    """Yield (attempt, manifest as bytes) for each manifest in an archive. Raises CorruptData."""
    data = bytes(store.read_all(key))
    with corrupt_unless_parsed("a manifest archive", key, zstandard.ZstdError):
        text = zstandard.ZstdDecompressor().decompress(data, allow_extra_data=False)
        first, *lines = text.split(b"\n")
        head: Any = json.loads(first)
    expected = {"format": ARCHIVE_FORMAT, "manifests": len(lines)}
    if head != expected:
        what = f"the header of the manifest archive is {head} instead of {expected}"
        raise CorruptData(what, file=key)
    for line in lines:
        attempt_id, _, manifest = line.partition(b" ")
        yield attempt_id.decode(), manifest


# ---------------- rebuilds
# While a rebuild of the catalog from manifests is in progress, the catalog may miss rows although
# it can be opened. An object that marks the rebuild, and is deleted at its end, is not enough: a
# late put could write it again. So there are two objects, and the second is kept:
#
#     begin   the highest version of the replaced catalog
#     end     the lowest version of the new catalog, which is higher

_NONE = -2  # the object does not exist; lower than every version
_UNREADABLE = 1 << 63  # the object is damaged; higher than every version


def begin_rebuild(store: Store, last_version: int) -> None:
    """Record that a rebuild has begun. The old catalog has versions up to `last_version`."""
    # Delete the end of an earlier rebuild. Otherwise, if a late put of an earlier begin replaces
    # this begin, this rebuild would look as if it had ended.
    store.delete([REBUILT])
    store.put(REBUILDING, json.dumps({"last_version": last_version}).encode())


def end_rebuild(store: Store, first_version: int) -> None:
    """Record that a rebuild has ended. The new catalog has versions from `first_version` on."""
    store.put(REBUILT, json.dumps({"first_version": first_version}).encode())
    store.delete([REBUILDING])


def last_known_version(store: Store) -> int:
    """Return the highest version of the catalog that storage has or a rebuild recorded, or -1.

    The version that a killed rebuild recorded counts, because the files of its new catalog may have
    lower numbers than the files of the replaced catalog. Raises StoreError.
    """
    recorded = _version(store, REBUILDING, "last_version")
    found = highest_version(store, layout.LOG_TABLE)
    return max(found, recorded) if recorded < _UNREADABLE else found


def is_rebuilding(store: Store) -> bool:
    """Return whether a rebuild has begun and has not ended. Raises StoreError."""
    begun = _version(store, REBUILDING, "last_version")
    if begun == _NONE:
        return False
    ended = _version(store, REBUILT, "first_version")
    return not begun < ended < _UNREADABLE


def _version(store: Store, key: str, name: str) -> int:
    try:
        return int(json.loads(bytes(store.read_all(key)))[name])
    except MissingObject:
        return _NONE
    except (ValueError, KeyError, TypeError):
        return _UNREADABLE
