"""Clients of all kinds, good and bad, without a pause.

One topic stays as it is, another one changes every second: runs, merges, deleted records, vacuums.
Memory, descriptors, threads and latency are looked at all the time. They may rise at first, while
caches fill; after that none may grow. Every record that arrives is compared.
"""

import itertools
import random
import statistics
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import seglake
from seglake.maintain.vacuum import vacuum
from tests.harness.lake_server import Wire
from tests.harness.server_process import ServerProcess
from tests.makers.fetches import EARLIEST, LATEST, Wanted, everything, fetch, offset_at, records_in
from tests.makers.lakes import Event, LakeMaker
from tests.makers.served import SPAN_MS, T, rich_lake, time_name, window_of

MEMORY_MB, DESCRIPTORS, THREADS = 40, 20, 4  # by which they may grow in the last two thirds
LIMITS = {"memory_mb": MEMORY_MB, "descriptors": DESCRIPTORS, "threads": THREADS}
CLIENTS = 4
CHANGING = "changing"
GONE = (1, 3, 6, 56)  # out of range, or its files were just deleted; or there is no such topic yet


class Look(NamedTuple):
    """What the server took at one moment, and the median seconds of a lookup then."""

    memory_mb: float
    descriptors: int
    threads: int
    seconds: float


class Soak:
    """Clients at work on one server until they are told to stop."""

    def __init__(self, server: ServerProcess, maker: LakeMaker) -> None:
        self._server, self._maker = server, maker
        self._records = {p: maker.records(p) for p in range(3)}
        self._stopped = threading.Event()
        self.done, self.failures = 0, list[str]()

    def run(self, seconds: float, look_every: float = 1.0) -> list[Look]:
        """Work for so long; what was seen in each look."""
        threads = [threading.Thread(target=self._work, args=(n,)) for n in range(CLIENTS)]
        threads.append(threading.Thread(target=self._change))
        for thread in threads:
            thread.start()
        looks, deadline = list[Look](), time.monotonic() + seconds
        try:
            while time.monotonic() < deadline and not self.failures:
                looks.append(self._look())
                time.sleep(look_every)
        finally:
            self._stopped.set()
            for thread in threads:
                thread.join()
        return looks

    def _look(self) -> Look:
        times = []
        with Wire(self._server.address) as wire:
            for number in range(20):
                started = time.perf_counter()
                offset_at(wire, "events", 0, T + 997 * number)
                times.append(time.perf_counter() - started)
        server = self._server
        seconds = statistics.median(times)
        return Look(server.memory_mb(), server.descriptors(), server.threads(), seconds)

    def _change(self) -> None:
        try:
            self._changes()
        except Exception as error:
            self.failures.append(f"a change: {type(error).__name__}: {error}")

    def _changes(self) -> None:
        """Change a topic whose values are the offsets, until the end."""
        root, changing = str(self._maker.root), LakeMaker(self._maker.root)
        changing.topic, end = CHANGING, 0
        for number in itertools.count(1):
            changing.run({0: [Event(T + at, value=b"%d" % at) for at in range(end, end + 50)]})
            end += 50
            if number % 7 == 0:
                seglake.merge(root, CHANGING, everything=True)
            if number % 20 == 0:
                seglake.delete_records(root, CHANGING, {0: end - 500})
                vacuum(root, dry_run=False, grace_hours=0, retention_hours=0)
            if self._stopped.wait(1):
                return

    def _work(self, seed: int) -> None:
        chance = random.Random(seed)
        works: list[Callable[[random.Random], None]] = [
            self._all, self._changing, self._window, self._pieces, self._nonsense, self._hang_up,
        ]  # fmt: skip
        while not self._stopped.is_set():
            work = chance.choice(works)
            try:
                work(chance)
            except Exception as error:
                self.failures.append(f"{work.__name__}: {type(error).__name__}: {error}")
                return
            self.done += 1

    def _all(self, chance: random.Random) -> None:
        partition = chance.randrange(3)
        with Wire(self._server.address) as wire:
            data = b"".join(
                everything(wire, "events", partition, max_bytes=chance.randint(1, 10**5))
            )
        assert records_in(data, partition) == self._records[partition]

    def _changing(self, _chance: random.Random) -> None:
        """The log start may move meanwhile, and files go: then the client begins again."""
        with Wire(self._server.address) as wire:
            code, offset, _ = offset_at(wire, CHANGING, 0, EARLIEST)
            while code == 0:
                (got,) = fetch(wire, CHANGING, [Wanted(0, offset)])
                assert got.code in (0, *GONE)
                code = got.code or int(not got.data)
                for record in records_in(got.data, 0, offset):
                    assert (record.offset, record.value) == (offset, b"%d" % offset)
                    offset += 1

    def _window(self, chance: random.Random) -> None:
        start = T + chance.randrange(5 * SPAN_MS)
        end = start + chance.randint(1, SPAN_MS)
        name = f"events.{time_name(start)}.{time_name(end)}"
        with Wire(self._server.address) as wire:
            data = b"".join(everything(wire, name, 0))
        assert records_in(data, 0) == window_of(self._records[0], start, end)

    def _pieces(self, chance: random.Random) -> None:
        with Wire(self._server.address) as wire:
            _, end, _ = offset_at(wire, "events", 0, LATEST)
            for _ in range(20):
                offset = chance.randint(0, end)
                (got,) = fetch(wire, "events", [Wanted(0, offset, 3000)], chance.randint(10, 18))
                assert got.code == 0

    def _nonsense(self, chance: random.Random) -> None:
        with Wire(self._server.address) as wire:
            wire.send_bytes(struct.pack(">hh", chance.randint(0, 80), 1) + chance.randbytes(40))
            wire.send_raw(struct.pack(">i", 2**30))
            wire.receive()

    def _hang_up(self, chance: random.Random) -> None:
        wire = Wire(self._server.address)
        wire.send_raw(struct.pack(">i", 1000) + chance.randbytes(chance.randrange(900)))
        wire.close()


def growth(looks: list[Look]) -> list[str]:
    """What grew in the last two thirds, in sentences."""
    third = len(looks) // 3
    before, after = looks[third : 2 * third], looks[2 * third :]
    found = []
    for name, limit in LIMITS.items():
        first, last = (
            statistics.median(getattr(look, name) for look in some) for some in (before, after)
        )
        if last > first + limit:
            found.append(f"{name} grew from {first:.0f} to {last:.0f}")
    first, last = (statistics.median(look.seconds for look in some) for some in (before, after))
    if last > 5 * first + 0.005:
        found.append(f"a lookup took {1e6 * first:.0f} µs, and {1e6 * last:.0f} µs at the end")
    return found


def soak(seconds: float, folder: Path, look_every: float = 1.0) -> tuple[list[str], str]:
    """What is wrong after so long, and a sentence about what was done."""
    maker = rich_lake(folder / "lake")
    with ServerProcess(maker.root, folder) as server:
        work = Soak(server, maker)
        looks = work.run(seconds, look_every)
        wrong = work.failures + growth(looks)
        if code := server.stop():
            wrong.append(f"the server ended with {code}")
        if "Traceback" in server.told():
            wrong.append(f"the log has a traceback: {server.told()[-3000:]}")
    last = looks[-1]
    return wrong, (
        f"{work.done:,} pieces of work; {last.memory_mb:.0f} MB, {last.descriptors} descriptors, "
        f"{last.threads} threads, {1e6 * last.seconds:.0f} µs for a lookup"
    )
