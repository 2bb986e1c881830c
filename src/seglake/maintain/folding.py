"""Old manifests are folded into chronicles, so that what a vacuum lists does not grow with history.

    manifests and marks older than the grace period, a thousand at least → chronicles
    chronicles older than the grace period → their manifests, then their marks, go

A reader of manifests that began before the one sees the manifests, one that begins later both.
"""

from __future__ import annotations

import contextlib
from collections.abc import Container
from typing import NamedTuple

from seglake import layout
from seglake.catalog.chronicle import tell
from seglake.errors import CorruptData
from seglake.store import Store

_FEW = 1000  # commits whose manifests stay as they are


class _Written(NamedTuple):
    """What an attempt has: its last manifest, whether a mark, and its newest object's time.

    It is `unfinished` if it has an object that its commit does not explain, such as an erasure's
    list.
    """

    lost_races: int = -1
    marked: bool = False
    newest_ms: float = 0
    unfinished: bool = False


def fold(store: Store, told: Container[str], oldest_ms: float, *, dry_run: bool) -> int:
    """Fold the manifests of commits that are older than a time; returns how many there are.

    `told` are those of young chronicles. It is done only for many at once. Raises StoreError.
    """
    old = {
        attempt_id: each.lost_races
        for attempt_id, each in sorted(_written(store).items())
        if each.marked
        and not each.unfinished
        and each.lost_races >= 0
        and each.newest_ms <= oldest_ms
        and attempt_id not in told
    }
    if len(old) < _FEW:
        return 0
    return len(old if dry_run else tell(store, old))


def _written(store: Store) -> dict[str, _Written]:
    attempts = dict[str, _Written]()
    for item in store.list(layout.ATTEMPTS):
        with contextlib.suppress(CorruptData):  # a key that Seglake does not write
            attempt_id, name = layout.parse_attempt_key(item.key)
            before = attempts.get(attempt_id, _Written())
            number = layout.lost_races(name)
            attempts[attempt_id] = _Written(
                max(before.lost_races, -1 if number is None else number),
                before.marked or name == "success",
                max(before.newest_ms, item.modified_ms),
                before.unfinished or not layout.is_of_commit(name),
            )
    return attempts
