"""`Log.dataset`: scans by pyarrow, DuckDB, Polars and pandas, against a plain table."""

import functools
import json
import operator
import pickle
import random
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from hypothesis import given
from hypothesis import strategies as st

import seglake
from seglake.errors import CorruptData, UnknownTopic, UsageError
from seglake.format.index import RECORD_KEYS, IndexPolicy
from seglake.format.partitioner import partition_of
from seglake.format.records import Spans
from seglake.limits import INT64_MAX, INT64_MIN
from seglake.log.execute import SCHEMA
from seglake.log.segment import Window
from seglake.read.dataset import LogDataset
from seglake.read.filters import Part, Selection, fields_of
from seglake.read.log import Log
from tests.makers.lakes import Event, LakeMaker, Shape, T
from tests.makers.strategies import NOISE, examples

UTC_MS = pa.timestamp("ms", "UTC")
KEYS: list[Any] = [None, b"", b"a", b"b", b"user-1", b"user-2"]
field: Any = pc.field
sql: Any = duckdb.sql  # of a query, it always gives a relation
compute: Any = pc


def at(ms: int) -> Any:
    """The literal of a time, `ms` after T."""
    return pa.scalar(T + ms, UTC_MS)


def plain_table(maker: LakeMaker) -> pa.Table:
    """The records that were written, as a table of Arrow."""
    rows = [
        {"topic": maker.topic, **record._asdict(),
         "headers": [{"key": key, "value": value} for key, value in record.headers]}
        for record in maker.records()
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, SCHEMA)


def log_of(maker: LakeMaker) -> Log:
    return seglake.open(str(maker.root)).topic(maker.topic)


# any filter, over any lake

OPERATORS = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)
UNITS: dict[Any, int] = {"ms": 1, "us": 1_000, "ns": 1_000_000}
FEW = 15  # times and offsets, so that literals meet records
OTHERS = [
    field("key").is_null(), field("key").is_valid(), field("offset").is_null(),
    pc.scalar(True), pc.scalar(False), compute.scalar(pa.scalar(None, pa.bool_())),
    compute.match_substring(field("value"), "1"), field("offset") < 7.5,
    compute.equal(compute.binary_length(field("value")), 2), field("timestamp_type") == 0,
    field("offset") == field("partition"), field("offset") - 3 < field("partition"),
    compute.equal(field("value").cast("string"), "v3"), field("topic") == "events",
]  # fmt: skip


def _time(ms: int, unit: Any, rest: int) -> Any:
    """The literal of a time after T, and `rest` units later where the unit is finer."""
    count = (T + ms) * UNITS[unit]
    return pa.scalar(count + (0 if unit == "ms" else rest), pa.timestamp(unit, "UTC"))


def _within(name: str, values: Sequence[Any], kind: Any, *, as_duckdb: bool, skip: bool) -> Any:
    inside = compute.is_in(field(name), value_set=pa.array(values, kind), skip_nulls=skip)
    if not as_duckdb:
        return inside
    return compute.if_else(field(name).is_valid(), inside, pa.scalar(None, pa.bool_()))


class Filters:
    """Makes random filters."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def any(self, depth: int = 3) -> Any:
        """A filter of comparisons and other conditions."""
        kind = self._random.choice(["leaf", "leaf", "and", "and", "or", "or", "not", "if", "xor"])
        if kind == "leaf" or not depth:
            leaf = self._random.choice([self._comparison] * 4 + [self._set] * 3 + [self._other])
            return leaf()
        one, two = self.any(depth - 1), self.any(depth - 1)
        if kind == "if":
            return compute.if_else(self.any(depth - 1), one, two)
        both = {"and": operator.and_, "or": operator.or_, "xor": compute.xor}
        return both[kind](one, two) if kind in both else ~one

    def _comparison(self) -> Any:
        name = self._random.choice(["timestamp", "offset", "partition", "key"])
        literal, compare = pc.scalar(self._literal(name)), self._random.choice(OPERATORS)
        if self._random.random() < 0.3:
            return compare(literal, field(name))
        return compare(field(name), literal)

    def _literal(self, name: str) -> Any:
        choose = self._random.choice
        if self._random.random() < 0.05:
            return pa.scalar(None, SCHEMA.field(name).type)
        if name == "timestamp":
            if self._random.random() < 0.1:  # that of a record without a time, and near it
                return pa.scalar(choose([-2, -1, 0]), UTC_MS)
            return _time(self._random.randint(-1, FEW), choose([*UNITS]), choose([0, 0, 1, 999]))
        if name == "key":
            key = choose(KEYS[1:])
            return choose([key, key.decode(), pa.scalar(key, pa.large_binary())])
        kind = choose([pa.int8(), pa.int32(), pa.int64(), pa.uint8()])
        number = self._random.randint(0, FEW if name == "offset" else 3)
        return choose([pa.scalar(number, kind)] * 8 + [-1, 2**40, -(2**40)])

    def _set(self) -> Any:
        name = self._random.choice(["timestamp", "offset", "partition", "key"])
        values: list[Any] = [None, *range(FEW)]
        if name == "key":
            values = KEYS
        elif name == "timestamp":
            values = [None, -1, *range(T, T + FEW)]
        some = self._random.choices(values, k=self._random.randint(0, 3))
        as_duckdb, skip = (self._random.random() < 0.5 for _ in range(2))
        return _within(name, some, SCHEMA.field(name).type, as_duckdb=as_duckdb, skip=skip)

    def _other(self) -> Any:
        return self._random.choice(OTHERS)


rows_of_runs = st.lists(
    st.lists(
        st.tuples(
            st.sampled_from([None, *range(FEW)]), st.sampled_from(KEYS), st.integers(0, 2),
            st.sampled_from([0, 0, 0, 2]),
        ),
        max_size=25,
    ),
    min_size=1, max_size=3,
)  # fmt: skip


def _home(key: bytes | None, chosen: int) -> int:
    """Where keys choose the partition, that of a key; records without one are anywhere."""
    return chosen if key is None else int(partition_of(Spans.from_list([key]), 3)[0])


def _make(folder: str, runs: list[list[tuple[Any, ...]]], indexed: bool) -> LakeMaker:
    maker = LakeMaker(Path(folder) / "lake", partitions=3)
    for number, rows in enumerate(runs):
        events: dict[int, list[Event]] = {0: [], 1: [], 2: []}
        for index, (time, key, chosen, gap) in enumerate(rows):
            value = b"v%d" % index
            event = Event(-1 if time is None else T + time, key, value, gap=gap)
            events[_home(key, chosen)].append(event)
        subjects = (RECORD_KEYS,) if indexed and number % 2 == 0 else ()
        policy = IndexPolicy(180, subjects)
        maker.run(events, Shape("none", 150, 500, policy))
    return maker


@examples(40)
@given(
    rows_of_runs, st.booleans(), st.integers(0, 2**32),
    st.lists(st.sampled_from(SCHEMA.names), unique=True),
    st.sampled_from([None, None, (0, 16), (3, 9)]),
)  # fmt: skip
def test_any_filter_gives_what_it_gives_over_the_whole_table(
    runs: list[list[tuple[Any, ...]]],
    indexed: bool,
    seed: int,
    columns: list[str],
    window: tuple[int, int] | None,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        maker = _make(folder, runs, indexed)
        log, full, bounds = log_of(maker), plain_table(maker), list[int]()
        if window:
            bounds = [T + window[0], T + window[1]]
            inside = (field("timestamp") >= at(window[0])) & (field("timestamp") < at(window[1]))
            full = full.filter(inside)
        web = log.dataset(*bounds)
        assert web.to_table().equals(full)
        filters = Filters(seed)
        for each in (filters.any() for _ in range(30)):
            expected = full.filter(each)
            found = web.to_table(columns=columns, filter=each)
            assert found.num_rows == len(expected)
            assert found.equals(expected.select(columns))
            assert web.count_rows(filter=each) == len(expected)
            assert web.filter(each).to_table().equals(expected)


# what is understood

EVERYTHING = Selection({0: Part(), 1: Part(), 2: Part()})
AFTER_5 = Part(Window(start_ms=T + 5))


def _same(part: Part) -> dict[int, Part]:
    return dict.fromkeys(range(3), part)


UNDERSTOOD: list[tuple[Any, dict[int, Part]]] = [
    (field("timestamp") >= at(5), _same(AFTER_5)),
    (compute.scalar(at(5)) <= field("timestamp"), _same(AFTER_5)),
    (field("timestamp") > _time(4, "us", 0), _same(AFTER_5)),
    (field("timestamp") > _time(4, "ns", 1), _same(AFTER_5)),
    (field("timestamp") >= _time(4, "us", 1), _same(AFTER_5)),
    (field("timestamp") < at(5), _same(Part(Window(INT64_MIN, T + 5)))),
    (field("timestamp") < _time(4, "us", 1), _same(Part(Window(INT64_MIN, T + 5)))),
    (field("timestamp") <= _time(4, "us", 1), _same(Part(Window(INT64_MIN, T + 5)))),
    (field("timestamp") == at(5), _same(Part(Window(T + 5, T + 6)))),
    (field("timestamp") == _time(5, "us", 1), {}),
    (field("timestamp").isin([at(5), at(9)]), _same(Part(Window(T + 5, T + 10)))),
    (field("offset") >= 7, _same(Part(Window(start_offset=7)))),
    (field("offset") < -1, {}),
    (field("offset").isin([9, 7]), _same(Part(Window(start_offset=7, end_offset=10)))),
    (field("offset").isin(pa.array([], pa.int64())), {}),
    (field("partition") == 1, {1: Part()}),
    (field("partition") > 0, {1: Part(), 2: Part()}),
    (field("partition").isin([0, 2, 9]), {0: Part(), 2: Part()}),
    (field("key") == b"a", _same(Part(keys=frozenset([b"a"])))),
    (field("key") == "a", _same(Part(keys=frozenset([b"a"])))),
    (field("key") == pa.scalar(None, pa.binary()), {}),
    (field("key").isin([b"a", b"b"]), _same(Part(keys=frozenset([b"a", b"b"])))),
    (_within("key", [b"a", None], pa.binary(), as_duckdb=True, skip=True),
     _same(Part(keys=frozenset([b"a"])))),
    (field("key").isin([b"a", None]), _same(Part())),  # null is in it
    (field("key").isin(["a"]), _same(Part(keys=frozenset([b"a"])))),
    (compute.is_in(field("offset"), value_set=pa.chunked_array([[4], [6]])), _same(Part())),
    (compute.is_in(field("key"), value_set=pa.array([b"a"]).dictionary_encode()), _same(Part())),
    (field("key") > b"a", _same(Part())),
    ((field("key") == b"a") & (field("key") == b"b"), {}),
    ((field("timestamp") >= at(5)) & compute.starts_with(field("value"), "x"), _same(AFTER_5)),
    ((field("timestamp") >= at(5)) & (field("value").cast("string") == "x"), _same(AFTER_5)),
    ((field("timestamp") >= at(5)) & (field("offset") < 1.5), _same(AFTER_5)),
    ((field("timestamp") >= at(5)) | (field("key") == b"a"), _same(Part())),
    ((field("timestamp") >= at(5)) | pc.scalar(False), _same(AFTER_5)),
    (((field("partition") == 0) & (field("offset") >= 7))
     | ((field("partition") == 2) & (field("offset") >= 9)),
     {0: Part(Window(start_offset=7)), 2: Part(Window(start_offset=9))}),
    (~(field("timestamp") < at(5)), _same(Part())),
    (pc.field(0) == 3, _same(Part())),  # a column by its number
    (pc.field("a", "b") == 3, _same(Part())),
    (field("timestamp") == pa.scalar(T + 5, pa.timestamp("ms")), _same(Part())),  # no zone
    (functools.reduce(operator.or_, [field("offset") == n for n in range(2_000)]),
     _same(Part(Window(end_offset=2_000)))),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "parts"), UNDERSTOOD, ids=range(len(UNDERSTOOD)))
def test_what_a_filter_selects(expression: pc.Expression, parts: dict[int, Part]) -> None:
    assert EVERYTHING.of(expression).parts == parts


def test_the_largest_numbers_are_no_range() -> None:
    """Windows have exclusive ends, so literals at the ends of int64 leave them open."""
    past = field("offset") <= pa.scalar(INT64_MAX, pa.int64())
    assert EVERYTHING.of(past).parts == EVERYTHING.parts
    ancient = field("timestamp") >= pa.scalar(INT64_MIN + 1, pa.timestamp("s", "UTC"))
    assert EVERYTHING.of(ancient).parts == EVERYTHING.parts


def test_another_form_of_expressions_selects_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    expression: Any = field("offset") < 3
    monkeypatch.setattr("seglake.read.filters._METADATA", "-- not in this version --\n")
    assert EVERYTHING.of(expression) == EVERYTHING
    monkeypatch.undo()
    monkeypatch.setattr("seglake.read.filters._Reading.KINDS", frozenset({"call"}))
    assert EVERYTHING.of(expression) == EVERYTHING
    assert fields_of(expression, ()) is None


# a lake that shows what is read


@pytest.fixture
def maker(tmp_path: Path) -> LakeMaker:
    """Two runs of 400 records in each of two partitions, a record each 10 ms."""
    made = LakeMaker(tmp_path / "lake", partitions=2, settings={"index.keys": True})
    shape = Shape("none", 300, 6_000, IndexPolicy(300, subjects=(RECORD_KEYS,)))
    for run in range(2):
        start = T + 4_000 * run
        rows: dict[int, list[Event]] = {0: [], 1: []}
        for number in range(800):
            key = b"k%d" % (number % 40)
            event = Event(start + 5 * number, key, b"value %d" % number, (("h", b"x"),))
            rows[int(partition_of(Spans.from_list([key]), 2)[0])].append(event)
        made.run(rows, shape)
    return made


class Asked:
    """The log as a dataset, which remembers what it was asked for."""

    def __init__(self, maker: LakeMaker, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stats = seglake.ReadStats()
        self.web = log_of(maker).dataset(stats=self.stats)
        self.filters: list[Any] = []
        self.columns: list[Any] = []
        scan = LogDataset.scanner

        def remembering(dataset: Any, *arguments: Any, **options: Any) -> Any:
            self.filters.append(options.get("filter"))
            self.columns.append(options.get("columns"))
            return scan(dataset, *arguments, **options)

        monkeypatch.setattr(LogDataset, "scanner", remembering)


@pytest.fixture
def asked(maker: LakeMaker, monkeypatch: pytest.MonkeyPatch) -> Asked:
    return Asked(maker, monkeypatch)


@pytest.fixture
def full(maker: LakeMaker) -> pa.Table:
    return plain_table(maker)


def _parts(asked: Asked) -> dict[int, Part]:
    """What the one filter of an engine selects of the two partitions."""
    (pushed,) = asked.filters
    return dict(Selection({0: Part(), 1: Part()}).of(pushed).parts)


START, END = datetime.fromtimestamp(T / 1000 + 1, UTC), datetime.fromtimestamp(T / 1000 + 2, UTC)
SECOND = Part(Window(T + 1_000, T + 2_001))

OF_DUCKDB: list[tuple[str, dict[int, Part]]] = [
    (f"timestamp BETWEEN '{START}' AND '{END}'", {0: SECOND, 1: SECOND}),
    (f"timestamp >= '{START}' AND timestamp < '{END}'",
     dict.fromkeys(range(2), Part(Window(T + 1_000, T + 2_000)))),
    (f"timestamp = '{START}'", dict.fromkeys(range(2), Part(Window(T + 1_000, T + 1_001)))),
    ('"offset" IN (3, 5)', dict.fromkeys(range(2), Part(Window(start_offset=3, end_offset=6)))),
    ('NOT ("offset" > 5)', dict.fromkeys(range(2), Part(Window(end_offset=6)))),
    ("partition = 1 AND \"offset\" < 9", {1: Part(Window(end_offset=9))}),
    ('("offset" < 3 AND partition = 0) OR ("offset" > 790 AND partition = 1)',
     {0: Part(Window(end_offset=3)), 1: Part(Window(start_offset=791))}),
    ("key = 'k7'", dict.fromkeys(range(2), Part(keys=frozenset([b"k7"])))),
    ("key IN ('k7'::BLOB, 'k9'::BLOB)",
     dict.fromkeys(range(2), Part(keys=frozenset([b"k7", b"k9"])))),
    (f"decode(key) = 'k7' AND timestamp BETWEEN '{START}' AND '{END}'", {0: SECOND, 1: SECOND}),
]  # fmt: skip


@pytest.mark.parametrize(("condition", "parts"), OF_DUCKDB, ids=range(len(OF_DUCKDB)))
def test_duckdb_pushes_its_conditions(
    asked: Asked, full: pa.Table, condition: str, parts: dict[int, Part]
) -> None:
    web, plain = asked.web, full  # noqa: F841  # DuckDB finds them by their names
    query = 'SELECT partition, "offset", value FROM {} WHERE ' + condition + " ORDER BY ALL"
    answer = sql(query.format("web")).fetchall()
    assert answer == sql(query.format("plain")).fetchall()
    assert answer
    assert _parts(asked) == parts
    assert "headers" not in asked.columns[0]


def test_duckdb_of_a_window_fetches_what_a_read_of_it_fetches(
    asked: Asked, maker: LakeMaker
) -> None:
    web = asked.web  # noqa: F841
    query = (
        f"SELECT count(*), max(value) FROM web WHERE timestamp >= '{START}' AND timestamp < '{END}'"
    )
    (count, _), *_ = sql(query).fetchall()
    stats = seglake.ReadStats()
    log_of(maker).read_range(START, END, stats=stats).read_all()
    assert (count, asked.stats.records) == (200, stats.records)
    assert asked.stats.bytes_fetched == stats.bytes_fetched
    size = sum(file.stat().st_size for file in maker.files("log"))
    assert stats.bytes_fetched < size / 6


def test_a_key_is_read_by_its_index(asked: Asked, maker: LakeMaker, full: pa.Table) -> None:
    same = field("key") == b"k7"
    assert asked.web.to_table(filter=same).equals(full.filter(same))
    plan = log_of(maker).plan_find(b"k7")
    assert plan.scanned == 0
    assert asked.stats.bytes_fetched == plan.size_bytes


START_PL, END_PL = pl.lit(START), pl.lit(END)
OF_POLARS: list[tuple[pl.Expr, dict[int, Part] | None]] = [
    (pl.col("timestamp").is_between(START_PL, END_PL), {0: SECOND, 1: SECOND}),
    ((pl.col("timestamp") >= START_PL) & (pl.col("partition") == 1),
     {1: Part(Window(start_ms=T + 1_000))}),
    (pl.col("offset").is_in([3, 5]),
     dict.fromkeys(range(2), Part(Window(start_offset=3, end_offset=6)))),
    ((pl.col("offset") < 3) | (pl.col("offset") > 790), dict.fromkeys(range(2), Part())),
    (pl.col("key") == b"k7", None),  # Polars pushes no comparison of binary columns
    (pl.col("key").is_in([b"k7", b"k9"]), None),
    (pl.col("key").cast(pl.String) == "k7", None),
]  # fmt: skip


@pytest.mark.parametrize(("condition", "parts"), OF_POLARS, ids=range(len(OF_POLARS)))
def test_polars_pushes_its_conditions(
    asked: Asked, full: pa.Table, condition: pl.Expr, parts: dict[int, Part] | None
) -> None:
    columns = ["partition", "offset", "value"]
    answer = pl.scan_pyarrow_dataset(asked.web).filter(condition).select(columns).collect()
    frame = pl.from_arrow(full)
    assert isinstance(frame, pl.DataFrame)
    assert answer.rows() == frame.filter(condition).select(columns).rows()
    assert len(answer)
    assert "headers" not in asked.columns[0]
    if parts is None:
        assert asked.filters == [None]
    else:
        assert _parts(asked) == parts


def test_a_filter_of_pyarrow_comes_before_that_of_polars(asked: Asked, full: pa.Table) -> None:
    web, same = asked.web.filter(field("key") == b"k7"), field("key") == b"k7"
    frame = pl.scan_pyarrow_dataset(web).filter(pl.col("offset") < 100).collect()
    expected = full.filter(same & (field("offset") < 100))
    assert frame["offset"].to_list() == expected["offset"].to_pylist() != []
    assert asked.stats.records == len(expected)  # both conditions choose the records


def test_duckdb_reads_local_times_in_its_own_zone(asked: Asked) -> None:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'Asia/Tokyo'")
        connection.register("web", asked.web)
        local = (START + timedelta(hours=9)).replace(tzinfo=None)
        query = f"SELECT count(*) FROM web WHERE timestamp < TIMESTAMP '{local}'"
        assert connection.execute(query).fetchone() == (200,)
    assert set(_parts(asked).values()) == {Part(Window(end_ms=T + 1_000))}


# as a dataset of pyarrow


def test_it_is_a_dataset(asked: Asked, full: pa.Table) -> None:
    web = asked.web
    assert isinstance(web, ds.Dataset)
    assert web.schema == SCHEMA
    assert str(web).startswith("A window of events in version 2, of all times: 1,600 records")
    assert web.count_rows() == 1_600
    assert web.take(pa.array([900, 3])).equals(full.take([900, 3]))
    assert web.head(3, columns=["value"]).equals(full.select(["value"]).slice(0, 3))
    assert pa.RecordBatchReader.from_stream(web).read_all().equals(full)
    assert pl.DataFrame(web).height == 1_600
    assert pickle.loads(pickle.dumps(web.filter(field("offset") < 3))).count_rows() == 6


def test_a_scan_is_that_of_pyarrow(asked: Asked, full: pa.Table, tmp_path: Path) -> None:
    web, judge = asked.web, ds.dataset(full)
    made = {"next": field("offset") + 1, "partition": field("partition")}
    later = field("offset") > 700
    assert web.to_table(made, later).equals(judge.to_table(made, later))
    assert web.to_table([], later).num_rows == judge.to_table([], later).num_rows == 198
    scanner = web.scanner(["key"], later, 50)
    assert scanner.projected_schema == judge.scanner(columns=["key"]).projected_schema
    assert scanner.dataset_schema == SCHEMA
    for _ in range(2):  # a scanner can be read again
        batches = [*scanner.to_batches()]
        assert max(map(len, batches)) <= 50
        assert pa.Table.from_batches(batches).equals(full.filter(later).select(["key"]))
    assert scanner.to_reader().read_all().num_rows == scanner.count_rows() == 198
    assert [*web.to_batches(columns=["key"], batch_readahead=4, use_threads=False)]
    keep: dict[str, Any] = {"preserve_order": True}  # which the stubs do not know
    ds.write_dataset(web, tmp_path / "copy", format="parquet", **keep)
    assert ds.dataset(tmp_path / "copy").to_table().equals(full)


def test_only_wanted_columns_are_read(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[list[str]] = []
    batches = LogDataset._batches

    def remembering(dataset: Any, schema: pa.Schema, where: Any) -> Iterator[pa.RecordBatch]:
        read.append(schema.names)
        return batches(dataset, schema, where)

    monkeypatch.setattr(LogDataset, "_batches", remembering)
    asked.web.to_table(["value"], field("key") == b"k7")
    asked.web.to_table({"x": field("offset") + field("partition")})
    asked.web.count_rows()
    asked.web.to_table(["topic"], pc.field(3) < at(9))  # not by name: any column may be meant
    assert read == [["key", "value"], ["partition", "offset"], ["partition"], SCHEMA.names]


def test_windows_versions_partitions_and_columns(maker: LakeMaker, full: pa.Table) -> None:
    log = log_of(maker)
    second = log.dataset(START, END, partitions=[1], columns=["offset", "timestamp"])
    inside = (field("timestamp") >= pa.scalar(START)) & (field("timestamp") < pa.scalar(END))
    expected = full.filter(inside & (field("partition") == 1)).select(["offset", "timestamp"])
    assert second.to_table().equals(expected)
    assert second.schema == expected.schema
    assert log.dataset(version=1).count_rows() == 800
    maker.run({0: [Event(-1, None, b"no time")]})
    log = log.at(3)
    assert [log.dataset().count_rows(), log.dataset(start=0).count_rows()] == [1_601, 1_600]
    assert log.dataset(partitions=[]).count_rows() == 0


def test_other_orders_and_joins_are_in_memory(maker: LakeMaker, full: pa.Table) -> None:
    web = log_of(maker).dataset(columns=["partition", "offset", "timestamp"])
    backwards = web.sort_by([("offset", "descending")]).to_table()
    assert (
        backwards["offset"].to_pylist()
        == full.sort_by([("offset", "descending")])["offset"].to_pylist()
    )
    few = ds.dataset(pa.table({"offset": [3, 5]}))
    assert web.join(few, "offset", join_type="inner").count_rows() == 4


def test_the_first_records_cost_few_bytes(tmp_path: Path) -> None:
    maker = LakeMaker(tmp_path / "lake")
    maker.run({0: [Event(T + n, None, NOISE) for n in range(200)]}, Shape())
    size = sum(file.stat().st_size for file in maker.files("log"))
    for take in (
        lambda web: web.head(1).num_rows,
        lambda web: len(next(iter(web.to_batches()))),
        lambda web: sql("SELECT value FROM web LIMIT 1").fetchall(),
        lambda web: pl.scan_pyarrow_dataset(web).head(1).collect().height,
    ):
        stats = seglake.ReadStats()
        assert take(log_of(maker).dataset(stats=stats))
        assert stats.bytes_fetched < size * 2 / 3


def test_errors_name_the_remedy(asked: Asked, maker: LakeMaker, full: pa.Table) -> None:
    web = asked.web
    with pytest.raises(pa.ArrowInvalid, match="No match for FieldRef"):
        web.scanner(filter=field("nope") == 1)
    with pytest.raises(pa.ArrowInvalid, match="No match for FieldRef"):
        web.scanner(columns=["nope"])
    with pytest.raises(pa.ArrowNotImplementedError):
        web.scanner(filter=field("timestamp") >= "yesterday")
    with pytest.raises(TypeError, match="filters"):
        web.scanner(filters=field("offset") == 1)
    with pytest.raises(UsageError, match="at least 1, not"):
        web.scanner(batch_size=0)
    with pytest.raises(UsageError, match=r"log\.dataset\(partitions="):
        web.get_fragments()
    with pytest.raises(UsageError, match="to_batches"):
        web.scanner().scan_batches()
    with pytest.raises(UsageError, match="Choose columns"):
        web.replace_schema(pa.schema([]))
    assert web.replace_schema(SCHEMA) is web
    with pytest.raises(UnknownTopic):
        log_of(maker).dataset(partitions=[7])
    with pytest.raises(UsageError, match="ends before it starts"):
        log_of(maker).dataset(END, START)


def test_arrow_itself_is_refused_and_does_not_crash(maker: LakeMaker) -> None:
    few: Any = ds.dataset(pa.table({"offset": [3]}))
    web = log_of(maker).dataset(columns=["offset", "key"])
    for _ in range(2):
        with pytest.raises(UsageError, match=r"to_reader\(\)"):
            few.join(web, "offset")
    whole: Any = ds.dataset([web, web])
    with pytest.raises(UsageError, match=r"to_reader\(\)"):
        whole.to_table()


def test_damage_is_named(maker: LakeMaker) -> None:
    file = maker.files("log")[0]
    data = bytearray(file.read_bytes())
    data[-3] ^= 1
    file.write_bytes(data)
    web = log_of(maker).dataset()
    with pytest.raises(CorruptData, match=file.name):
        web.to_table()
    with pytest.raises(CorruptData, match=file.name):
        web.scanner().to_reader().read_all()


def test_engines_read_fields_as_columns(tmp_path: Path) -> None:
    maker, values = LakeMaker(tmp_path), (b'{"status": %d, "user": "u%d"}', b"broken %d %d")
    events = [
        Event(T + n, b"k%d" % (n % 3), values[n % 7 == 6] % (200 + n % 2, n % 5)) for n in range(90)
    ]
    maker.run({0: events}, Shape("zstd", 200))
    log, stats = seglake.open(str(tmp_path)).topic("events"), seglake.ReadStats()
    web = log.dataset(T + 10, T + 80, fields={"status": "int16", "user": "string"}, stats=stats)
    assert web.schema.names == ["partition", "offset", "timestamp", "status", "user"]
    full = log.read_range(T + 10, T + 80, fields={"status": "int16", "user": "string"}).read_all()
    assert web.to_table().equals(full)
    by_status = dict(
        sql("SELECT status, count(*) FROM web WHERE user = 'u3' GROUP BY 1").fetchall()
    )
    users = zip(full["status"].to_pylist(), full["user"].to_pylist(), strict=True)
    kept = [status for status, user in users if user == "u3"]
    assert by_status == {status: kept.count(status) for status in {*kept}}
    late = pl.scan_pyarrow_dataset(web).filter(pl.col("offset") >= 60).select("user").collect()
    assert late["user"].to_list() == full.filter(pc.field("offset") >= 60)["user"].to_pylist()
    stats.misfits.clear()
    whole = pickle.loads(pickle.dumps(web)).to_table(columns=["offset", "user"])
    assert whole.equals(full.select(["offset", "user"]))
    assert web.to_table(columns=["user"])["user"].null_count == stats.misfits["user"] == 10


MOMENT = datetime(2000, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("name", "kind", "wanted"),
    [
        ("key", "string", "a"), ("offset", "int64", 100), ("partition", "int64", 7),
        ("timestamp", "timestamp", MOMENT), ("a'\n", "string", "a"),
        ("x\nfield_ref: 'key", "string", "a"),
    ],
)  # fmt: skip
def test_filter_on_a_field_selects_by_the_field_whatever_its_name(
    tmp_path: Path, name: str, kind: str, wanted: Any
) -> None:
    values = [json.dumps({name: value}, default=str).encode() for value in (wanted, None) * 2]
    LakeMaker(tmp_path).run({0: [Event(T + n, b"k", each) for n, each in enumerate(values)]})
    log = seglake.open(str(tmp_path)).topic("events")
    web = log.dataset(fields={name: kind}, columns=["value"])
    for condition in (pc.field(name) == wanted, pc.field(name).isin([wanted])):
        assert web.to_table(columns=["value"], filter=condition).num_rows == 2
    assert pl.scan_pyarrow_dataset(web).filter(pl.col(name) == wanted).collect().height == 2
    quoted, literal = name.replace('"', '""'), f"{wanted}".replace("'", "''")
    assert len(sql(f"FROM web WHERE \"{quoted}\" = '{literal}'").fetchall()) == 2


NAMES = st.one_of(
    st.text(st.sampled_from("'\"\n\r\\:ak"), min_size=1, max_size=6),
    st.sampled_from(["key", "a'\nfield_ref: 'key", "'\ncall: 'equal", "'\nliteral: '9"]),
)
FIELD_TEXTS = ["a", "b", "a'\n", "\n"]


def conditions(name: str) -> st.SearchStrategy[pc.Expression]:
    """Expressions over a field of strings and the offset; some have forms that narrow nothing."""
    own, texts = field(name), st.sampled_from(FIELD_TEXTS)
    leaves = st.one_of(
        texts.map(lambda text: own == text), texts.map(lambda text: own != text),
        st.lists(texts).map(lambda some: own.isin(pa.array(some, pa.string()))),
        st.sampled_from([own.is_null(), pc.match_substring(own, "a'\n"), pc.scalar(value=True)]),
        st.integers(-1, 5).map(lambda number: field("offset") >= number),
    )  # fmt: skip
    return st.recursive(
        leaves,
        lambda some: st.one_of(
            st.builds(operator.and_, some, some), st.builds(operator.or_, some, some),
            st.builds(operator.invert, some),
        ),
        max_leaves=5,
    )  # fmt: skip


@given(NAMES, st.data())
@examples(40)
def test_any_filter_on_any_field_is_that_of_the_whole_table(name: str, data: st.DataObject) -> None:
    condition = data.draw(conditions(name))
    values = [json.dumps({name: text} if text else {}).encode() for text in [*FIELD_TEXTS, None]]
    with tempfile.TemporaryDirectory() as folder:
        LakeMaker(Path(folder)).run({0: [Event(T, b"k", value) for value in values]})
        web = seglake.open(folder).topic("events").dataset(fields={name: "string"})
        assert web.to_table(filter=condition).equals(web.to_table().filter(condition))
