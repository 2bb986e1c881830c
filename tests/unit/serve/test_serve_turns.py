"""Large answers are sent in turns, so clients with small requests do not wait for them."""

import asyncio
import random
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest

from seglake.serve.turns import TURN_BYTES, Turns, begin_request
from tests.harness.lake_server import Wire, serving
from tests.makers.fetches import Wanted, fetch, fetch_request
from tests.makers.lakes import Event, LakeMaker, Shape

T = 1_700_000_000_000
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
