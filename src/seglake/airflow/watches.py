"""Poll a topic for new runs or closed windows. This module does not import Airflow.

`poll(cursor)` returns events, oldest first, and the cursor for the next call. Events and cursors
are JSON values. The first call has no cursor, and returns no events except closed windows from
`since` on. Which events are new depends only on the cursor, so a watch in another process can
continue with it. If the lake has not changed, a call costs one small read.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

import seglake
from seglake.catalog.schema import RunRow
from seglake.errors import UnknownTopic, UsageError
from seglake.read.lake import Lake
from seglake.read.log import Log
from seglake.times.instants import Time, format_ms, to_epoch_ms
from seglake.times.intervals import common, without

Event = dict[str, Any]
Cursor = dict[str, Any]
Key = tuple[str, str]  # pipeline and run id

_NOTHING = -1  # the version before the lake and the topic exist

logger = logging.getLogger(__name__)


class Watch(ABC):
    """Finds new events of a topic. The lake stays open, so a refresh reads only changes."""

    def __init__(self, root: str, topic: str) -> None:
        self._root, self._topic = root, topic
        self._lake: Lake | None = None
        self._missing = ""

    def poll(self, cursor: Cursor | None) -> tuple[list[Event], Cursor]:
        """Return the events since `cursor`, and the cursor after them.

        Raises StoreError, CorruptData and UsageError. The caller can retry with the same cursor.
        """
        log = self._log()
        version = _version(log)
        if cursor is not None and cursor["version"] == version:
            return [], cursor
        events, state = self._events(log, cursor)
        return events, {"version": version, **state}

    @abstractmethod
    def _events(self, log: Log | None, cursor: Cursor | None) -> tuple[list[Event], Cursor]:
        """Return the events of a new version, and the new cursor without its version."""

    def _log(self) -> Log | None:
        """Return the topic's log, or None until the lake and the topic exist."""
        try:
            # After an error, the next call opens the lake again.
            lake, self._lake = self._lake, None
            lake = lake.refresh() if lake else seglake.open(self._root)
            self._lake = lake
            return lake.topic(self._topic)
        except UsageError as error:
            if str(error) != self._missing:
                logger.info("the lake or topic cannot be watched yet: %s", error)
            self._missing = str(error)
            return None

    def _runs(self, version: int | None = None) -> dict[Key, RunRow]:
        """Return the last row of each run in a version, by default the version of the last `_log`.

        Raises VersionExpired and UnknownTopic.
        """
        lake = self._lake if version is None else seglake.open(self._root, version)
        rows = lake.history(self._topic) if lake else []
        rows = sorted(rows, key=lambda row: row.sequence)
        return {(row.pipeline, row.run_id): row for row in rows}


class VersionWatch(Watch):
    """A watch with an event for each run that was committed, undone or replaced.

    The cursor has a version, and the time at which the last run of this version ended. The time is
    used if the version is no longer retained.
    """

    def __init__(self, root: str, topic: str) -> None:
        super().__init__(root, topic)
        self._known: tuple[int, dict[Key, RunRow]] = (_NOTHING, {})

    def _events(self, log: Log | None, cursor: Cursor | None) -> tuple[list[Event], Cursor]:
        runs = self._runs() if log else {}
        known = runs if cursor is None else self._at(cursor, runs)
        new = [run for key, run in runs.items() if _state(run) != _state(known.get(key))]
        self._known = _version(log), runs
        ended_ms = max((run.finished_at_ms for run in runs.values()), default=0)
        events = []
        for run in sorted(new, key=lambda run: run.finished_at_ms):
            if log:
                event = _window_event(log, run.interval_start_ms, run.interval_end_ms)
                events.append({**event, "run_id": run.run_id, "state": run.state})
        return events, {"ended_ms": ended_ms}

    def _at(self, cursor: Cursor, runs: dict[Key, RunRow]) -> dict[Key, RunRow]:
        """Return the runs in a cursor's version, or by their end time if the version expired."""
        version = cursor["version"]
        if version == self._known[0]:
            return self._known[1]
        try:
            return {} if version == _NOTHING else self._runs(version)
        except UnknownTopic:
            return {}
        except UsageError as error:
            what = "the watched version has expired, so new runs are found by their end time"
            logger.warning("%s: %s", what, error)
            ended_ms = cursor["ended_ms"]
            return {key: run for key, run in runs.items() if run.finished_at_ms <= ended_ms}


class ClosedWatch(Watch):
    """A watch with an event for each window that closed.

    Windows have a length of `window_ms`, and begin at its multiples since the epoch. As in
    `Log.closed`, a window is closed when the declared intervals of committed runs cover it and
    `lateness_ms` after it. The first call returns the closed windows from `since` on. The cursor
    has the version, and the windows that were already returned. A window that an undo opened is
    returned again when it closes.
    """

    def __init__(
        self, root: str, topic: str, *, window_ms: int, lateness_ms: int, since: Time | None = None
    ) -> None:
        super().__init__(root, topic)
        self._window_ms, self._lateness_ms = window_ms, lateness_ms
        self._since_ms = None if since is None else to_epoch_ms(since)

    def _events(self, log: Log | None, cursor: Cursor | None) -> tuple[list[Event], Cursor]:
        closed = self._closed(log.coverage() if log else [])
        told = self._first(closed) if cursor is None else [(a, b) for a, b in cursor["told"]]
        size = self._window_ms
        new = [at for low, high in without(closed, told) for at in range(low, high, size)]
        events = [_window_event(log, at, at + size) for at in new if log]
        return events, {"told": [list(each) for each in closed]}

    def _first(self, closed: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return the windows that the first call omits: all windows, or windows before `since`."""
        if self._since_ms is None:
            return closed
        since = -(-self._since_ms // self._window_ms) * self._window_ms
        return common(closed, [(closed[0][0], since)]) if closed else []

    def _closed(self, coverage: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return the windows that a set of intervals closes. Adjacent windows are joined."""
        size = self._window_ms
        inside = (
            (-(-low // size) * size, (high - self._lateness_ms) // size * size)
            for low, high in coverage
        )
        return [(low, high) for low, high in inside if low < high]


def _version(log: Log | None) -> int:
    return log.version if log else _NOTHING


def _state(run: RunRow | None) -> tuple[str, int] | None:
    return None if run is None else (run.state, run.sequence)


def _window_event(log: Log, start_ms: int | None, end_ms: int | None) -> Event:
    bounds = [format_ms(ms) for ms in (start_ms, end_ms) if ms is not None]
    offsets = {str(partition): offset for partition, offset in log.end_offsets().items()}
    about = {"topic": log.topic, "version": log.version, "end_offsets": offsets}
    return {**about, "interval": bounds or None}
