"""A replay: a window whose records appear at their times again, at a chosen speed.

The clock of a name starts with its first fetch. Event time then runs from the start of the window,
`speed` times as fast as real time, also while no server runs: the start is kept with the offsets
that groups commit. A record appears when event time has passed it and all records before it. Index
blocks appear whole, so no record appears too early.

Fetches from offsets that have not appeared wait. Such offsets may be committed: the start may be
lost, and a merge may move the ends of index blocks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Protocol

from seglake.log.blocks.search import OffsetAndTimestamp
from seglake.serve.records.taking import Run
from seglake.serve.topics.window import WindowPartition


class Starts(Protocol):
    """When replays started, in ms of the time of day. For the event loop alone."""

    async def replay_started(self, name: str) -> int | None:
        """When the replay of this name started; None if it did not. Raises StoreError."""

    def start_replay(self, name: str) -> None:
        """Remember that it starts now, before any offset that is committed from now on."""


class Clock:
    """The event time of one replay; it stands still until `start`, which calls `on_start`.

    `ran_s` is for how many seconds it runs already; None if it does not.
    """

    def __init__(
        self,
        start_ms: int,
        speed: int,
        ran_s: float | None = None,
        on_start: Callable[[], None] = lambda: None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._start_ms, self.speed, self._now = start_ms, speed, now
        self._started = None if ran_s is None else now() - ran_s
        self._on_start = on_start

    def start(self) -> None:
        """Start, unless it runs."""
        if self._started is None:
            self._started = self._now()
            self._on_start()

    def event_time_ms(self) -> int | None:
        """The event time now; None before the start."""
        if self._started is None:
            return None
        return self._start_ms + int((self._now() - self._started) * 1000 * self.speed)

    def seconds_until(self, time_ms: int) -> float:
        """Seconds until event time has passed `time_ms`."""
        now = self.event_time_ms()
        return max(0.0, time_ms + 1 - (self._start_ms if now is None else now)) / 1000 / self.speed


class ReplayedPartition:
    """A partition of a window topic under a clock; it grows by whole index blocks."""

    def __init__(self, window: WindowPartition, clock: Clock) -> None:
        self._window, self._clock = window, clock
        self.start, self.remote = window.start, window.remote
        self._ends, self._latest = window.blocks()
        self.held_bytes = window.held_bytes + self._ends.nbytes + self._latest.nbytes

    @property
    def limit(self) -> int:
        """See `ServedPartition`."""
        return self._window.limit

    def end(self) -> int:
        """See `ServedPartition`."""
        now = self._clock.event_time_ms()
        shown = 0 if now is None else int(self._latest.searchsorted(now))
        return int(self._ends[shown - 1]) if shown else self.start

    def grows_in(self) -> float | None:
        """See `ServedPartition`."""
        self._clock.start()
        later = int(self._ends.searchsorted(self.end(), "right"))
        if later == len(self._ends):
            return None
        return self._clock.seconds_until(int(self._latest[later]))

    def runs(self, offset: int) -> Iterator[Run]:
        """See `ServedPartition`."""
        return self._window.runs(offset)

    def at_time(self, timestamp: int) -> OffsetAndTimestamp | None:
        """See `ServedPartition`."""
        return self._window.at_time(timestamp)

    def max_timestamp(self) -> OffsetAndTimestamp | None:
        """See `ServedPartition`."""
        return self._window.newest_below(self.end())

    def log_bytes(self) -> int:
        """See `ServedPartition`; what is still to come counts too."""
        return self._window.log_bytes()
