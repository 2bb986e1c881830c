"""Many topics, slow plans, large windows, attached logs: whoever else asks is answered."""

import asyncio
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.metadata import MetadataRequest

from seglake.kafka.attach import attach_logs
from seglake.log.links import ChunkedLog
from seglake.serve.topics import catalog
from seglake.serve.topics.partition import WindowPartition
from seglake.serve.turns import TURN_BYTES, Turns, begin_request
from tests.harness.lake_server import Wire, holds, serving, until
from tests.makers.broker_folders import BrokerLog, Step
from tests.makers.fetches import Wanted, fetch, fetch_request, metadata
from tests.makers.lakes import Event, LakeMaker, Shape, T
from tests.makers.served import time_name
from tests.makers.tiered_bucket import Tiering, tier

HELD_S = 0.05  # of the loop's own processor time, at once


def lake_of(folder: Path, records: int = 50, segment_records: int = 50) -> LakeMaker:
    made = LakeMaker(folder, partitions=4)
    for first in range(0, records, segment_records):
        made.run({0: [Event(T + i, b"%d" % i) for i in range(first, first + segment_records)]})
    return made


def test_ten_thousand_topics_hold_nobody(tmp_path: Path) -> None:
    """Metadata of all, and a new version of all; the lake says it has more topics than it has."""
    made = lake_of(tmp_path)
    with serving(tmp_path, refresh_ms=3_600_000) as server, Wire(server.address) as wire:
        lake = server.topics._lake
        one, names = lake.topic, [f"topic-{number}" for number in range(10_000)]
        lake.topics = lambda: names  # type: ignore[method-assign]
        lake.topic = lambda name: one("events")  # type: ignore[method-assign]
        made.run({1: [Event(T)]})
        with holds(server) as found:
            server.refresh()
        assert max(found) < HELD_S
        with holds(server) as found:
            answer = metadata(wire, None, 12)
        assert max(found) < HELD_S
    assert [each.name for each in answer.topics] == sorted(names)
    assert {len(each.partitions) for each in answer.topics} == {4}


def test_slow_plans_of_windows_leave_fetches_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake_of(tmp_path)
    go_on, planning = threading.Event(), list[int]()
    plan = WindowPartition

    def slow(*args: Any) -> Any:
        planning.append(1)
        assert go_on.wait(120)
        return plan(*args)

    monkeypatch.setattr(catalog, "WindowPartition", slow)
    with serving(tmp_path) as server:
        waiting = [Wire(server.address) for _ in range(9)]
        for number, wire in enumerate(waiting):
            name = f"events.{time_name(T + number)}.{time_name(T + 50)}"
            asked = MetadataRequest.MetadataRequestTopic(name=name)
            wire.send(MetadataRequest(topics=[asked]), 9)
        until(lambda: len(planning) >= 1)
        with Wire(server.address) as wire:
            (got,) = fetch(wire, "events", [Wanted(0, 0)])
            assert got.data
        go_on.set()
        for wire in waiting:
            assert wire.receive() is not None
            wire.close()


def test_windows_are_bounded_by_what_they_hold(tmp_path: Path) -> None:
    """Ten that are wide push each other out; as many narrow ones stay."""
    lake_of(tmp_path, 400, 10)
    wide = [f"events.{time_name(T + at)}.{time_name(T + 400)}" for at in range(10)]
    narrow = [f"events.{time_name(T + 10 * at)}.{time_name(T + 10 * at + 5)}" for at in range(10)]
    versions = [f"events.v{number}" for number in range(30, 40)]
    for names, many in ((wide, False), (narrow, True), (versions, False)):
        with serving(tmp_path, windows_bytes=300_000) as server, Wire(server.address) as wire:
            for name in names:
                (topic,) = metadata(wire, [name], 12).topics
                assert topic.error_code == 0
            sizes = [each.size for each in server.topics._derived.values()]
            assert sum(sizes) <= 300_000
            assert (len(sizes) == 10) == many
            assert len(server.topics._ids) == 1 + len(sizes)


def attached(folder: Path, topics: list[str]) -> None:
    """A lake with these topics of eight records, which lie in a bucket."""
    log = BrokerLog([Step(-1, tuple(Event(T + at, b"k") for at in range(8)))])
    for name in topics:
        bucket = folder / f"bucket-{name}"
        tier(log.write(folder / name / "events-0"), bucket, Tiering("t/", 64, False))
        attach_logs(str(folder / "lake"), [str(bucket)], topic="events", name=name)


def test_a_slow_bucket_leaves_the_lake_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nine attached logs are fetched at once, and their bucket does not answer."""
    names = [f"far{number}" for number in range(9)]
    attached(tmp_path, names)
    lake_of(tmp_path / "lake")
    go_on, waiting, read = threading.Event(), list[str](), ChunkedLog.read_ranges

    def slow(log: ChunkedLog, *asked: Any) -> Any:
        waiting.append(log.uri)
        assert go_on.wait(120)
        return read(log, *asked)

    monkeypatch.setattr(ChunkedLog, "read_ranges", slow)
    with serving(tmp_path / "lake") as server:
        wires = [Wire(server.address) for _ in names]
        for wire, name in zip(wires, names, strict=True):
            wire.send(fetch_request(name, [Wanted(0, 0)]), 11)
        until(lambda: len(waiting) >= 8)
        with Wire(server.address) as wire:
            (got,) = fetch(wire, "events", [Wanted(0, 0)])
            assert got.data
        go_on.set()
        for wire in wires:
            assert wire.receive() is not None
            wire.close()


# Large answers are sent in turns, so clients with small requests do not wait for them.


BUSY = 20  # clients with large requests
START_BYTES = 64 * 1024  # that each answer may send without a turn


def test_bytes_between_two_polls_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maker, value = LakeMaker(tmp_path), random.Random(1).randbytes(100_000)
    maker.run({0: [Event(T + i, b"k", value) for i in range(100)]}, Shape("none", 200_000))
    sent, run_once = list[int](), asyncio.BaseEventLoop._run_once  # type: ignore[attr-defined]

    def counted(loop: asyncio.BaseEventLoop) -> None:
        run_once(loop)
        sent.append(server.topics._counts.sent_bytes)

    def read(wire: Wire) -> int:
        return len(wire.receive() or b"")

    with serving(tmp_path) as server, ThreadPoolExecutor(BUSY) as readers:
        wires = [Wire(server.address) for _ in range(BUSY)]
        with Wire(server.address) as wire:
            fetch(wire, "events", [Wanted(0, 0, 2**26)])
            monkeypatch.setattr(asyncio.BaseEventLoop, "_run_once", counted)
            for busy in wires:
                busy.send(fetch_request("events", [Wanted(0, 0, 2**26)]), 12)
            sizes = [*readers.map(read, wires)]
            monkeypatch.undo()
        for busy in wires:
            busy.close()
    assert min(sizes) > 10_000_000
    steps = [after - before for before, after in pairwise(sent)]
    assert max(steps) <= TURN_BYTES + BUSY * START_BYTES


def test_short_answers_overtake_long_ones_which_still_proceed() -> None:
    turns, served = Turns(), list[str]()

    async def answer(name: str, count: int) -> None:
        request = begin_request(turns)
        for _ in range(count):
            await request.next()
            served.append(name)

    async def run() -> None:
        long = [asyncio.create_task(answer("long", 1000)) for _ in range(50)]
        while len(served) < 1000:
            await asyncio.sleep(0)
        served.clear()
        await answer("short", 3)
        assert len(served) <= 10
        served.clear()
        await asyncio.gather(*(answer("short", 4) for _ in range(50)))
        assert served.count("long") >= 100
        for task in long:
            task.cancel()

    asyncio.run(run())
