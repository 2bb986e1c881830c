"""What a fetch brings: every batch as it is stored, from any offset, at any size and version."""

import errno
import os
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglake.format.decode import scan_batches
from seglake.read.log import Log
from tests.harness.lake_server import Serving, Wire, serving
from tests.makers.fetches import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    Wanted,
    everything,
    fetch,
    offset_at,
    records_in,
)
from tests.makers.gaps import Loss, lose_records
from tests.makers.lakes import Event, LakeMaker, Shape
from tests.makers.served import asked
from tests.makers.strategies import T, examples
from tests.makers.versions import Run, cuts, first_reaching, lost, runs, times

versions = st.sampled_from([10, 11, 12, 13, 16, 18])
sizes = st.sampled_from([1, 100, 700, 5000, 2**20])
KAFKA_GO = 10


def stored(log: Log, maker: LakeMaker, partition: int) -> bytes:
    """The bytes of all segments of the partition."""
    view = log.reader(partition).view
    keys = [view.segment(index).key("log") for index in range(len(view))]
    return b"".join((maker.root / key).read_bytes() for key in keys)


@given(runs, cuts, st.booleans(), lost, versions, sizes)
@examples(25)
def test_the_log_arrives_as_it_is_stored(
    generated: list[Run], cut: float, log_append: bool, loss: Loss | None, version: int, size: int
) -> None:
    with asked(generated, cut, log_append, loss) as (log, maker, wire):
        for partition in log.partitions():
            data = b"".join(everything(wire, "events", partition, version, size))
            start = log.beginning_offsets()[partition]
            assert records_in(data, partition, start) == maker.records(partition)
            whole = stored(log, maker, partition)
            table = scan_batches(whole)
            behind = table[table["last_offset"] >= start]
            wanted = whole[int(behind["position"][0]) :] if len(behind) else b""
            if version == KAFKA_GO:
                data, wanted = filled(data), filled(wanted)
            assert data == wanted


def filled(data: bytes) -> bytes:
    """The batches that have records: kafka-go, whose Fetch is of version 10, gets no others."""
    table = scan_batches(data)
    places = table[table["count"] > 0][["position", "size"]].tolist()
    return b"".join(data[at : at + size] for at, size in places)


@given(runs, cuts, lost, st.integers(0, 2**16), sizes, versions)
@examples(25)
def test_a_fetch_from_any_offset_begins_with_its_batch(
    generated: list[Run], cut: float, loss: Loss | None, place: int, size: int, version: int
) -> None:
    with asked(generated, cut, False, loss) as (log, maker, wire):
        for partition in log.partitions():
            start, end = log.beginning_offsets()[partition], log.end_offsets()[partition]
            for offset in {start + place % (end - start + 1), end}:
                wanted = Wanted(partition, offset, size)
                (got,) = fetch(wire, "events", [wanted], version, committed=True)
                assert (got.code, got.start, got.end, got.stable) == (0, start, end, end)
                table = scan_batches(got.data)
                if offset == end:
                    assert got.data == b""
                else:
                    assert table[0]["last_offset"] >= offset
                    expected = [r for r in maker.records(partition) if r.offset >= offset]
                    found = records_in(got.data, partition, offset)
                    assert found == expected[: len(found)]
                    assert len(table) == 1 or len(got.data) <= size
            for outside in (start - 1, end + 1):
                (got,) = fetch(wire, "events", [Wanted(partition, outside)], version)
                assert (got.code, got.start, got.end, got.data) == (1, -1, -1, b"")


@given(runs, cuts, st.booleans(), lost, st.lists(times, min_size=1, max_size=20))
@examples(15)
def test_offsets(
    generated: list[Run], cut: float, log_append: bool, loss: Loss | None, wanted: list[int]
) -> None:
    with asked(generated, cut, log_append, loss) as (log, maker, wire):
        for partition in log.partitions():
            start, end = log.beginning_offsets()[partition], log.end_offsets()[partition]
            assert offset_at(wire, "events", partition, EARLIEST) == (0, start, -1)
            assert offset_at(wire, "events", partition, LATEST) == (0, end, -1)
            records = maker.records(partition)
            for time in wanted:
                found = first_reaching(records, time) or (-1, -1)
                assert offset_at(wire, "events", partition, time) == (0, *found)
            dated = [record for record in records if record.timestamp >= 0]
            newest = max(dated, key=lambda r: (r.timestamp, -r.offset), default=None)
            expected = (-1, -1) if newest is None else (newest.offset, newest.timestamp)
            assert offset_at(wire, "events", partition, MAX_TIMESTAMP) == (0, *expected)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    maker = LakeMaker(tmp_path_factory.mktemp("lake"), partitions=3)
    rows = [Event(1_700_000_000_000 + i, b"%d" % i, b"value %d" % i) for i in range(400)]
    maker.run({0: rows, 1: rows[:200]}, Shape("zstd", batch_bytes=400, segment_bytes=3000))
    with serving(maker.root) as running:
        yield running


def test_sizes_are_shared_out_as_a_broker_does(server: Serving) -> None:
    """The first partition with records has one batch whole; then the limits hold."""
    with Wire(server.address) as wire:
        three = [Wanted(2, 0, 1), Wanted(0, 0, 1), Wanted(1, 0, 1000)]
        nothing, first, some = fetch(wire, "events", three, min_bytes=0)
        assert nothing.data == b""
        assert len(scan_batches(first.data)) == 1
        assert 0 < len(some.data) <= 1000
        first, none = fetch(wire, "events", [Wanted(0, 0, 1), Wanted(1, 0, 1)])
        assert (len(scan_batches(first.data)), none.data) == (1, b"")
        both = [Wanted(0, 0, 1000), Wanted(1, 0, 1000)]
        first, second = fetch(wire, "events", both, max_bytes=1500)
        assert 0 < len(first.data) <= 1000
        assert len(second.data) <= 1500 - len(first.data)


@pytest.mark.parametrize("version", [4, 9, 10])
def test_zstd_is_sent_as_it_is_in_every_version(server: Serving, version: int) -> None:
    """As a broker does: rskafka, and kafka-python and aiokafka of 2020, ask by version 4."""
    with Wire(server.address) as wire:
        (got,) = fetch(wire, "events", [Wanted(0, 0)], version)
        assert (got.code, len(records_in(got.data, 0))) == (0, 400)


def test_a_fetch_of_nothing_that_there_is(server: Serving) -> None:
    with Wire(server.address) as wire:
        assert [each.code for each in fetch(wire, "events", [Wanted(3, 0), Wanted(-1, 0)])] == [
            3,
            3,
        ]
        assert [each.code for each in fetch(wire, "none", [Wanted(0, 0)])] == [3]


def test_bytes_go_from_file_to_socket(server: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    sent, original = list[int](), os.sendfile

    def counted(*given: int) -> int:
        sent.append(original(*given))
        return sent[-1]

    monkeypatch.setattr(os, "sendfile", counted)
    with Wire(server.address) as wire:
        (got,) = fetch(wire, "events", [Wanted(0, 0, 2**20)])
    assert sum(sent) == len(got.data) > 3000


def test_a_file_system_without_sendfile(server: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    with Wire(server.address) as wire:
        (wanted,) = fetch(wire, "events", [Wanted(0, 0, 2**20)])

    def none(*_given: int) -> int:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "sendfile", none)
    with Wire(server.address) as wire:
        (got,) = fetch(wire, "events", [Wanted(0, 0, 2**20)])
    assert got.data == wanted.data


@pytest.fixture(scope="module")
def emptied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """Records at 0 to 9 and 30 to 39 of 60; all other batches are emptied, as a cleaner does."""
    maker = LakeMaker(tmp_path_factory.mktemp("emptied"))
    maker.run({0: [Event(T + at, b"%d" % at, b"v") for at in range(60)]}, Shape("none", 100))
    loss = Loss(1, 0, 0, 1, 0, joined=1, headers=1, dated=True, by_rewrite=False)
    lose_records(maker, 0, {*range(10, 30), *range(40, 60)}, loss)
    with serving(maker.root) as running:
        yield running


@pytest.mark.parametrize("version", [4, 12, 16])
def test_fetch_after_an_emptied_batch_moves_on(emptied: Serving, version: int) -> None:
    """Whoever gets a batch without records and asks again gets those that follow."""
    there = [*range(10), *range(30, 40)]
    for offset in {*range(60)} - {10, 11, 40, 41}:  # in a batch whose other records are left
        with Wire(emptied.address) as wire:
            wanted, found = [Wanted(0, offset, 1)], list[int]()
            for _ in range(2):
                (got,) = fetch(wire, "events", wanted, version)
                assert got.code == 0
                assert len(table := scan_batches(got.data)) == 1
                found = [each.offset for each in records_in(got.data, 0, offset)]
                if found:
                    break
            assert found[:1] == [at for at in there if at >= offset][:1]
            assert found or table[-1]["last_offset"] == 59


def test_kafka_go_waits_at_once(emptied: Serving) -> None:
    """An answer without a record that came at once made it read from offset 1 on, for ever."""
    with Wire(emptied.address) as wire:
        (got,) = fetch(wire, "events", [Wanted(0, 12, 1)], 10, max_wait_ms=20_000)
        assert [each.offset for each in records_in(got.data, 0, 12)][:1] == [30]
        started = time.monotonic()
        (got,) = fetch(wire, "events", [Wanted(0, 42)], 10, max_wait_ms=300)
        assert scan_batches(got.data)[-1]["last_offset"] == 59
        assert time.monotonic() - started > 0.3


def test_kafka_go_gets_no_batch_without_records(emptied: Serving) -> None:
    """It died of three in a row."""
    with Wire(emptied.address) as wire:
        for offset in (0, 10, 12, 40):  # the last records of the batches of 10 and 40 are lost
            (got,) = fetch(wire, "events", [Wanted(0, offset)], 10, max_wait_ms=300)
            table = scan_batches(got.data)
            assert table["count"].all()
            assert table[-1]["last_offset"] == 41


def test_fetch_that_repeats_an_emptied_batch_waits(emptied: Serving) -> None:
    """kafka-go asked 130 times a second: an empty batch does not move it on."""
    with Wire(emptied.address) as wire:
        for offset in (40, 55):
            for wait_ms, least_s in ((20_000, 0.0), (300, 0.29), (300, 0.29)):
                started = time.monotonic()
                (got,) = fetch(wire, "events", [Wanted(0, offset)], max_wait_ms=wait_ms)
                assert got.data
                assert least_s <= time.monotonic() - started < 15
