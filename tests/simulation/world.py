"""One thread that is many processes: who runs next, what time it is, who dies.

A process is a greenlet. It hands over at each call to storage, each reading of the clock and each
sleep, and goes on when the virtual time comes to which the call took. How long a call takes, and
what goes wrong in it, comes from the process's own stream of chances. So without one process the
others draw the same, and a history can be made shorter.
"""

from __future__ import annotations

import heapq
import itertools
import re
import threading
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple, TypeVar

from greenlet import getcurrent, greenlet

from seglake.errors import StoreError

HOUR_MS = 3_600_000
BEGINNING_MS = 1_700_000_000_000
PAUSES_MS = (1_000, HOUR_MS, 25 * HOUR_MS, 50 * HOUR_MS)
HOLDS_MS = (20_000, 2 * HOUR_MS, 25.5 * HOUR_MS, 50 * HOUR_MS)
SKEWS_MS = (0, 0, 0, 0, 60_000, -60_000, 25 * HOUR_MS, -25 * HOUR_MS, 48 * HOUR_MS, -48 * HOUR_MS)
LATE_MS = (50, 2_000, 60_000)  # after which a request of a dead connection arrives all the same

_MOST_TURNS = 200_000  # of all processes together, until a history is taken for one without end

Result = TypeVar("Result")


class Crash(BaseException):
    """The process is dead: nothing that it still does has an effect."""


class TooLong(AssertionError):
    """A process calls storage without end."""


class Odds(NamedTuple):
    """How likely a call goes wrong; one that decides something does so ten times as often.

    `lost` replies and `late` requests are those of an object store alone. `pause` is the chance of
    a long stop in a usual call, `hold` that of one just before a commit.
    """

    crash: float = 0.0
    error: float = 0.0
    lost: float = 0.0
    late: float = 0.0
    pause: float = 0.0
    hold: float = 0.0


QUIET = Odds()


class Mishap(NamedTuple):
    """What goes wrong once, in the first call with `at` in its name and full key.

    Or in a later one, after `passes` such calls. The process pauses before it for `ms`. With
    `again` it does not: the request comes once more, so much later. With `cut` the request itself
    comes so much later, and gets no reply; nor do so many further calls of its process to the same
    folder.
    """

    at: str
    ms: float
    passes: int = 0
    again: bool = False
    cut: int = 0


class Halt(NamedTuple):
    """Where a script stops a process: at its first requests whose name and full key match `at`.

    It stops before the request, or after it if it is "doubled". Requests that are "lost" get no
    answer. Both kinds reach storage when the script says so.
    """

    at: str
    how: str
    requests: int


class Event(NamedTuple):
    """Something that went wrong on purpose: in which call of which process."""

    process: str
    call: int
    what: str


class Told(NamedTuple):
    """A line of the trace: a call, and its result in short."""

    at_ms: int
    process: str
    call: int
    what: str


class World:
    """The virtual time, the processes, and what is to happen later.

    `mended` are the (process, call) at which nothing goes wrong, whatever is drawn.
    """

    def __init__(self, seed: int, odds: Odds, mended: frozenset[tuple[str, int]] = frozenset()):
        self.seed, self.odds, self.mended = seed, odds, mended
        self.now_ms = float(BEGINNING_MS)
        self.events: list[Event] = []
        self.trace: list[Told] | None = None
        self.running: Process | None = None
        self._hub, self.thread = getcurrent(), threading.get_ident()
        self._due: list[tuple[float, int, Process | Callable[[], None]]] = []
        self._number = itertools.count()
        self.processes: list[Process] = []
        self.lost: list[Callable[[], None]] = []  # requests that a script lets arrive

    def start(self, process: Process, after_ms: float = 0) -> None:
        """Let a process begin."""
        self.processes.append(process)
        self.later(after_ms, process)

    def later(self, after_ms: float, what: Process | Callable[[], None]) -> None:
        """Let a process go on, or something happen, when so much time has passed."""
        heapq.heappush(self._due, (self.now_ms + after_ms, next(self._number), what))

    def run(self) -> None:
        """Until everybody has ended. Raises what a process raises."""
        for _ in range(_MOST_TURNS):
            if not self._due:
                return
            at_ms, _, what = heapq.heappop(self._due)
            self.now_ms = max(self.now_ms, at_ms)
            if isinstance(what, Process):
                self.running = what
                try:
                    what.switch()
                finally:
                    self.running = None
            else:
                what()
        raise TooLong("the history does not end")

    def is_next(self, after_ms: float) -> bool:
        """Whether nothing happens before so much time has passed; then that time passes."""
        if self._due and self._due[0][0] <= self.now_ms + after_ms:
            return False
        self.now_ms += after_ms
        return True

    def tell(self, process: Process | None, what: str) -> None:
        """Add a line to the trace, if there is one."""
        if self.trace is not None:
            name, call = (process.name, process.calls) if process else ("", 0)
            self.trace.append(Told(int(self.now_ms), name, call, what))


@dataclass(eq=False)
class Process:
    """A process of its own clock; `do` is all that it does.

    It dies before its first write of something that has `doomed` in its name, and has its `mishap`.
    """

    world: World
    name: str
    do: Callable[[], Any]
    skew_ms: int = 0
    odds: Odds = QUIET
    calls: int = 0
    dead: bool = False
    patience: int = 50_000  # calls until it is taken for one without end
    doomed: str = ""
    mishap: Mishap | None = None
    cut_off: str = ""  # the folder whose calls get no reply, so many more of them
    cut_left: int = 0
    halt: Halt | None = None
    about: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.chance = Random(f"{self.world.seed} {self.name}")
        self.ids = Random(f"{self.world.seed} ids {self.name}")
        self.ended = False
        self._greenlet = greenlet(self._run)

    def _run(self) -> None:
        try:
            self.do()
        except Crash:
            pass
        finally:
            self.ended = True

    def switch(self) -> None:
        """Go on with it."""
        self._greenlet.switch()

    def wait(self, ms: float) -> None:
        """Hand over until so much time has passed."""
        if self.dead:
            raise Crash
        if not self.world.is_next(ms):
            self.world.later(ms, self)
            self.world._hub.switch()
        if self.dead:
            raise Crash

    def die(self, what: str) -> None:
        """Nothing that follows has an effect."""
        self.dead = True
        self._note(what)
        raise Crash

    def call(
        self,
        what: str,
        effect: Callable[[], Result],
        *,
        writes: bool = False,
        decides: int = 0,
        place: str = "",
    ) -> Result:
        """A call to storage: time passes, others run, and it may go wrong.

        `place` is its name with the full key.
        """
        if self.dead:
            raise Crash
        self.calls += 1
        if self.calls > self.patience:
            raise TooLong(f"{self.name} made {self.calls} calls, and goes on: {what}")
        if self.halt and re.match(self.halt.at, place):
            return self._halt(self.halt, what, effect)
        if self.mishap and self.mishap.at in place:
            self._reach(self.mishap, place, effect)
        elif self.cut_off and self.cut_off in place:
            self.cut_left -= 1
            self.cut_off = self.cut_off if self.cut_left else ""
            self.wait(30)
            raise StoreError(f"{what}: no reply")
        fault, share = self._fault(writes=writes, decides=decides)
        if writes and self.doomed and self.doomed in what:
            fault = self._unless_mended("crash before")
        self._before(fault, share, what)
        if fault == "late":
            self._note(f"late: {what}")
            self.world.later(_late_ms(share), _silently(effect))
            raise StoreError(f"{what}: no reply")
        result = effect()
        if self.world.trace is not None:
            self.world.tell(self, f"{what} {_short(result)}".rstrip())
        if fault == "doubled":
            self._note(f"doubled: {what}")
            self.world.later(_late_ms(share), _silently(effect))
        self._after(fault, what)
        return result

    def _halt(self, halt: Halt, what: str, effect: Callable[[], Result]) -> Result:
        """Stop until a script lets this process go on, or lose the request."""
        self.halt = halt._replace(requests=halt.requests - 1) if halt.requests > 1 else None
        if halt.how == "lost":
            self._note(f"late: {what}")
            self.world.lost.append(_silently(effect))
            raise StoreError(f"{what}: no reply")
        if halt.how == "doubled":
            result = effect()
            self.world.lost.append(_silently(effect))
        self._note(f"stops at: {what}")
        self.world._hub.switch()
        if self.dead:
            raise Crash
        return result if halt.how == "doubled" else effect()

    def _reach(self, mishap: Mishap, place: str, effect: Callable[[], Any]) -> None:
        """Have the mishap, or pass: this is a call in which it may be."""
        left = mishap.passes - 1
        self.mishap = mishap._replace(passes=left) if left >= 0 else None
        what = "late" if mishap.cut else "doubled" if mishap.again else "pause before a call"
        if self.mishap or not self._unless_mended(what):
            return
        self._note(f"{what}: {place}")
        if mishap.cut:
            self.world.later(mishap.ms, _silently(effect))
            self.cut_off, self.cut_left = mishap.at.partition(" ")[2], mishap.cut
            raise StoreError(f"{place}: no reply")
        if mishap.again:
            self.world.later(mishap.ms, _silently(effect))
        else:
            self.wait(mishap.ms)

    def _before(self, fault: str, share: float, what: str) -> None:
        if fault.startswith("pause"):
            self._note(f"{fault}: {what}")
            pauses_ms = PAUSES_MS if fault == "pause" else HOLDS_MS
            self.wait(pauses_ms[int(share * len(pauses_ms))])
        else:
            self.wait(1 + 30 * share)
        if fault == "crash before":
            self.die(f"dies before {what}")
        if fault == "error before":
            self._note(f"error instead of {what}")
            raise StoreError(f"{what}: the connection was reset")

    def _after(self, fault: str, what: str) -> None:
        if fault == "crash after":
            self.die(f"dies after {what}")
        if fault == "error after":
            self._note(f"lost reply: {what}")
            raise StoreError(f"{what}: the connection was reset")

    def _fault(self, *, writes: bool, decides: int) -> tuple[str, float]:
        """What goes wrong in this call, and a number below 1 for how much."""
        draw, share = self.chance.random(), self.chance.random()
        odds = self.odds
        if odds is QUIET:
            return "", share
        if decides:
            if draw < odds.hold * decides:
                return self._unless_mended("pause before a commit"), share
            draw = (draw - odds.hold * decides) / 8
        for name, odd in (
            ("crash before", odds.crash / 2),
            ("crash after", odds.crash / 2),
            ("error before", odds.error),
            ("error after", odds.lost if writes else 0.0),
            ("late", odds.late / 2 if writes else 0.0),
            ("doubled", odds.late / 2 if writes else 0.0),
            ("pause", odds.pause),
        ):
            if draw < odd:
                return self._unless_mended(name), share
            draw -= odd
        return "", share

    def _unless_mended(self, fault: str) -> str:
        return "" if (self.name, self.calls) in self.world.mended else fault

    def _note(self, what: str) -> None:
        self.world.events.append(Event(self.name, self.calls, what))
        self.world.tell(self, f"*** {what}")


def _late_ms(share: float) -> int:
    return LATE_MS[int(share * len(LATE_MS))]


def _short(result: Any) -> str:
    """A result in a few characters that differ where results do."""
    if result is None:
        return ""
    if isinstance(result, bytes):
        return f"= {len(result)}:{zlib.crc32(result):08x}"
    return f"= {zlib.crc32(repr(result).encode()):08x}"


def _silently(effect: Callable[[], Any]) -> Callable[[], None]:
    """A request whose reply nobody waits for."""

    def arrive() -> None:
        with suppress(StoreError):
            effect()

    return arrive
