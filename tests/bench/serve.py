"""The server of Kafka's clients beside a real broker on the same files."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa

from seglake.serve.settings import Address
from tests.bench.events import numbers_in
from tests.bench.measure import Contender, Goal, Samples, Section, Table, Timed, race
from tests.bench.page_cache import hold
from tests.bench.workbench import TOPIC, Workbench, require
from tests.harness.lake_server import Wire
from tests.harness.server_process import ServerProcess
from tests.makers.fetches import offset_at
from tests.makers.served import time_name

FETCH_BYTES = 2**20
WINDOW_MS = 10_000
WARM_UP = 50  # lookups

_TEXT = """\
`seglake serve` in a process of its own, and a Kafka broker, on the same segments ({records:,}
records in {partitions} partitions, in order of arrival) and on the same machine as the clients.
Every consumer counts its records; every record of a window is compared with the plain list. The
broker's window is padded: it goes from the first record at the start to the first at the end, with
late records of other times, and without those that come later.
"""


def run(bench: Workbench) -> Section:
    """Measure."""
    records, root = len(bench.events.times), bench.lake("arrival")
    text = _TEXT.format(records=records, partitions=bench.sizes.partitions)
    section = Section("serve", "Serving Kafka's clients", text)
    with ServerProcess(root, bench.folder) as server:
        both = {"Seglake": server.address, "Kafka broker": Address(*_split(bench.broker.address))}
        java = race(
            [_java(bench, name, at)._replace(reads=[root]) for name, at in both.items()],
            bench.sizes.runs,
        )
        latencies = {name: _lookups(bench, at) for name, at in both.items()}
        windows = _windows(bench, server)
    section.tables = [
        _rates("Everything by Kafka's Java consumer", java, records),
        Table("ListOffsets by time, in µs per request", ["", "p50", "p99"],
              [[name, *values] for name, values in latencies.items()]),
        _rates(f"Windows of {WINDOW_MS // 1000} s by the Java consumer", windows,
               bench.sizes.windows, "windows/s"),
    ]  # fmt: skip
    ours, theirs = latencies.values()
    section.goals = [
        Goal("Speed of the Java consumer, relative to a broker",
             java[0].times_as_fast_as(java[1])[1], 1.0),
        Goal("Median time of ListOffsets by time, relative to a broker", ours[0] / theirs[0], 1.0,
             at_least=False),
        Goal("Speed of a window, relative to a padded read from a broker",
             windows[0].times_as_fast_as(windows[1])[1], 3.0),
    ]  # fmt: skip
    return section


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


# everything


def _java(bench: Workbench, name: str, address: Address) -> Contender:
    timing, call = bench.timing(), bench.kafka.call
    call("connect", str(address), TOPIC, bench.sizes.partitions, FETCH_BYTES, on=timing)

    def read() -> Timed:
        return Timed(call("readAll", on=timing) / 1e9, None)

    def check(_: object) -> None:
        require(call("count", on=timing) == len(bench.events.times), f"{name}: records are missing")

    return Contender(name, read, check)


# lookups


def _lookups(bench: Workbench, address: Address) -> list[float]:
    """p50 and p99 of one request after another on one connection."""
    times = bench.events.times
    wanted = np.random.default_rng(7).integers(times[0], times[-1] + 1, bench.sizes.lookups)
    taken = []
    hold([bench.lake("arrival")])
    with Wire(address) as wire:
        for time_asked in [*[int(times[0])] * WARM_UP, *wanted.tolist()]:
            started = time.perf_counter()
            code, offset, _ = offset_at(wire, TOPIC, 0, time_asked)
            taken.append(1e6 * (time.perf_counter() - started))
            require((code, offset >= 0) == (0, True), "a lookup found nothing")
    return [float(np.percentile(taken[WARM_UP:], share)) for share in (50, 99)]


# windows


def _windows(bench: Workbench, server: ServerProcess) -> list[Samples]:
    events, random = bench.events, np.random.default_rng(5)
    last = max(events.start_ms + 1, events.end_ms - WINDOW_MS)
    starts = random.integers(events.start_ms, last, bench.sizes.windows).tolist()
    padded, reads = bench.consumer(FETCH_BYTES), [bench.lake("arrival")]

    def theirs() -> Timed:
        taken = [bench.kafka.call("readWindow", s, s + WINDOW_MS, on=padded) for s in starts]
        return Timed(sum(taken) / 1e9, None)

    def ours() -> Timed:
        taken = 0.0
        for start in starts:
            with _window_consumer(bench, server, start) as timing:
                taken += bench.kafka.call("readAll", on=timing) / 1e9
        return Timed(taken, None)

    for start in starts[:3]:
        _check_window(bench, server, start)
    return race(
        [Contender("Seglake", ours, reads=reads),
         Contender("Kafka broker, padded", theirs, reads=reads)],
        bench.sizes.runs,
    )  # fmt: skip


@contextmanager
def _window_consumer(bench: Workbench, server: ServerProcess, start: int) -> Iterator[Any]:
    name = f"{TOPIC}.{time_name(start)}.{time_name(start + WINDOW_MS)}"
    timing, call = bench.timing(), bench.kafka.call
    call("connect", str(server.address), name, bench.sizes.partitions, FETCH_BYTES, on=timing)
    try:
        yield timing
    finally:
        call("disconnect", on=timing)


def _check_window(bench: Workbench, server: ServerProcess, start: int) -> None:
    with _window_consumer(bench, server, start) as timing:
        bench.kafka.call("readWindow", 0, 2**61, on=timing)
        values = bench.kafka.call("values", on=timing)
    found = np.sort(numbers_in(pa.array(values.splitlines(), pa.binary())))
    wanted = np.sort(bench.events.between(start, start + WINDOW_MS))
    require(np.array_equal(found, wanted), "a window has other records")


def _rates(title: str, samples: list[Samples], count: int, unit: str = "records/s") -> Table:
    rows: list[list[Any]] = []
    for each in samples:
        fastest, median, slowest = each.spread()
        rows.append([each.name, count / slowest, count / median, count / fastest])
    rows.append(["ratio", *samples[0].times_as_fast_as(samples[1])])
    return Table(f"{title}, in {unit}", ["", "min", "median", "max"], rows)
