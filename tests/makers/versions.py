"""Lakes of several versions, as hypothesis draws them: disorder, gaps, deleted records."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

import seglake
from seglake.catalog.schema import TopicRow
from seglake.format.index import IndexPolicy
from seglake.read.log import Log
from tests.makers.catalog_rows import commit_rows
from tests.makers.gaps import Loss, lose, losses
from tests.makers.lakes import Event, LakeMaker, Shape, Written

T = 1_700_000_000_000
FAR = T + 10**12

timestamps = st.one_of(
    st.integers(T, T + 40),  # total disorder, many equal
    st.integers(T, T + 40),
    st.sampled_from([0, 1, T, FAR, -1]),
)
texts = st.one_of(st.none(), st.binary(max_size=12))
headers = st.lists(st.tuples(st.text(max_size=3), texts), max_size=2).map(tuple)
events = st.builds(
    Event, timestamps, texts, texts, st.one_of(st.just(()), headers), st.sampled_from([0] * 9 + [3])
)


def many(seed: int, count: int, slope: int, spread: int) -> list[Event]:
    """More events than are drawn one by one; times rise or fall, with disorder up to `spread`."""
    rng = np.random.default_rng(seed)
    rising = T + np.arange(count) * 40 // count
    times = rising[::slope] + rng.integers(-spread, spread + 1, count)
    odd = rng.random(count)
    times = np.select([odd < 0.002, odd < 0.004, odd < 0.006], [-1, FAR, 0], np.maximum(times, T))
    gaps = np.where(rng.random(count) < 0.05, rng.integers(1, 9, count), 0)
    return [
        Event(time, None, b"%d" % time, (), gap)
        for time, gap in zip(times.tolist(), gaps.tolist(), strict=True)
    ]


rows = st.one_of(
    st.lists(events, max_size=20),
    st.builds(
        many,
        seed=st.integers(0, 999),
        count=st.sampled_from([30, 100, 250]),
        slope=st.sampled_from([1, -1]),
        spread=st.sampled_from([0, 3, 40]),
    ),
)
shapes = st.builds(
    lambda codec, sizes, policy: Shape(codec, sizes[0], sizes[1], policy),
    codec=st.sampled_from(["none", "gzip", "snappy", "lz4", "zstd"]),
    sizes=st.sampled_from(
        [(64, 700), (150, 2000), (400, 2000), (64, 2**30), (400, 2**30), (16384, 2**30)]
    ),
    policy=st.sampled_from([IndexPolicy(0), IndexPolicy(300), IndexPolicy(4096)]),
)
Run = tuple[list[list[Event]], Shape]
"""The events of each log partition, and how they are stored."""

runs = st.lists(st.tuples(st.lists(rows, min_size=2, max_size=2), shapes), min_size=1, max_size=3)


def versions_of(
    root: Path,
    generated: Sequence[Run],
    cut: float,
    log_append: bool = False,
    loss: Loss | None = None,
) -> Iterator[LakeMaker]:
    """A lake, after each of its runs, after records left it, and after it lost its beginning."""
    maker = LakeMaker(root, partitions=2)
    for number, (partitions, shape) in enumerate(generated):
        at = T + number * 7 if log_append else None
        stored = Shape(shape.codec, shape.batch_bytes, shape.segment_bytes, shape.policy, at)
        maker.run(dict(enumerate(partitions)), stored)
        yield maker
        if loss is not None and number == loss.seed % len(generated):
            lose(maker, loss)
            yield maker
    end = maker.catalog.snapshot().partition("events", 0).end_offset
    if cut and end:
        maker.delete_records(0, int(end * cut))
        yield maker


@contextmanager
def lake_of(
    generated: Sequence[Run], cut: float, log_append: bool = False, loss: Loss | None = None
) -> Iterator[tuple[Log, LakeMaker]]:
    with tempfile.TemporaryDirectory() as folder:
        *_, maker = versions_of(Path(folder), generated, cut, log_append, loss)
        yield seglake.open(folder).topic("events"), maker


def first_reaching(records: list[Written], time: int) -> tuple[int, int] | None:
    return next(((r.offset, r.timestamp) for r in records if r.timestamp >= time), None)


def in_window(records: list[Written], start: int, end: int) -> list[Written]:
    return [r for r in records if max(start, 0) <= r.timestamp < end]


times = st.one_of(st.integers(T - 1, T + 42), st.sampled_from([0, 1, FAR, FAR + 1]))
cuts = st.sampled_from([0, 0, 0.2, 0.5, 1])
lost = st.one_of(st.none(), losses, losses)


def grow(maker: LakeMaker, partitions: int) -> None:
    base = maker.catalog.snapshot()
    row = base.topic("events")
    grown = TopicRow(
        topic="events", sequence=row.sequence + 1, partitions=partitions,
        partitioner=row.partitioner, timestamp_type=row.timestamp_type,
    )  # fmt: skip
    commit_rows(maker.catalog, [grown], base=base)
