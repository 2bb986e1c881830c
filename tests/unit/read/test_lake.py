"""The façade: versions, refresh, other processes and threads, and answers that need no property."""

import datetime as dt
import pickle
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import seglake
from seglake.catalog.schema import RunRow, SegmentRow
from seglake.errors import UnknownTopic, UsageError
from seglake.format.index import IndexPolicy
from seglake.log.execute import SCHEMA
from seglake.maintain.health.reindex import reindex
from seglake.read.log import Log
from seglake.terminal.tables import Column, ShowsTable, Table
from tests.makers.lakes import Event, LakeMaker, Shape, T


@pytest.fixture
def maker(tmp_path: Path) -> LakeMaker:
    made = LakeMaker(tmp_path / "lake", partitions=2)
    rows = [Event(T + 10 * i, b"k", b"v%d" % i) for i in range(30)]
    made.run({0: rows, 1: rows[:5]}, interval=(T, T + 100))
    return made


def test_a_window_of_another_version(maker: LakeMaker) -> None:
    old = seglake.open(str(maker.root)).topic("events")
    maker.run({0: [Event(T + 3)]})
    new = seglake.open(str(maker.root)).topic("events")
    for log in (new, pickle.loads(pickle.dumps(new))):
        for version, count in ((None, 36), (new.version, 36), (old.version, 35)):
            for order in ("offset", "time"):
                found = log.read_range(T, T + 1000, version=version, order=order).read_all()
                assert found.num_rows == count
            plan = log.plan_range(T, T + 1000, version=version)
            assert (plan.version, plan.execute().read_all().num_rows) == (
                new.version if version is None else version, count,
            )  # fmt: skip
        assert log.at(old.version).at(new.version).end_offsets() == new.end_offsets()
        with pytest.raises(UsageError, match="no version 99 yet"):
            log.read_range(T, T + 1000, version=99)


def test_refresh_moves_on_and_keeps_logs_where_they_are(maker: LakeMaker) -> None:
    lake = seglake.open(str(maker.root))
    log = lake.topic("events")
    maker.run({1: [Event(T)]})
    assert lake.refresh() is lake
    assert (log.end_offsets(), lake.topic("events").end_offsets()) == ({0: 30, 1: 5}, {0: 30, 1: 6})
    assert log.version < lake.version
    assert [run.run_id for run in lake.history()] == ["run 0", "run 1"]
    assert lake.history("events") == lake.history()


@pytest.mark.parametrize("before", [0, 4096])
def test_refresh_takes_other_indexes_of_a_log_for_what_they_are(
    maker: LakeMaker, before: int
) -> None:
    maker.run({0: [Event(T + 1000 + i) for i in range(200)]}, Shape(policy=policy(before)))
    lake = seglake.open(str(maker.root))
    times = [T + 1000 + i for i in range(200)]
    asked: list[Any] = [lake.topic("events").offsets_for_times({0: time})[0] for time in times]
    assert [(found.offset, found.timestamp) for found in asked] == list(enumerate(times, 30))
    reindex(str(maker.root), "events", policy(4096 - before))
    log = lake.refresh().topic("events")
    assert [log.offsets_for_times({0: time})[0] for time in times] == asked
    assert [log.record_at(0, found.offset).timestamp for found in asked] == times


def policy(interval_bytes: int) -> IndexPolicy:
    return IndexPolicy(interval_bytes)


def test_the_newest_record_is_found_though_more_is_promised(maker: LakeMaker) -> None:
    """An emptied batch keeps its times in the log's header, and so in indexes and catalog."""
    lake = seglake.open(str(maker.root))
    lake._snapshot.partition("events", 0).segments.max_timestamps[-1] += 1000
    log = lake.topic("events")
    assert log.max_timestamps()[0] == (29, T + 290)
    assert log.lag({0: 0})[0] == (30, 290)


def test_no_lake_no_topic_no_partition(maker: LakeMaker, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no lake .*\. Check the path"):
        seglake.open(str(tmp_path / "nothing"))
    lake = seglake.open(str(maker.root))
    assert lake.topics() == ["events"]
    with pytest.raises(UnknownTopic, match="other"):
        lake.topic("other")
    wrong: list[Callable[[Log], object]] = [
        lambda log: log.record_at(2, 0),
        lambda log: log.offsets_for_times({-1: T}),
        lambda log: log.end_offsets([7]),
        lambda log: log.read_range(T, T, partitions=[2]),
    ]
    for ask in wrong:
        with pytest.raises(UnknownTopic, match="partitions 0 to 1"):
            ask(lake.topic("events"))


def test_what_has_no_meaning_is_refused(maker: LakeMaker) -> None:
    log = seglake.open(str(maker.root)).topic("events")
    with pytest.raises(UsageError, match="zone"):
        log.read_range("2023-11-14T22:13:20", "2023-11-14T22:13:21")
    with pytest.raises(UsageError, match="seconds"):
        log.offsets_for_times({0: 1_700_000_000})
    with pytest.raises(UsageError, match="1970"):
        log.offsets_for_times({0: -5})
    with pytest.raises(UsageError, match="1970"):
        log.offsets_for_times_array(0, [T, -5])
    with pytest.raises(UsageError, match="before it starts"):
        log.read_range(T + 1, T)
    with pytest.raises(UsageError, match="order"):
        log.read_range(T, T, order="key")
    with pytest.raises(UsageError, match="unknown column 'size'"):
        log.read_range(T, T, columns=["size"])
    with pytest.raises(UsageError, match="twice"):
        log.read(0, 0, columns=["key", "key"])


def test_times_in_all_their_forms(maker: LakeMaker) -> None:
    log = seglake.open(str(maker.root)).topic("events")
    moment = dt.datetime.fromtimestamp(T / 1000, dt.UTC) + dt.timedelta(0, 0.05)
    for time in (T + 50, str(T + 50), moment, moment.isoformat()):
        assert log.offsets_for_times({0: time})[0] == (5, T + 50)


def test_the_schema_is_the_documented_one(maker: LakeMaker) -> None:
    log = seglake.open(str(maker.root)).topic("events")
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    documented: dict[str, Any] = {
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("ms", tz="UTC"),
        "timestamp_type": pa.int32(),
        "key": pa.binary(),
        "value": pa.binary(),
        "headers": pa.list_(header),
    }
    assert pa.schema(documented) == SCHEMA == log.read_range(T, T + 1).schema
    assert log.read_range(T, T).read_all().schema == SCHEMA
    assert log.read(0, 30).schema == SCHEMA
    log.read_range(T, T + 1000).read_all().validate(full=True)


def test_others_take_the_stream(maker: LakeMaker) -> None:
    log = seglake.open(str(maker.root)).topic("events")
    events = log.read_range(T, T + 1000)  # noqa: F841  # the query names it
    counts: Any = duckdb.sql("SELECT partition, count(*) FROM events GROUP BY ALL ORDER BY 1")
    assert counts.fetchall() == [(0, 30), (1, 5)]
    frame: Any = pl.from_arrow(log.read_range(T, T + 1000).read_all())
    assert frame["offset"].sum() == 29 * 15 + 10
    assert len(log.read_range(T, T + 1000).read_pandas()) == 35


def test_a_plan_can_be_looked_at_and_sent_away(maker: LakeMaker) -> None:
    plan = seglake.open(str(maker.root)).topic("events").plan_range(T, T + 51, columns=["offset"])
    assert [piece.segment.partition for piece in plan.pieces] == [0, 1]
    assert 0 < plan.size_bytes <= sum(piece.segment.log_bytes for piece in plan.pieces)
    assert plan.records_at_most >= 11
    assert plan.ranges == 2
    sent = pickle.loads(pickle.dumps(plan))
    assert sent.execute().read_all()["offset"].to_pylist() == [0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4]


def test_an_empty_log_answers(tmp_path: Path) -> None:
    maker = LakeMaker(tmp_path)
    maker.run({0: []})
    log = seglake.open(str(tmp_path)).topic("events")
    assert (log.beginning_offsets(), log.end_offsets()) == ({0: 0}, {0: 0})
    assert log.offsets_for_times({0: 0}) == {0: None}
    assert log.max_timestamps() == {0: None}
    assert log.lag({0: 0}) == {0: (0, 0)}
    assert len(log.read(0, 0)) == len(log.read_range(0, T).read_all()) == 0
    assert len(log.read_range(0, T, order="time").read_all()) == 0


# What a lake shows of itself: tables as text and as HTML, lists as Arrow tables.


JUNE = 1_780_272_000_000


@pytest.fixture
def hourly(tmp_path: Path) -> seglake.read.lake.Lake:
    maker = LakeMaker(tmp_path, partitions=2)
    for hour in range(3):
        rows = [Event(JUNE + hour * 3_600_000 + second * 1000) for second in range(40)]
        interval = (JUNE + hour * 3_600_000, JUNE + (hour + 1) * 3_600_000)
        maker.run({0: rows, 1: rows[:3]}, Shape(segment_bytes=2000), interval)
    return seglake.open(str(tmp_path))


def test_segments_are_the_rows_of_the_catalog(hourly: seglake.read.lake.Lake) -> None:
    found = hourly.topic("events").segments()
    table = pa.table(found)
    assert table.equals(found.to_arrow())
    assert {*table.column_names} == {f.name for f in fields(SegmentRow)} - {"topic"}
    places = list(
        zip(*(table[name].to_pylist() for name in ("partition", "base_offset")), strict=True)
    )
    assert places == sorted(places)
    counts: list[Any] = table["record_count"].to_pylist()
    assert sum(counts) == 129
    assert repr(found).splitlines()[0] == f"{len(places)} segments of events"


def test_history_is_a_list_and_an_arrow_table(hourly: seglake.read.lake.Lake) -> None:
    runs = hourly.history()
    assert [run.run_id for run in runs] == ["run 0", "run 1", "run 2"]
    table = runs.to_arrow()
    assert {*table.column_names} == {f.name for f in fields(RunRow)}
    assert [RunRow(**row) for row in table.to_pylist()] == runs
    newest = repr(runs).splitlines()[3]
    assert "2026-06-01T02:00:00Z/2026-06-01T03:00:00Z" in newest
    assert newest.split()[2:4] == ["run", "2"]
    head = repr(runs).splitlines()[1]
    assert {"finished", "topic", "run", "records", "state"} <= {*head.split()}
    assert hourly.maintenance().to_arrow().num_rows == 0
    assert repr(hourly.maintenance()).startswith("0 commits")


def test_html_is_escaped_and_long_tables_are_cut() -> None:
    class Evil(ShowsTable):
        def _table(self) -> Table:
            return Table("<t>", [Column("h", "<h>")], [("<b>",)] * 30, 50)

    html = Evil()._repr_html_()
    assert "&lt;t&gt;" in html
    assert "<b>" not in html
    assert html.count("<tr>") == 21
    assert html.endswith("<p>… and 30 more</p>")
    assert repr(Evil()).splitlines()[-1] == "… and 30 more"


def test_a_misspelt_topic_gets_the_nearest(hourly: seglake.read.lake.Lake) -> None:
    with pytest.raises(UnknownTopic, match=r"'event' is not in version 3.*Did you mean 'events'\?"):
        hourly.topic("event")
    with pytest.raises(UnknownTopic, match=r"of the lake$"):
        hourly.history("zzz")
