"""A lake that has all that a client may meet: codecs, nulls, headers, gaps, segments, runs."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from seglake.read.log import Log
from tests.harness.lake_server import Wire, serving
from tests.makers.lakes import Event, LakeMaker, Shape, Written
from tests.makers.versions import lake_of

T = 1_700_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RUN_RECORDS, SPAN_MS = 300, 100_000  # of a run and a partition; between the times of two runs


def time_name(time_ms: int) -> str:
    """A time as the names of window topics have it."""
    seconds, rest = divmod(time_ms, 1000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y%m%dT%H%M%S}.{rest:03}Z"


def events(number: int) -> list[Event]:
    """The events of a run: late ones, equal times, null keys and values, headers, gaps."""
    return [
        Event(
            T + SPAN_MS * number + 10 * i - 300 * (i % 11 == 0),
            None if i % 7 == 0 else b"key %d" % (i % 50),
            None if i % 13 == 0 else b"value %d of run %d" % (i, number),
            (("h", b"x"), ("empty", None), ("h", b"%d" % i)) if i % 5 == 0 else (),
            3 if i % 29 == 28 else 0,
        )
        for i in range(RUN_RECORDS)
    ]


def rich_lake(root: Path, topic: str = "events", partitions: int = 3) -> LakeMaker:
    """A topic; its third partition is empty."""
    maker = LakeMaker(root, topic, partitions=partitions, settings={"cleanup.policy": "delete"})
    for number, codec in enumerate(CODECS):
        rows = {0: events(number), 1: events(number)[: RUN_RECORDS // 3]}
        maker.run(rows, Shape(codec, batch_bytes=700, segment_bytes=5000))
    return maker


def numbered_lake(root: Path, partitions: int, count: int) -> Path:
    """A topic whose values are "partition/offset"; `count` records in each partition."""
    rows = {
        p: [Event(T + at, b"key", b"%d/%d" % (p, at)) for at in range(count)]
        for p in range(partitions)
    }
    LakeMaker(root, partitions=partitions).run(rows, Shape("lz4", batch_bytes=500))
    return root


@contextmanager
def asked(*drawn: Any) -> Iterator[tuple[Log, LakeMaker, Wire]]:
    """A lake as `lake_of` makes it of `drawn`, and a connection to a server of it."""
    with (
        lake_of(*drawn) as (log, maker),
        serving(maker.root) as server,
        Wire(server.address) as wire,
    ):
        yield log, maker, wire


def window_of(records: list[Written], start: int, end: int) -> list[Written]:
    """Those with start <= timestamp < end."""
    return [record for record in records if start <= record.timestamp < end]


def folders(maker: LakeMaker, scratch: Path) -> dict[tuple[str, int], Path]:
    """Each log partition as a folder of a broker has it."""
    found: dict[tuple[str, int], Path] = {}
    for row in maker.catalog.rows.segments(maker.catalog.snapshot(), maker.topic):
        folder = scratch / f"{row.topic}-{row.partition}"
        folder.mkdir(parents=True, exist_ok=True)
        found[row.topic, row.partition] = folder
        for suffix in ("log", "index", "timeindex"):
            shutil.copy(maker.root / row.key(suffix), folder)
    return found
