"""A window is an object: it shows itself unread, is read again, and libraries take it as it is."""

import builtins
import sys
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import seglake
from seglake import ReadStats, WindowReader
from seglake.cli.inspect import segment_rows
from seglake.errors import CorruptData, MissingExtra
from seglake.read.log import Log
from seglake.terminal.wording import short_bytes
from tests.makers.lakes import Event, LakeMaker, Shape

T = 1_780_272_000_000
KINDS = {
    "window": lambda log: log.read_range(T + 10, T + 50),
    "by time": lambda log: log.read_range(T + 10, T + 50, order="time"),
    "long window": lambda log: log.read_range(T + 10, T + 50, memory_bytes=2**16),
    "plan": lambda log: log.plan_range(T + 10, T + 50).execute(),
    "tail": lambda log: log.tail(20),
}
windows = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Log:
    maker = LakeMaker(tmp_path_factory.mktemp("window"), partitions=2)
    for run in range(2):
        events = [Event(T + 100 * run + n, b"k%d" % n, b"v" * 40) for n in range(60)]
        maker.run({0: events, 1: events[:30]}, Shape("zstd", batch_bytes=400, segment_bytes=2000))
    return seglake.open(str(maker.root)).topic("events")


@windows
def test_each_read_gives_the_same_records(log: Log, kind: str) -> None:
    window = KINDS[kind](log)
    assert isinstance(window, WindowReader)
    table = window.read_all()
    assert table.num_rows in {60, 40, 20}
    assert table.schema == window.schema
    for _ in range(2):
        assert pa.Table.from_batches(window, window.schema).equals(table)
        assert window.read_all().equals(table)
    first = next(iter(window))
    assert next(iter(window)).equals(first)


@windows
def test_libraries_take_the_object_itself(log: Log, kind: str) -> None:
    window = KINDS[kind](log)
    table = window.read_all()
    for _ in range(2):
        assert pl.DataFrame(window).schema == pl.DataFrame(log.read_range(T, T)).schema
        frame: Any = pl.from_arrow(window)
        assert isinstance(frame, pl.DataFrame)
        assert frame.equals(pl.DataFrame(window))
        assert frame["offset"].to_list() == table["offset"].to_pylist()
        assert pa.table(window).equals(table)
        assert pa.RecordBatchReader.from_stream(window).read_all().equals(table)
        found: Any = duckdb.sql('FROM "window" SELECT count(*)')
        assert found.fetchall() == [(table.num_rows,)]
        assert duckdb.from_arrow(window).count("*").fetchall() == [(table.num_rows,)]
        assert window.to_polars().equals(frame)
        assert window.to_pandas()["offset"].tolist() == table["offset"].to_pylist()


def test_a_library_may_ask_for_other_types(log: Log) -> None:
    window = log.read_range(T, T + 5, columns=["offset", "key"])
    wanted = pa.schema([window.schema.field("offset"), pa.field("key", pa.large_binary())])
    assert pa.RecordBatchReader.from_stream(window, wanted).read_all().schema == wanted


def test_batches_can_be_taken_one_after_another(log: Log) -> None:
    with log.tail(20) as window:
        batches = []
        while True:
            try:
                batches.append(window.read_next_batch())
            except StopIteration:
                break
        first = window.read_all().slice(0, len(batches[0]))
        with pytest.raises(StopIteration):
            window.read_next_batch()
    assert pa.Table.from_batches(batches).equals(window.read_all())
    assert pa.Table.from_batches([window.read_next_batch()]).equals(first)
    window.read_all()
    if len(batches) > 1:
        assert window.read_next_batch().equals(batches[1])


def test_nothing_is_read_until_it_is_asked_for(log: Log) -> None:
    stats = ReadStats()
    window = log.read_range(T, T + 50, stats=stats)
    assert "at most" in repr(window) + window._repr_html_()
    assert stats == ReadStats()
    window.read_all()
    window.read_all()
    assert stats.records == 160


def test_it_shows_exact_counts_where_they_are_known(log: Log) -> None:
    segments = log.segments()
    everything = log.read_range(0, None)
    assert "from 1970-01-01T00:00:00Z on: 180 records in " in repr(everything)
    sizes: Any = segments.to_arrow()["log_bytes"]
    assert f"in {short_bytes(sum(sizes.to_pylist()))} of" in repr(everything)
    some = log.read_range(T + 10, T + 50, partitions=[1])
    assert "a read gave" not in repr(some)
    for _ in some:
        break
    assert "a read gave" not in repr(some)
    some.read_all()
    assert "a read gave 20" in repr(some)
    assert "a read gave 20" in some._repr_html_()
    assert ": 0 records in 0 B of 2 log" in repr(log.read_range(T + 70, T + 80))


def test_records_below_the_log_start_do_not_count(tmp_path: Path) -> None:
    maker = LakeMaker(tmp_path, partitions=1)
    maker.run({0: [Event(T + n) for n in range(90)]}, Shape(batch_bytes=100, segment_bytes=300))
    log = seglake.open(str(tmp_path)).topic("events")
    middle = log.segments().to_arrow()["base_offset"][2].as_py()
    for start, said in ((middle, "records"), (middle + 1, "at most")):
        seglake.delete_records(str(tmp_path), "events", {0: start})
        window = seglake.open(str(tmp_path)).topic("events").read_range(0, 2**62)
        assert window.read_all().num_rows == 90 - start
        assert (f": {90 - start} records in" in repr(window)) == (said == "records")
        assert (f"at most {90 - start} records in" in repr(window)) == (said == "at most")
        log = seglake.open(str(tmp_path)).topic("events")
        listed = [row["record_count"] for row in segment_rows(log, None).rows]
        assert sum(listed) == log.reader(0).view.record_count == 90 - start
        assert log.plan_range(0, 2**62).records_at_most == 90 - start


def test_damage_is_an_error_of_its_own(tmp_path: Path) -> None:
    maker = LakeMaker(tmp_path, partitions=1)
    maker.run({0: [Event(T + n) for n in range(9)]})
    (file,) = tmp_path.glob("topics/events-0/*/*.log")
    content = bytearray(file.read_bytes())
    content[70] ^= 1
    file.write_bytes(content)
    window = seglake.open(str(tmp_path)).topic("events").read_range(T, T + 9)
    assert "9 records" in repr(window)
    for read in (window.read_all, lambda: list(window), window.read_next_batch):
        with pytest.raises(CorruptData, match=file.name):
            read()


@pytest.mark.parametrize("name", ["pandas", "polars"])
def test_a_library_may_be_missing(name: str, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = builtins.__import__

    def without(asked: str, *rest: Any) -> Any:
        if asked == name:
            raise ModuleNotFoundError(asked)
        return usual(asked, *rest)

    monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtra, match=f"pip install {name}"):
        getattr(log.tail(1), f"to_{name}")()


def test_deletions_are_looked_for_at_each_read(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    window, looks = log.read_range(T, T + 5), list[int]()
    monkeypatch.setattr(log._origin.deletions, "check", lambda: looks.append(1))
    log._origin.deletions.request_check()
    assert window.read_all() == window.read_all()
    assert len(looks) >= 2


# Polars and pandas take the buffers of a window as they are: the addresses are the same.

FIXED = ["partition", "offset", "timestamp", "timestamp_type"]


@pytest.fixture
def batch(tmp_path: Path) -> pa.RecordBatch:
    maker = LakeMaker(tmp_path)
    rows = [
        Event(T + i, b"a key that is long, %d" % i, b"and a long value, %d" % i) for i in range(500)
    ]
    maker.run({0: rows})
    reader = seglake.open(str(tmp_path)).topic("events").read_range(T, T + 500)
    (only,) = [each for each in reader if len(each)]
    return only


def addresses(array: Any) -> list[int]:
    return [buffer.address for buffer in array.buffers() if buffer is not None]


def test_polars_copies_neither_numbers_nor_bytes(batch: pa.RecordBatch) -> None:
    frame: Any = pl.from_arrow(batch)
    for name in FIXED:
        assert addresses(frame[name].to_arrow()) == addresses(batch[name])
    for name in ("key", "value"):
        views = frame[name].to_arrow(compat_level=pl.CompatLevel.newest())
        data: Any = batch[name].buffers()[2]
        assert addresses(views)[-1] == data.address


def test_pandas_copies_nothing(batch: pa.RecordBatch) -> None:
    frame = pa.Table.from_batches([batch]).to_pandas(types_mapper=pd.ArrowDtype)
    for name in [*FIXED, "key", "value"]:
        chunk = frame[name].array.__arrow_array__().chunk(0)
        assert addresses(chunk) == addresses(batch[name])
