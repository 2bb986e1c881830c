"""Triggers for Airflow's asset watchers: they look at a lake again and again for what is new.

A DAG file is parsed again and again, so what reads a lake is imported when a trigger runs.

A watcher keeps its cursor in the state store of its asset. It saves a cursor one look after it gave
the events before it to Airflow, which has stored them by then. So a triggerer that dies loses no
event, and may send the last ones again. A look that fails is logged and repeated.
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
    """Gives Airflow the events of a watch, which has the same arguments, all of them JSON."""

    asset_state_store: Any  # set by the triggerer of a watcher, else None

    def __init__(self, poll_seconds: float, **arguments: Any) -> None:
        super().__init__()
        if poll_seconds <= 0:
            raise UsageError(f"poll_seconds is {poll_seconds}; give more than 0")
        self._poll_seconds, self._arguments = poll_seconds, arguments

    @abstractmethod
    def _watch(self) -> Watch:
        """Return the watch whose events these are."""

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the path of the class, and its arguments."""
        kind = type(self)
        arguments = {**self._arguments, "poll_seconds": self._poll_seconds}
        return f"{kind.__module__}.{kind.__qualname__}", arguments

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Events, as long as the triggerer runs."""
        watch = await asyncio.to_thread(self._watch)
        saved = cursor = await self._saved()
        while True:
            events, behind = await self._look(watch, cursor)
            settled = cursor if events else behind  # Airflow has the events before it
            if settled is not None and settled != saved and await self._save(settled):
                saved = settled
            for event in events:
                self.log.info("%s: %s", self, event)
                yield TriggerEvent(event)
                await asyncio.sleep(self._poll_seconds)  # else Airflow starts one run for several
            cursor = behind
            if not events:
                await asyncio.sleep(self._poll_seconds)

    async def _look(self, watch: Watch, cursor: Cursor | None) -> tuple[list[Event], Cursor | None]:
        try:
            return await asyncio.to_thread(watch.look, cursor)
        except Exception as error:  # a watcher outlives whatever happens to a look
            self.log.warning("%s looks again in %s s: %s", self, self._poll_seconds, error)
            return [], cursor

    async def _saved(self) -> Cursor | None:
        """Return the cursor of an earlier triggerer. Wait for it, or events would be lost."""
        while self.asset_state_store is not None:
            try:
                saved: Cursor | None = await self.asset_state_store.aget(self._key)
            except ValueError as error:  # several assets have this watcher
                self.log.warning("%s begins anew with every triggerer: %s", self, error)
                self.asset_state_store = None
            except Exception as error:
                self.log.warning("%s waits for its cursor: %s", self, error)
                await asyncio.sleep(self._poll_seconds)
            else:
                return saved
        return None

    async def _save(self, cursor: Cursor) -> bool:
        if self.asset_state_store is None:
            return False
        try:
            await self.asset_state_store.aset(self._key, cursor)
        except Exception as error:  # the next look tries again
            self.log.warning("%s cannot save its cursor: %s", self, error)
            return False
        return True

    @property
    def _key(self) -> str:
        """Return the key of its cursor, made of all arguments but `poll_seconds`."""
        arguments = json.dumps(self._arguments, sort_keys=True).encode()
        return f"{type(self).__name__} {sha256(arguments).hexdigest()}"


class SeglakeVersionTrigger(_LakeTrigger):
    """An event for each run of a topic that is committed, undone or replaced.

    Its payload: `topic`; `version`, in which the topic can be read as it is now; `end_offsets`, by
    partition (a text, as JSON has it); `interval`, the start and the end that the run declares, or
    null; `run_id`; `state`. Commits of maintenance give no event. A new watcher has events of what
    comes from now on. It looks every `poll_seconds`, with the credentials of the triggerer's
    environment.
    """

    def __init__(self, root: str, topic: str, *, poll_seconds: float = POLL_SECONDS) -> None:
        super().__init__(poll_seconds, root=root, topic=topic)

    def _watch(self) -> Watch:
        from seglake.airflow.watches import VersionWatch

        return VersionWatch(**self._arguments)


class SeglakeClosedTrigger(_LakeTrigger):
    """An event for each window that is complete, provided that no record exceeds the lateness.

    Windows have `window_ms` and lie side by side since 1970 in UTC. One is closed as soon as the
    committed runs declare to cover it, and `lateness_ms` behind it, without a hole. The payload is
    `topic`, `version`, `end_offsets`, and as `interval` the window. A new watcher begins with what
    closes from now on, or, if `since` is given, with the closed windows from then on. Raises
    UsageError for impossible sizes or times.
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
            raise UsageError("window_ms must be above 0, and lateness_ms not below 0")
        how = {"window_ms": window_ms, "lateness_ms": lateness_ms}
        given = None if since is None else format_ms(to_epoch_ms(since))
        super().__init__(poll_seconds, root=root, topic=topic, **how, since=given)

    def _watch(self) -> Watch:
        from seglake.airflow.watches import ClosedWatch

        return ClosedWatch(**self._arguments)
