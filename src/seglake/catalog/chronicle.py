"""Chronicles: the manifests of many old commits in one object, so that `attempts/` stays small.

A chronicle tells what the manifests said, byte for byte: a rebuild of the catalog reads both. It is
one Zstandard frame with a checksum. Its first line says how many manifests follow, each on a line
of its own behind its attempt. Every attempt that it tells of is committed, and was marked so.

`seglake vacuum` writes chronicles. When one is older than the grace period, the manifests and marks
that it tells of go.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from typing import Any

import zstandard

from seglake.catalog.delta.data_files import read_at_once
from seglake.catalog.manifest import Manifest, parsed_manifest, read_manifest
from seglake.errors import CorruptData, MissingObject
from seglake.layout import CHRONICLES, is_chronicle_key, manifest_key, new_chronicle_key
from seglake.store import Listed, Store

FORMAT = 1
_MOST_BYTES = 64 * 2**20  # of manifests in a chronicle
_AT_ONCE = 64  # manifests
_log = logging.getLogger(__name__)


def tell(store: Store, lost_races: Mapping[str, int]) -> set[str]:
    """Write chronicles of some attempts, given the number of each one's lost races; returns these.

    What cannot be read as a manifest is left out. All of them must be marked as committed. Raises
    StoreError, and CorruptData if storage does not give back what was written.
    """
    told = set[str]()
    lines, size = list[bytes](), 0
    for attempt_id, manifest in _manifests(store, lost_races):
        lines.append(attempt_id.encode() + b" " + manifest)
        size += len(manifest)
        told.add(attempt_id)
        if size >= _MOST_BYTES:
            _write(store, lines)
            lines, size = [], 0
    if lines:
        _write(store, lines)
    return told


def told(store: Store) -> dict[str, Manifest]:
    """The manifests that all chronicles tell, by attempt. Raises CorruptData and StoreError.

    Of an attempt the oldest chronicle counts: a later one may tell what reached storage late.
    """
    manifests = dict[str, Manifest]()
    for item in sorted(chronicles(store), key=lambda item: item.modified_ms):
        for attempt_id, manifest in _lines(store, item.key):
            if attempt_id not in manifests:
                manifests[attempt_id] = parsed_manifest(attempt_id, manifest, item.key)
    return manifests


def told_since(store: Store, after_ms: float) -> dict[str, float]:
    """The attempts that chronicles tell of which came after a time, and when the first one came.

    A chronicle that cannot be read tells nothing; `seglake verify` names it. Raises StoreError.
    """
    attempts = dict[str, float]()
    for item in chronicles(store):
        if item.modified_ms > after_ms:
            try:
                for attempt_id, _ in _lines(store, item.key):
                    first_ms = attempts.get(attempt_id, item.modified_ms)
                    attempts[attempt_id] = min(first_ms, item.modified_ms)
            except CorruptData as error:
                _log.warning("%s", error)
    return attempts


def chronicles(store: Store) -> Iterator[Listed]:
    """All chronicles."""
    return (item for item in store.list(CHRONICLES) if is_chronicle_key(item.key))


def find_manifest(store: Store, attempt_id: str, finished_ms: int) -> Manifest:
    """The manifest of an attempt, from a chronicle if it has gone. Raises as `read_manifest`.

    Chronicles that came after `finished_ms` are asked first.
    """
    try:
        return read_manifest(store, attempt_id)
    except MissingObject:
        by_age = sorted(chronicles(store), key=lambda item: item.modified_ms)
        for item in sorted(by_age, key=lambda item: item.modified_ms < finished_ms):
            for name, manifest in _lines(store, item.key):
                if name == attempt_id:
                    return parsed_manifest(attempt_id, manifest, item.key)
        raise


def _manifests(store: Store, lost_races: Mapping[str, int]) -> Iterator[tuple[str, bytes]]:
    """The bytes of those manifests that can be read as such."""
    pairs = [*lost_races.items()]
    for first in range(0, len(pairs), _AT_ONCE):
        some = pairs[first : first + _AT_ONCE]
        keys = [manifest_key(*pair) for pair in some]
        read = read_at_once(store, lambda key: bytes(store.read_all(key)), keys)
        for (attempt_id, _), key, data in zip(some, keys, read, strict=True):
            try:
                parsed_manifest(attempt_id, data, key)
            except CorruptData as error:
                _log.warning("%s", error)
                continue
            yield attempt_id, data.replace(b"\n", b" ")


def _write(store: Store, lines: list[bytes]) -> None:
    head = json.dumps({"format": FORMAT, "manifests": len(lines)}).encode()
    data = zstandard.ZstdCompressor(write_checksum=True).compress(b"\n".join([head, *lines]))
    key = new_chronicle_key()
    store.put(key, data)
    if bytes(store.read_all(key)) != data:
        raise CorruptData("storage does not give back what was written", file=key)


def _lines(store: Store, key: str) -> Iterator[tuple[str, bytes]]:
    """Each attempt that a chronicle tells of, and its manifest. Raises CorruptData."""
    data = bytes(store.read_all(key))
    try:
        text = zstandard.ZstdDecompressor().decompress(data, allow_extra_data=False)
        first, *lines = text.split(b"\n")
        head: Any = json.loads(first)
        is_whole = head["format"] == FORMAT and head["manifests"] == len(lines)
    except (zstandard.ZstdError, ValueError, KeyError, TypeError) as error:
        raise CorruptData(f"this is not a chronicle: {error!r}", file=key) from error
    if not is_whole:
        raise CorruptData(f"a chronicle of {head} has {len(lines)} manifests", file=key)
    for line in lines:
        attempt_id, _, manifest = line.partition(b" ")
        yield attempt_id.decode(), manifest
