"""What a fetch brings: every batch as it is stored, from any offset, at any size and version."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

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
from tests.makers.gaps import Loss
from tests.makers.lakes import Event, LakeMaker, Shape
from tests.makers.strategies import examples
from tests.makers.versions import Run, cuts, first_reaching, lake_of, lost, runs, times

versions = st.sampled_from([10, 11, 12, 13, 16, 18])
sizes = st.sampled_from([1, 100, 700, 5000, 2**20])


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
    with (
        lake_of(generated, cut, log_append, loss) as (log, maker),
        serving(maker.root) as server,
        Wire(server.address) as wire,
    ):
        for partition in log.partitions():
            data = b"".join(everything(wire, "events", partition, version, size))
            start = log.beginning_offsets()[partition]
            assert records_in(data, partition, start) == maker.records(partition)
            whole = stored(log, maker, partition)
            table = scan_batches(whole)
            behind = table[table["last_offset"] >= start]
            assert data == (whole[int(behind["position"][0]) :] if len(behind) else b"")


@given(runs, cuts, lost, st.integers(0, 2**16), sizes, versions)
@examples(25)
def test_a_fetch_from_any_offset_begins_with_its_batch(
    generated: list[Run], cut: float, loss: Loss | None, place: int, size: int, version: int
) -> None:
    with (
        lake_of(generated, cut, False, loss) as (log, maker),
        serving(maker.root) as server,
        Wire(server.address) as wire,
    ):
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
    with (
        lake_of(generated, cut, log_append, loss) as (log, maker),
        serving(maker.root) as server,
        Wire(server.address) as wire,
    ):
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


def test_zstd_is_not_sent_to_clients_too_old_for_it(server: Serving) -> None:
    with Wire(server.address) as wire:
        (got,) = fetch(wire, "events", [Wanted(0, 0)], version=9)
        assert (got.code, got.data) == (76, b"")
        (got,) = fetch(wire, "events", [Wanted(0, 0)], version=10)
        assert (got.code, bool(got.data)) == (0, True)


def test_a_fetch_of_nothing_that_there_is(server: Serving) -> None:
    with Wire(server.address) as wire:
        assert [each.code for each in fetch(wire, "events", [Wanted(3, 0), Wanted(-1, 0)])] == [
            3,
            3,
        ]
        assert [each.code for each in fetch(wire, "none", [Wanted(0, 0)])] == [3]


def test_bytes_go_from_file_to_socket(server: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = list[int]()
    original = asyncio.base_events.BaseEventLoop.sendfile

    async def counted(
        self: Any, transport: Any, file: Any, offset: int, count: int, *, fallback: bool
    ) -> int:
        sent.append(count)
        return await original(self, transport, file, offset, count, fallback=fallback)

    monkeypatch.setattr(asyncio.base_events.BaseEventLoop, "sendfile", counted)
    with Wire(server.address) as wire:
        (got,) = fetch(wire, "events", [Wanted(0, 0, 2**20)])
    assert sum(sent) == len(got.data) > 3000


def test_a_file_system_without_sendfile(server: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    with Wire(server.address) as wire:
        (wanted,) = fetch(wire, "events", [Wanted(0, 0, 2**20)])

    async def none(*_given: Any, fallback: bool) -> int:
        assert not fallback  # it would move the position of a file that others read
        raise asyncio.SendfileNotAvailableError

    monkeypatch.setattr(asyncio.base_events.BaseEventLoop, "sendfile", none)
    with Wire(server.address) as wire:
        (got,) = fetch(wire, "events", [Wanted(0, 0, 2**20)])
    assert got.data == wanted.data
