"""Triggers for Airflow's asset watchers, which poll a lake for new runs or complete windows.

Airflow parses DAG files often, so modules that read a lake are imported when a trigger runs.

A watcher keeps its cursor in the state store of its asset, so that a triggerer that dies loses no
event:

    1. A poll returns events and the cursor after them. The watcher passes the events to Airflow.
    2. The next poll begins at this cursor. Airflow has stored the events by then, so the watcher
       saves the cursor.
    3. A triggerer that dies between these steps sends the last events again when it restarts.

A poll that fails is logged and repeated.
"""

# ruff: noqa: PLC0415  # see above

from __future__ import annotations

import asyncio
import json
from abc import abstractmethod
from collections.abc import AsyncIterator
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from seglake.errors import UsageError
from seglake.times.instants import Time, format_ms, to_epoch_ms

if TYPE_CHECKING:
    from seglake.airflow.watches import Cursor, Event, Watch

POLL_SECONDS = 30.0


class _LakeTrigger(BaseEventTrigger):
    """A trigger that emits the events of a watch. Both take the same arguments, as JSON values."""

    asset_state_store: Any  # the triggerer of a watcher sets it

    def __init__(self, poll_seconds: float, **arguments: Any) -> None:
        super().__init__()
        if poll_seconds <= 0:
            raise UsageError(f"poll_seconds must be above 0, not {poll_seconds}")
        self._poll_seconds, self._arguments = poll_seconds, arguments

    @abstractmethod
    def _watch(self) -> Watch:
        """Return the watch whose events this trigger emits."""

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the import path of the class, and its arguments."""
        kind = type(self)
        arguments = {**self._arguments, "poll_seconds": self._poll_seconds}
        return f"{kind.__module__}.{kind.__qualname__}", arguments

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield events until the triggerer stops."""
        watch = await asyncio.to_thread(self._watch)
        saved = cursor = await self._saved()
        while True:
            events, behind = await self._poll(watch, cursor)
            # Airflow has stored the events before this cursor.
            settled = cursor if events else behind
            if settled is not None and settled != saved and await self._save(settled):
                saved = settled
            for event in events:
                self.log.info("%s: %s", self, event)
                yield TriggerEvent(event)
                # Airflow may start one run for several events that arrive together.
                await asyncio.sleep(self._poll_seconds)
            cursor = behind
            if not events:
                await asyncio.sleep(self._poll_seconds)

    async def _poll(self, watch: Watch, cursor: Cursor | None) -> tuple[list[Event], Cursor | None]:
        try:
            return await asyncio.to_thread(watch.poll, cursor)
        # A watcher continues after any failure of a poll.
        except Exception as error:
            after = f"{self._poll_seconds} s"
            self.log.warning("%s failed and tries again in %s: %s", self, after, error)
            return [], cursor

    async def _saved(self) -> Cursor | None:
        """Return the cursor of an earlier triggerer. Wait until it can be read."""
        while self.asset_state_store is not None:
            try:
                saved: Cursor | None = await self.asset_state_store.aget(self._key)
            # Airflow raises this if several assets share the watcher.
            except ValueError as error:
                what = "cannot save its cursor, so each new triggerer starts over"
                self.log.warning("%s %s: %s", self, what, error)
                self.asset_state_store = None
            except Exception as error:
                self.log.warning("%s cannot read its cursor and tries again: %s", self, error)
                await asyncio.sleep(self._poll_seconds)
            else:
                return saved
        return None

    async def _save(self, cursor: Cursor) -> bool:
        if self.asset_state_store is None:
            return False
        try:
            await self.asset_state_store.aset(self._key, cursor)
        # The next poll tries again.
        except Exception as error:
            self.log.warning("%s cannot save its cursor: %s", self, error)
            return False
        return True

    @property
    def _key(self) -> str:
        """Return the key of the cursor, a hash of all arguments except `poll_seconds`."""
        arguments = json.dumps(self._arguments, sort_keys=True).encode()
        return f"{type(self).__name__} {sha256(arguments).hexdigest()}"


class SeglakeVersionTrigger(_LakeTrigger):
    """A trigger that emits an event for each run of a topic that is committed, undone or replaced.

    The payload has `topic`, `run_id`, `state`, and `version`, the version of the lake after the
    run. `end_offsets` has the end offset of each partition, with its number as text. `interval` is
    the declared [start, end] of the run, or null. Maintenance emits no events. A new watcher emits
    events of later runs only. The trigger polls the lake every `poll_seconds`, with the credentials
    in the environment of the triggerer.
    """

    def __init__(self, root: str, topic: str, *, poll_seconds: float = POLL_SECONDS) -> None:
        super().__init__(poll_seconds, root=root, topic=topic)

    def _watch(self) -> Watch:
        from seglake.airflow.watches import VersionWatch

        return VersionWatch(**self._arguments)


class SeglakeClosedTrigger(_LakeTrigger):
    """A trigger that emits an event for each closed window of a topic.

    Windows have a length of `window_ms`, and begin at its multiples since 1970 in UTC. A window is
    closed when the declared intervals of committed runs cover it and `lateness_ms` after it. A
    closed window is complete, provided that no record is later than `lateness_ms`. The payload has
    `topic`, `version` and `end_offsets`, and the window as `interval`. A new watcher emits windows
    that close later, or all closed windows from `since` on. Raises UsageError for impossible sizes
    or times.
    """

    def __init__(
        self,
        root: str,
        topic: str,
        *,
        window_ms: int,
        lateness_ms: int,
        since: Time | None = None,
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        if window_ms <= 0 or lateness_ms < 0:
            raise UsageError("window_ms must be above 0, and lateness_ms 0 or more")
        how = {"window_ms": window_ms, "lateness_ms": lateness_ms}
        given = None if since is None else format_ms(to_epoch_ms(since))
        super().__init__(poll_seconds, root=root, topic=topic, **how, since=given)

    def _watch(self) -> Watch:
        from seglake.airflow.watches import ClosedWatch

        return ClosedWatch(**self._arguments)
