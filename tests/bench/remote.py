"""An object store some ms away: cold windows, and ingest beside a local disk."""

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import seglake
from seglake.log.execute import ReadStats
from seglake.read.log import Log
from tests.bench.events import numbers_in
from tests.bench.measure import Contender, Goal, Samples, Section, Table, race
from tests.bench.page_cache import hold
from tests.bench.peers import COLUMNS
from tests.bench.wire import Request, Wire, depth
from tests.bench.workbench import TOPIC, Remote, Workbench, require

WINDOW_MS = 10_000
COLD = 10
DEEP, WIRE_SHARE, INGEST_SHARE = 3, 1.3, 1.5

_TEXT = """\
versitygw, an S3 server on this machine, behind a wire that holds every request back for
{latency} ms. *Deep* is how many requests wait for each other, one after another; it is counted on a
wire of {slow} ms, where the time of the machine plays no part. *Needed* are the batches that have a
record of the window. Bytes are those of replies on the wire, with index blocks and headers. Every
window is the first one of a lake that was opened anew, {cold} in all: only the catalog is in
memory. An ingest shares the cores of this machine with the server and the wire.
"""


def run(bench: Workbench) -> Section:
    """Measure."""
    section = Section("remote", "Object store", "")
    if bench.remote is None:
        section.text = "There is no S3 server: Go builds it.\n"
        return section
    remote = bench.remote
    section.text = _TEXT.format(latency=bench.sizes.latency_ms, slow=remote.slow_ms, cold=COLD)
    near, far = samples = race(_ingests(bench, remote), bench.sizes.runs, aloud=True)
    rows = [[each.name, *each.spread(), *near.times_as_fast_as(each)] for each in samples]
    columns = ["", "s, min", "median", "max", "times the time of the disk: min", "median", "max"]
    title = f"Ingest of {len(bench.events.times):,} local events"
    section.tables = [_cold(bench, remote, section.goals), Table(title, columns, rows)]
    text = 'Time of an ingest, `order = "time"`, relative to a local disk'
    took = near.times_as_fast_as(far)[1]
    section.goals.append(Goal(text, took, INGEST_SHARE, at_least=False))
    return section


def _cold(bench: Workbench, remote: Remote, goals: list[Goal]) -> Table:
    root = remote.uri("read-time")
    bench.ingest(bench.pipeline(root, "time", bench.events.files))
    hold([remote.server.folder])
    random = np.random.default_rng(17)
    window = partial(_window, bench, root, lambda: int(random.integers(*_span(bench))))
    deep = max(depth(window(remote.slow)[1]) for _ in range(3))
    seconds, requests, stats = zip(*[window(remote.wire) for _ in range(COLD)], strict=True)
    name, took = f"a window of {WINDOW_MS // 1000} s", Samples("", list(seconds))
    received = [sum(each.received for each in some) for some in requests]
    share = sum(received) / max(1, sum(each.bytes_matching for each in stats))
    goals += [
        Goal(f"Requests of {name} that wait for each other", deep, DEEP, at_least=False),
        Goal(f"Bytes received for {name}, per byte needed", share, WIRE_SHARE, at_least=False),
    ]
    row = [
        name, *took.spread(1000)[:2], took.p99(1000), statistics.median(map(len, requests)), deep,
        statistics.median(received) / 1000, share,
    ]  # fmt: skip
    columns = ["", "ms: min", "median", "p99", "requests: median", "deep", "KB: median",
               "by needed"]  # fmt: skip
    return Table("Cold reads", columns, [row])


def _span(bench: Workbench) -> tuple[int, int]:
    first = bench.events.start_ms
    return first, max(first + 1, bench.events.end_ms - WINDOW_MS)


def _window(
    bench: Workbench, root: str, start: Callable[[], int], wire: Wire
) -> tuple[float, list[Request], ReadStats]:
    """Read one window of a lake that is opened for it."""
    log: Log = seglake.open(root, storage_options={"endpoint": wire.endpoint}).topic(TOPIC)
    wire.requests()
    first, stats = start(), ReadStats()
    begun = time.perf_counter()
    table: Any = log.read_range(first, first + WINDOW_MS, columns=COLUMNS, stats=stats).read_all()
    spent = time.perf_counter() - begun
    wanted = bench.events.between(first, first + WINDOW_MS)
    require(np.array_equal(numbers_in(table["value"]), wanted), "a cold window is wrong")
    return spent, wire.requests(), stats


def _ingests(bench: Workbench, remote: Remote) -> list[Contender]:
    """The same ingest to a local disk and to the store."""
    return [
        _ingest(bench, "local disk", lambda: str(bench.scratch("near"))),
        _ingest(bench, "object store", partial(remote.fresh, "time")),
    ]


def _ingest(bench: Workbench, name: str, fresh: Callable[[], str]) -> Contender:
    roots, files = list[str](), bench.events.files

    def take(count: int) -> int:
        return bench.ingest(bench.pipeline(roots[-1], "time", files[:count]))

    def check(records: int) -> None:
        require(records == len(bench.events.times), f"{name} lost records")

    return Contender(
        name, partial(take, len(files)), check, lambda: roots.append(fresh()), partial(take, 1),
        files,
    )  # fmt: skip
