"""Attempts at a topic that did not commit: those that may still run, and those that have ended.

As for a vacuum, an attempt whose newest unnamed object is younger than the grace period may still
run; but not if it is known that it failed, or was given up. The announcement of an attempt is such
an object. One that has written only blobs may be at any topic.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from seglake import layout
from seglake.catalog.fate import is_given_up
from seglake.catalog.retention import NeverNamed
from seglake.catalog.table import CatalogTable
from seglake.clock import now_ms
from seglake.errors import MissingObject
from seglake.maintain.clock import time_of_storage
from seglake.maintain.vacuum import (
    HOUR_MS,
    TEMPORARY,
    Named,
    Unnamed,
    find_unnamed,
    is_at_stake,
    is_fate,
    settled,
)
from seglake.store import Listed, Store

_TRIES = 20  # at a look, while commits are made
_QUARANTINED = re.compile(rf"{layout.QUARANTINE_TABLE}/topic=([^/]+)/")


class Attempts(NamedTuple):
    """The attempts that did not commit and may be at the topic, and all that are committed.

    `left` are the objects of attempts that have ended and that no version names; `remains` are the
    keys of those of `dying` attempts, which are given up, and may write more if they are alive.
    `named_rejects` are the keys of files of the quarantine that it names, or did within the grace
    period: their writers need them no more.
    """

    running: list[str]
    dying: set[str]
    committed: set[str]
    left: list[Listed]
    remains: set[str]
    named_rejects: Collection[str] = ()
    spans: Mapping[str, tuple[int, int]] = {}  # first and last write of running attempts (ms)

    def has_ended(self, attempt_id: str) -> bool:
        """Whether an attempt is committed, or given up."""
        return attempt_id in self.committed or attempt_id in self.dying


class Grace(NamedTuple):
    """How long an attempt may write nothing and still run; a dry run asks this machine's clock."""

    hours: float
    dry_run: bool


def look(table: CatalogTable, topic: str, grace: Grace, own: Collection[str] = ()) -> Attempts:
    """The attempts now; those that have ended are given up first, unless it is a dry run.

    `own` attempts are left out. Raises StoreError, CorruptData and CommitConflict.
    """
    clock = now_ms() if grace.dry_run else time_of_storage(table.store)
    find = partial(_find, table, topic, _RunningSince(clock, clock - grace.hours * HOUR_MS), own)
    return find() if grace.dry_run else settled(table, find)


class _RunningSince(NamedTuple):
    """The time, and the one since which an attempt that may still run has written (ms)."""

    now_ms: int
    oldest_ms: float


def _find(table: CatalogTable, topic: str, times: _RunningSince, own: Collection[str]) -> Attempts:
    unnamed, named = _unnamed(table, times)
    committed = named.attempts
    spans = dict[str, tuple[int, int]]()
    attempts = Attempts([], set(), committed, [], set(), named.rejects or (), spans)
    for owner, objects in unnamed.items():
        if owner is None or owner in own or not _may_be_at(table.store, topic, objects):
            continue
        if owner not in committed and any(map(is_at_stake, objects)):
            if _may_run(table.store, owner, objects, times.oldest_ms):
                attempts.running.append(owner)
                written_ms = [item.modified_ms for item in objects if not is_fate(item)]
                spans[owner] = min(written_ms), max(written_ms)
            else:
                attempts.dying.add(owner)
        if attempts.has_ended(owner):
            attempts.left.extend(objects)
        if owner in attempts.dying:
            attempts.remains.update(item.key for item in objects)
    attempts.running.sort()
    return attempts


def _unnamed(table: CatalogTable, times: _RunningSince) -> tuple[Unnamed, Named]:
    """As `find_unnamed`, where a data file that no commit names, however young, names nothing."""
    for tries_left in reversed(range(_TRIES)):
        never_named = NeverNamed.by(table, now_ms=times.now_ms)
        marked = table.unmarked(table.newest_files())
        try:
            return find_unnamed(
                table, never_named, marked, never_named, rejects_since_ms=times.oldest_ms
            )
        except MissingObject:  # a commit just named one of them
            if not tries_left:
                raise
    raise AssertionError


def _may_run(store: Store, attempt_id: str, objects: Sequence[Listed], oldest_ms: float) -> bool:
    if any(item.key.endswith("/report.json") for item in objects):  # it ended by an error
        return False
    if any(map(is_fate, objects)) and is_given_up(store, attempt_id):
        return False
    return max(item.modified_ms for item in objects if not is_fate(item)) > oldest_ms


def _may_be_at(store: Store, topic: str, objects: Sequence[Listed]) -> bool:
    """Whether an attempt with these objects may be at the topic, as far as they say.

    One that writes a tagged version copies no record.
    """
    if any(layout.parse_tag_key(item.key) for item in objects):
        return False
    topics = {_topic_of(store, item.key) for item in objects} - {None}
    return not topics or topic in topics


def _topic_of(store: Store, key: str) -> str | None:
    """The topic that an object tells of."""
    partial_write = TEMPORARY.fullmatch(key)
    if key.startswith(f"{layout.TOPICS}/"):
        return layout.parse_segment_key(partial_write[1] if partial_write else key).topic
    if match := _QUARANTINED.match(key):
        return match[1]
    if not (key.endswith(("/begun", "/fate", "/report.json")) or layout.is_rejects_key(key)):
        return None
    try:
        content: Any = json.loads(bytes(store.read_all(key)))
        return str(content["topic"])
    except MissingObject:
        return None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
