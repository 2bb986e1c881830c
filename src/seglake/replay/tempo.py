"""The speed of a replay: event time relative to real time, and records a second."""

from __future__ import annotations

import time
from collections.abc import Callable

from seglake.limits import INT64_MAX

_LONGEST_S = 0.5  # of one sleep, so that progress is shown
_SHARES = 10  # steps in which a second's records go out


class Tempo:
    """The clock of a replay. It starts when `start` is called.

    Args:
        speed: Milliseconds of event time in a millisecond; None: no clock, all is due at once.
        rate: At most so many records a second; None: no limit.
        clock: Seconds that only grow.
        sleep: Waits so many seconds.
    """

    def __init__(
        self,
        speed: float | None = None,
        rate: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._speed, self._rate, self._clock, self._sleep = speed, rate, clock, sleep
        self._begun, self._first_ms, self._sent = clock(), 0, 0

    @property
    def step(self) -> int:
        """The most records that go out between two calls of `after`."""
        return 1000 if self._rate is None else max(1, min(1000, self._rate // _SHARES))

    def start(self, first_ms: int) -> None:
        """Begin now, with the event time `first_ms`."""
        self._begun, self._first_ms = self._clock(), first_ms

    def now_ms(self) -> int:
        """The event time that is reached: records that are due at it may go out."""
        if self._speed is None:
            return INT64_MAX
        passed_ms = (self._clock() - self._begun) * 1000
        return self._first_ms + int(passed_ms * self._speed)

    def seconds_until(self, time_ms: int) -> float:
        """Seconds until this event time is reached; 0 if it is."""
        if self._speed is None:
            return 0.0
        at = self._begun + (time_ms - self._first_ms) / 1000 / self._speed
        return max(0.0, at - self._clock())

    def wait_for(self, time_ms: int) -> None:
        """Sleep until the event time is reached, half a second at most."""
        self._sleep(min(_LONGEST_S, max(0.001, self.seconds_until(time_ms))))

    def after(self, records: int) -> None:
        """Count records that went out, and sleep if they went too fast."""
        self._sent += records
        if self._rate is not None:
            early = self._begun + self._sent / self._rate - self._clock()
            if early > 0:
                self._sleep(early)
