"""Records around many moments, against the plain list of records."""

import datetime as dt
import itertools
import multiprocessing
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import seglake
from seglake.errors import UsageError
from seglake.format.index import RECORD_KEYS, IndexPolicy
from seglake.format.partitioner import partition_of
from seglake.format.records import Spans
from seglake.log.execute import ReadStats
from seglake.log.segment import Window
from seglake.log.zone_maps import meet, union
from seglake.read.lake import Lake
from seglake.read.log import Log
from seglake.read.window.reader import WindowReader
from seglake.store import open_store
from tests.harness.counting import CountingStore
from tests.makers.gaps import Loss
from tests.makers.lakes import Event, LakeMaker, Shape, Written
from tests.makers.strategies import examples
from tests.makers.versions import FAR, Run, T, cuts, grow, lake_of, lost, runs, shapes, times

Row = tuple[int, int | None, bytes | None]  # number, time, key
Pair = tuple[int, int, int]  # number of a row; partition and offset of a record

KEYS = [b"a", b"b", b"", b"d"]
widths = st.sampled_from([(0, 1), (1, 0), (5, 0), (0, 5), (3, 9), (60, 0), (10**12, 3)])
moments = st.lists(
    st.tuples(st.one_of(st.none(), times, times, times), st.sampled_from([None, *KEYS])),
    max_size=40,
)


def table_of(rows: list[Row]) -> pa.Table:
    numbers, at, keys = zip(*rows, strict=True) if rows else ((), (), ())
    return pa.table(
        {
            "number": pa.array(numbers, pa.int32()),
            "at": pa.array(at, pa.int64()),
            "who": pa.array(keys, pa.binary()),
        }
    )


def brute_force(
    rows: list[Row], records: list[Written], before: int, after: int, keyed: bool
) -> list[Pair]:
    return sorted(
        (number, record.partition, record.offset)
        for number, at, key in rows
        for record in records
        if at is not None
        and record.timestamp >= 0
        and at - before <= record.timestamp < at + after
        and (not keyed or (key is not None and record.key == key))
    )


def pairs_in(found: WindowReader) -> list[Pair]:
    table = found.read_all()
    columns = (table[name].to_pylist() for name in ("number", "partition", "offset"))
    return sorted(zip(*columns, strict=True))


@given(runs, cuts, lost, moments, widths, st.integers(1, 50), st.sampled_from([2**20, 4096]))
@examples(30)
def test_every_record_around_every_moment(
    generated: list[Run], cut: float, loss: Loss | None, asked: list[Any], width: tuple[int, int],
    batch: int, memory: int,
) -> None:  # fmt: skip
    before, after = width
    rows = [(number, at, key) for number, (at, key) in enumerate(asked)]
    with lake_of(generated, cut, loss=loss) as (log, maker):
        table, want = table_of(rows), brute_force(rows, maker.records(), before, after, False)
        for asked_for in table.to_reader(max_chunksize=batch), table:
            found = log.read_around(
                asked_for, "at", before_ms=before, after_ms=after, memory_bytes=memory
            )
            assert pairs_in(found) == want
        assert pairs_in(found) == want  # a table can be read again


keyed_events = st.lists(
    st.tuples(st.integers(T, T + 40), st.sampled_from([None, *KEYS])).map(lambda e: Event(*e)),
    max_size=40,
)


def placed(rows: list[Event], partitions: int) -> dict[int, list[Event]]:
    """The rows by partition, as Kafka's partitioner places their keys; null keys go anywhere."""
    homes = partition_of(Spans.from_list([row.key for row in rows]), partitions)
    return {
        p: [row for row, home in zip(rows, homes.tolist(), strict=True) if home == p]
        for p in range(partitions)
    }


@given(
    st.lists(keyed_events, min_size=1, max_size=3), shapes, moments, widths,
    st.lists(st.booleans(), min_size=3, max_size=3), st.integers(1, 50),
)  # fmt: skip
@examples(30)
def test_only_records_with_the_key_also_where_partitions_were_added(
    generated: list[list[Any]] | list[list[Event]],
    shape: Shape,
    asked: list[Any],
    width: tuple[int, int],
    indexed: list[bool],
    batch: int,
) -> None:
    """Whichever of the segments have a key index."""
    before, after = width
    rows = [(number, at, key) for number, (at, key) in enumerate(asked)]
    with tempfile.TemporaryDirectory() as folder:
        maker = LakeMaker(Path(folder), partitions=2)
        for count, events in zip(itertools.count(2), generated, strict=False):
            if count > 2:
                grow(maker, count)
            subjects = (RECORD_KEYS,) if indexed[count - 2] else ()
            policy = replace(shape.policy, subjects=subjects)
            maker.run(placed(events, count), replace(shape, policy=policy))
        log = seglake.open(folder).topic("events")
        stream = table_of(rows).to_reader(max_chunksize=batch)
        found = log.read_around(
            stream, "at", before_ms=before, after_ms=after, key="who",
            columns=["partition", "offset"],
        )  # fmt: skip
        assert pairs_in(found) == brute_force(rows, maker.records(), before, after, True)


intervals = st.lists(st.integers(-20, 60), min_size=1, max_size=12)


@given(intervals, st.integers(1, 9), st.lists(st.tuples(st.integers(-25, 75), st.integers(0, 12))))
@example([0, 5], 5, [(4, 0), (5, 0), (9, 1), (0, 9), (0, 10)])
def test_a_union_of_windows_meets_and_holds_what_its_times_say(
    starts: list[int], width: int, spans: list[tuple[int, int]]
) -> None:
    begins = np.sort(np.array(starts, np.int64))
    windows = union(begins, begins + width - 1)
    covered = {time for start in starts for time in range(start, start + width)}
    assert {t for s, e in windows.T.tolist() for t in range(s, e + 1)} == covered
    assert all(windows[0, 1:] - 1 > windows[1, :-1])
    lows = np.array([low for low, _ in spans], np.int64)
    highs = lows + np.array([length for _, length in spans], np.int64)
    times_in = [set(range(low, high + 1)) for low, high in zip(lows, highs, strict=True)]
    offsets = np.arange(len(spans))
    numbers, whole = meet(Window(), windows, lows, highs, offsets, offsets + 1)
    assert numbers.tolist() == [i for i, each in enumerate(times_in) if each & covered]
    assert whole.tolist() == [times_in[i] <= covered for i in numbers]


# ------------------------------------------------------------------------------- what it costs


@pytest.fixture(scope="module")
def maker(tmp_path_factory: pytest.TempPathFactory) -> LakeMaker:
    """20,000 records of two partitions, two in each millisecond, in several segments."""
    made = LakeMaker(tmp_path_factory.mktemp("lake"), partitions=2)
    rows = [Event(T + i, b"k%d" % (i % 7), b"v%d" % i * 9) for i in range(10_000)]
    made.run({0: rows, 1: rows}, Shape(batch_bytes=600, segment_bytes=100_000))
    return made


def counted(maker: LakeMaker) -> tuple[Log, CountingStore]:
    store = CountingStore(open_store(str(maker.root)))
    log = Lake(store).topic("events")
    store.counts.requests = store.counts.bytes_read = 0
    return log, store


def test_what_windows_share_is_read_once(maker: LakeMaker) -> None:
    log, store = counted(maker)
    rows = pa.table({"at": pa.array(np.arange(T + 3000, T + 5000))})
    stats = ReadStats()
    found = log.read_around(rows, "at", before_ms=1000, columns=["offset"], stats=stats).read_all()
    assert len(found) == 2 * 2000 * 1000
    assert stats.bytes_fetched <= log.plan_range(T + 2000, T + 5000).size_bytes
    assert store.counts.bytes_read < 1.3 * stats.bytes_fetched


def test_windows_far_apart_read_little_between_them(maker: LakeMaker) -> None:
    log, _ = counted(maker)
    stats = ReadStats()
    rows = pa.table({"at": [T + 100, T + 9_900]})
    found = log.read_around(rows, "at", after_ms=10, stats=stats).read_all()
    assert len(found) == 40
    whole = sum(path.stat().st_size for path in maker.files("log"))
    assert stats.bytes_fetched < whole / 100


def test_a_key_index_chooses_the_blocks(tmp_path: Path) -> None:
    """Two lakes of the same bytes; one has key indexes, of which reads are not counted."""
    events = [Event(T + i, b"u%d" % (i % 400), bytes(40)) for i in range(8_000)]
    rows: list[Row] = [(n, T + 3000 + 40 * n, b"u%d" % (n * 31 % 37)) for n in range(12)]
    rows += [(12, T + 6000, b"u0"), (13, T + 6600, b"absent"), (14, T + 6600, None)]
    fetched, answers = list[list[int]](), list[list[Pair]]()
    for subjects in ((), (RECORD_KEYS,)):
        maker = LakeMaker(tmp_path / str(len(subjects)), partitions=2)
        policy = IndexPolicy(400, subjects)
        maker.run(placed(events, 2), Shape(batch_bytes=300, segment_bytes=100_000, policy=policy))
        log = seglake.open(str(maker.root)).topic("events")
        every, one = ReadStats(), ReadStats()
        columns = ["partition", "offset"]
        found = log.read_around(
            table_of(rows), "at", before_ms=1000, key="who", columns=columns, stats=every
        )
        answers.append(pairs_in(found))
        log.read_around(
            table_of(rows[:1]), "at", before_ms=1000, key="who", columns=columns, stats=one
        ).read_all()
        fetched.append([every.bytes_fetched, one.bytes_fetched])
        plan = log.plan_find(b"u0", start=T + 2000, end=T + 3000)
        assert one.bytes_fetched == plan.size_bytes > 0
    right = brute_force(rows, maker.records(), 1000, 0, True)
    assert len(right) > 2 * 13
    assert answers == [right, right]
    (scanned, scanned_one), (some, some_one) = fetched
    assert some < scanned / 2
    assert some_one < scanned_one / 10


@pytest.mark.parametrize("large", ["value", "row"])
def test_what_comes_out_is_in_batches_of_bounded_size(tmp_path: Path, large: str) -> None:
    maker = LakeMaker(tmp_path)
    size = 20_000 if large == "value" else 10
    rows = [
        Event(T + i, None, bytes(size if i == 50 else 10), (("h", bytes(99)),)) for i in range(99)
    ]
    maker.run({0: rows})
    log = seglake.open(str(tmp_path)).topic("events")
    text = pa.array(["x" * (20_000 if large == "row" and i == 50 else 5) for i in range(200)])
    alerts = pa.table({"at": pa.array(np.full(200, T + 99)), "text": text})
    memory, seen = 400_000, 0
    for batch in log.read_around(alerts, "at", before_ms=99, memory_bytes=memory):
        assert batch.nbytes <= memory / 8 + 25_000
        seen += len(batch)
    assert seen == 200 * 99


def around(log: Log, rows: pa.Table) -> list[Pair]:
    return pairs_in(log.read_around(rows, "at", before_ms=50, columns=["partition", "offset"]))


@pytest.mark.slow
def test_another_process_asks_no_catalog(maker: LakeMaker, tmp_path: Path) -> None:
    root = shutil.copytree(maker.root, tmp_path / "lake")
    log, rows = seglake.open(str(root)).topic("events"), table_of([(1, T + 500, None)])
    expected = around(log, rows)
    assert len(expected) == 100
    shutil.rmtree(root / "catalog")
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(around, [log, rows]) == expected


class OnlyReads(CountingStore):
    """A store of which nothing is asked but bytes of files whose names are known."""

    def asked(self, *_: object) -> NoReturn:
        raise AssertionError("a lookup lists nothing and asks for no size")

    def forbid(self) -> None:
        """From now on."""
        for name in ("list", "stat", "size"):
            setattr(self, name, self.asked)


def test_nothing_is_listed_and_each_range_is_asked_for_once(maker: LakeMaker) -> None:
    store = OnlyReads(open_store(str(maker.root)))
    log = Lake(store).topic("events")
    store.forbid()
    before = store.counts.requests
    assert len(around(log, table_of([(1, T + 500, None)]))) == 100
    assert store.counts.requests - before == 2 * 2  # of each partition a zone map and a log
    assert len(around(log, table_of([(1, T + 500, None)]))) == 100
    assert store.counts.requests - before == 3 * 2  # and then the log alone


# ------------------------------------------------------------------- columns, types, mistakes


def test_all_columns_of_the_rows_and_the_chosen_ones_of_the_records(maker: LakeMaker) -> None:
    log = seglake.open(str(maker.root)).topic("events")
    alerts = pa.table(
        {"at": [T + 5], "tags": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int8()))}
    )
    found = log.read_around(alerts, "at", after_ms=1).read_all()
    assert found.column_names == ["at", "tags", *log.read_range(T, T).schema.names]
    found.validate(full=True)
    assert found["tags"].to_pylist() == [[("a", 1)]] * 2
    assert found.drop_columns(["at", "tags"]).equals(log.read_range(T + 5, T + 6).read_all())


@pytest.mark.parametrize(
    ("kind", "at"),
    [
        (pa.timestamp("s", "UTC"), T // 1000),
        (pa.timestamp("ms", "Europe/Vienna"), T),
        (pa.timestamp("us", "UTC"), T * 1000 - 999),  # rounded up
        (pa.timestamp("ns", "UTC"), T * 1_000_000 - 1),
        (pa.int64(), T),
    ],
)
def test_times_of_every_kind(
    maker: LakeMaker, kind: pa.DataType | pa.TimestampType, at: int
) -> None:
    log = seglake.open(str(maker.root)).topic("events")
    alerts = pa.table({"at": pa.array([None, at], kind)})
    found = log.read_around(alerts, "at", after_ms=3, columns=["offset"]).read_all()
    assert found["offset"].to_pylist() == [0, 1, 2, 0, 1, 2]


def test_rows_of_polars_and_keys_as_text(tmp_path: Path) -> None:
    maker = LakeMaker(tmp_path)
    maker.run({0: [Event(T, b"a"), Event(T + 1, b"b"), Event(T + 2, b"a")]})
    log = seglake.open(str(tmp_path)).topic("events")
    moment = dt.datetime.fromtimestamp(T // 1000, dt.UTC)
    alerts = pl.DataFrame({"at": [moment, moment], "who": ["a", "c"]})
    found = log.read_around(alerts, "at", after_ms=9, key="who", columns=["offset"]).read_all()
    assert found.select(["who", "offset"]).to_pylist() == [
        {"who": "a", "offset": 0},
        {"who": "a", "offset": 2},
    ]


def test_the_ends_of_time(maker: LakeMaker) -> None:
    log = seglake.open(str(maker.root)).topic("events")
    alerts = pa.table({"at": [-(2**63), -1, 0, 2**63 - 1]})
    found = log.read_around(alerts, "at", before_ms=2**62, after_ms=2**62, columns=["offset"])
    assert found.read_all()["at"].to_pylist().count(0) == 20_000
    assert set(log.read_around(alerts, "at", before_ms=FAR).read_all()["at"].to_pylist()) == set()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"at": "when", "after_ms": 1}, "no column 'when'. The columns are at, zoneless, text"),
        ({"at": "at", "after_ms": 1, "key": "who"}, "no column 'who'"),
        ({"at": "zoneless", "after_ms": 1, "columns": ["value"]}, "with a zone"),
        ({"at": "text", "after_ms": 1, "columns": ["value"]}, "not string"),
        ({"at": "at", "after_ms": 1, "key": "at", "columns": ["value"]}, "text or binary, not int"),
        ({"at": "at", "after_ms": 1}, "both the rows and the records have a column 'key'"),
        ({"at": "at", "columns": ["value"]}, "one must be above 0"),
        ({"at": "at", "before_ms": -1, "columns": ["value"]}, "at least 0"),
        ({"at": "at", "after_ms": 1, "columns": ["size"]}, "unknown column 'size'"),
    ],
)
def test_what_has_no_meaning_is_refused_at_once(
    maker: LakeMaker, options: dict[str, Any], said: str
) -> None:
    log = seglake.open(str(maker.root)).topic("events")
    rows = pa.table(
        {"at": [T], "zoneless": pa.array([T], pa.timestamp("ms")), "text": ["x"], "KEY": ["y"]}
    )
    with pytest.raises(UsageError, match=said):
        log.read_around(rows, **options)


@pytest.mark.parametrize("rows", [[T], {"at": [T]}, None])
def test_what_is_no_table_is_refused(maker: LakeMaker, rows: Any) -> None:
    log = seglake.open(str(maker.root)).topic("events")
    with pytest.raises(UsageError, match=rf"not {type(rows).__name__}: pyarrow.table\("):
        log.read_around(rows, "at", after_ms=1)


def test_seconds_are_refused(maker: LakeMaker) -> None:
    log = seglake.open(str(maker.root)).topic("events")
    with pytest.raises(UsageError, match="seconds"):
        log.read_around(pa.table({"at": [T, T // 1000]}), "at", after_ms=1).read_all()
