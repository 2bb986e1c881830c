"""An object store some ms away: cold windows and lookups, and ingest beside a local disk."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

import seglake
from seglake.log.execute import ReadStats
from seglake.read.log import Log
from tests.bench.events import numbers_in, users_in
from tests.bench.measure import Contender, Goal, Samples, Section, Table, race, say
from tests.bench.page_cache import hold
from tests.bench.peers import COLUMNS
from tests.bench.searchers import OFTEN
from tests.bench.wire import Request, Wire, depth
from tests.bench.workbench import TOPIC, Remote, Workbench, require

WINDOW_MS = 10_000
COLD = 10
ORDERS = ("time", "arrival")
DEEP, WIRE_SHARE, INGEST_SHARE = 3, 1.3, 1.5

_TEXT = """\
versitygw, an S3 server on this machine, behind a wire that holds every request back for
{latency} ms. *Deep* is how many requests wait for each other, one after another; it is counted on a
wire of {slow} ms, where the time of the machine plays no part. *Needed* are the batches that have a
record of the window. Bytes are those of replies on the wire, with index blocks and headers;
*of logs alone* are those that were asked of logs. Every window, lookup and search for a key is the
first one of a lake that was opened anew, {cold} of each: nothing but the catalog is in memory.
Polars reads the Parquet file that is sorted by time, with its footer not yet in memory.
An ingest shares the cores of this machine with the server and the wire: the last column leaves out
what they took of the processor, as if they were elsewhere.
"""


def run(bench: Workbench) -> Section:
    """Measure."""
    section = Section("remote", "Object store", "")
    if bench.remote is None:
        section.text = "There is no S3 server: Go builds it.\n"
        return section
    remote = bench.remote
    section.text = _TEXT.format(
        latency=bench.sizes.latency_ms, slow=remote.slow_ms, cold=COLD
    )  # fmt: skip
    served = _Served(remote)
    samples = race(_ingests(bench, remote, served), bench.sizes.runs, aloud=True)
    section.tables = [_cold(bench, remote, section.goals), _ingest_table(bench, samples, served)]
    near, far = samples[:2]  # in order of time
    text = 'Ingest into the object store, `order = "time"`: times the time of a local disk'
    took = near.times_as_fast_as(far)[1]
    section.goals.append(Goal(text, took, INGEST_SHARE, at_least=False))
    return section


class _Served:
    """What the server and the wire take of this machine's processor, which clients elsewhere keep.

    A run that takes 10 s while they take 4 s of two cores would take 8 s without them.
    """

    def __init__(self, remote: Remote) -> None:
        self._pids = remote.server.pid, remote.wire.pid
        self.seconds: dict[str, list[float]] = {}  # by contender: of all cores, by run

    def beside(self, name: str, run: Callable[[], int]) -> int:
        """Run; the first one is a warm-up, and is not kept."""
        before = self._spent()
        result = run()
        known = self.seconds.get(name)
        self.seconds[name] = [] if known is None else [*known, self._spent() - before]
        return result

    def _spent(self) -> float:
        fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2] for pid in self._pids]
        ticks = sum(int(each) for line in fields for each in line.split()[11:13])
        return ticks / os.sysconf("SC_CLK_TCK")

    def without(self, samples: Samples) -> Samples:
        """The runs of a contender, each without its share of that."""
        shares = self.seconds[samples.name]
        cores = os.cpu_count() or 1
        return Samples(
            samples.name,
            [s - part / cores for s, part in zip(samples.seconds, shares, strict=True)],
        )


# reads


class _Cold(NamedTuple):
    """A first read of its kind; `ask` returns what our reads count, if it is one."""

    name: str
    ask: Callable[[Any], ReadStats | None]
    open: Callable[[Wire], Any]


def _cold(bench: Workbench, remote: Remote, goals: list[Goal]) -> Table:
    rows = []
    for read in _reads(bench, remote):
        say(f"  {read.name}")
        hold([remote.server.folder])
        deep = max(depth(_once(read, remote.slow)[1]) for _ in range(3))
        seconds, requests, stats = zip(
            *[_once(read, remote.wire) for _ in range(COLD)], strict=True
        )
        took = Samples(read.name, list(seconds))
        received = [sum(each.received for each in some) for some in requests]
        counted = [each for each in stats if each is not None]
        needed = sum(each.bytes_matching for each in counted)
        share = sum(received) / max(1, needed)
        of_logs = sum(each.bytes_fetched for each in counted) / max(1, needed)
        count = statistics.median(map(len, requests))
        rows.append([
            read.name, 1000 * statistics.median(took.seconds), took.p99(1000), int(count), deep,
            statistics.median(received) / 1000, *([share, of_logs] if needed else ["-", "-"]),
        ])  # fmt: skip
        if read.name == f"A window of {WINDOW_MS // 1000} s, time":
            goals += [
                Goal(f"{read.name}: requests deep", deep, DEEP, at_least=False),
                Goal(f"{read.name}: bytes on the wire by the bytes needed", share, WIRE_SHARE,
                     at_least=False),
            ]  # fmt: skip
    columns = ["", "ms: median", "p99", "requests: median", "deep", "KB: median", "by needed",
               "of logs alone"]  # fmt: skip
    return Table("Cold reads", columns, rows)


def _once(read: _Cold, wire: Wire) -> tuple[float, list[Request], ReadStats | None]:
    opened = read.open(wire)
    wire.requests()
    begun = time.perf_counter()
    stats = read.ask(opened)
    return time.perf_counter() - begun, wire.requests(), stats


def _reads(bench: Workbench, remote: Remote) -> list[_Cold]:
    events, random = bench.events, np.random.default_rng(17)

    def start() -> int:
        last = max(events.start_ms + 1, events.end_ms - WINDOW_MS)
        return int(random.integers(events.start_ms, last))

    def window(log: Log) -> ReadStats:
        first, stats = start(), ReadStats()
        end = first + WINDOW_MS
        table = log.read_range(first, end, columns=COLUMNS, stats=stats).read_all()
        _check(bench, table, first)
        return stats

    def find(log: Log) -> ReadStats:
        key, stats = users[int(random.integers(len(users)))], ReadStats()
        found = log.find(key, columns=COLUMNS, stats=stats).read_all()
        require(len(found) == counts[key], f"a search found {len(found)} events of {key!r}")
        return stats

    def lookup(log: Log) -> None:
        require(log.offsets_for_times({0: start()})[0] is not None, "a lookup found nothing")

    def of_parquet(frame: Any) -> None:
        first, when = start(), pl.col("time")
        within = (when >= first) & (when < first + WINDOW_MS)
        _check(bench, frame.filter(within).collect().to_arrow(), first)

    roots = {order: _lake(bench, remote, order, index_keys=True) for order in ORDERS}
    counts = _counts(bench)
    users = sorted(counts)
    parquet = remote.put(bench.parquet)
    windows = [
        _Cold(f"A window of {WINDOW_MS // 1000} s, {order}", window, partial(_log, root))
        for order, root in roots.items()
    ]
    return [
        _Cold("Opening a lake", lambda wire: _opened(roots["time"], wire), lambda wire: wire),
        *windows,
        _Cold("A lookup by time", lookup, partial(_log, roots["arrival"])),
        _Cold("Every event of a key", find, partial(_log, roots["arrival"])),
        _Cold(f"Polars, a window of {WINDOW_MS // 1000} s", of_parquet,
              lambda wire: pl.scan_parquet(parquet, storage_options=_for_polars(wire))),
    ]  # fmt: skip


def _log(root: str, wire: Wire) -> Log:
    return seglake.open(root, storage_options={"endpoint": wire.endpoint}).topic(TOPIC)


def _opened(root: str, wire: Wire) -> None:
    require(bool(_log(root, wire).partitions()), "an opened lake has no partitions")


def _for_polars(wire: Wire) -> dict[str, str]:
    return {"aws_endpoint_url": wire.endpoint, "aws_allow_http": "true"}


def _check(bench: Workbench, table: Any, start: int) -> None:
    wanted = bench.events.between(start, start + WINDOW_MS)
    require(np.array_equal(numbers_in(table["value"]), wanted), "a cold window is wrong")


def _counts(bench: Workbench) -> dict[bytes, int]:
    """The number of events of each user who has so many as those of the part *Searches*."""
    users = np.concatenate([users_in(path) for path in bench.events.files])
    counts = dict(zip(*np.unique(users, return_counts=True), strict=True))
    often = {bytes(user): int(n) for user, n in counts.items() if OFTEN[0] <= n <= OFTEN[1]}
    return often or {bytes(user): int(n) for user, n in counts.items()}


def _lake(bench: Workbench, remote: Remote, order: str, **topic: object) -> str:
    root = remote.uri(f"read-{order}")
    bench.ingest(bench.pipeline(root, order, bench.events.files, **topic))
    return root


# ingest


def _ingests(bench: Workbench, remote: Remote, served: _Served) -> list[Contender]:
    """Each order, on a local disk and in the store."""
    contenders = []
    for order in ORDERS:
        local = bench.folder / f"near-{order}"
        contenders += [
            _ingest(bench, served, f"local disk, {order}", order, partial(_near, bench, local)),
            _ingest(bench, served, f"object store, {order}", order, partial(remote.fresh, order)),
        ]  # fmt: skip
    return contenders


def _ingest(
    bench: Workbench, served: _Served, name: str, order: str, fresh: Callable[[], str]
) -> Contender:
    place: list[str] = []

    def take(files: int) -> int:
        return bench.ingest(bench.pipeline(place[-1], order, bench.events.files[:files]))

    def check(records: int) -> None:
        require(records == len(bench.events.times), f"{name} lost records")

    return Contender(
        name, partial(served.beside, name, partial(take, len(bench.events.files))), check,
        lambda: place.append(fresh()), partial(served.beside, name, partial(take, 1)),
        bench.events.files,
    )  # fmt: skip


def _ingest_table(bench: Workbench, samples: list[Samples], served: _Served) -> Table:
    rows = [
        [
            each.name,
            *each.spread(),
            *near.times_as_fast_as(each),
            statistics.median(served.seconds[each.name]),
            near.times_as_fast_as(served.without(each))[1],
        ]
        for near, far in zip(samples[::2], samples[1::2], strict=True)
        for each in (near, far)
    ]
    columns = [
        "",
        "s, min",
        "median",
        "max",
        "times the time of the disk: min",
        "median",
        "max",
        "s of the processor, server and wire",
        "without them, times the time of the disk",
    ]
    return Table(f"Ingest of {len(bench.events.times):,} local events", columns, rows)


def _near(bench: Workbench, path: Path) -> str:
    return str(bench.scratch(path.name))
