"""Eight writers at once on one topic of a lake on S3, each in a process of its own."""

from __future__ import annotations

from concurrent.futures import wait as wait_for
from pathlib import Path

import pytest

from seglake.maintain.verify import verify
from seglake.store import open_store
from tests.onlooker import Onlooker
from tests.raw_events import Line, T, assert_holds, ingest, pipeline_of, read_lake, write_file
from tests.unit.ingest_flow.writers import writers

WRITERS, LINES = 8, 40
KEYS = ["a", "b", "c", None]


def upload(path: Path, number: int, folder: str) -> str:
    """The URI of a file of events, which is written at `path` too."""
    write_file(path, [Line(T + 10 * at + number, KEYS[at % 4]) for at in range(LINES)])
    open_store(folder).put(path.name, path.read_bytes())
    return f"{folder}/{path.name}"


@pytest.mark.parametrize("clock", ["CreateTime", "LogAppendTime"])
def test_eight_writers_at_once_all_succeed(place: str, tmp_path: Path, clock: str) -> None:
    paths = [tmp_path / f"{number}.jsonl" for number in range(WRITERS + 1)]
    uris = [upload(path, number, f"{place}/in") for number, path in enumerate(paths)]
    topic = {"message.timestamp.type": clock, "batch.size": 200, "segment.bytes": 2000}
    settings = [
        pipeline_of(f"{place}/lake", uri, topic=topic, name=path.stem)
        for uri, path in zip(uris, paths, strict=True)
    ]
    first = settings.pop()
    ingest(first, "first")
    onlooker = Onlooker(f"{place}/lake", LINES)
    onlooker.look()
    with writers(WRITERS) as start:
        futures = [
            start(each, "1", clock_ms=1000 * (number % 3)) for number, each in enumerate(settings)
        ]
        while wait_for(futures, timeout=0.05).not_done:
            onlooker.look()
        done = sorted((each.result() for each in futures), key=lambda done: done.report.version)
    onlooker.look()
    onlooker.assert_moved_on()
    assert onlooker.files[-1] == WRITERS + 1
    assert len({each.report.version for each in done}) == WRITERS
    # the losers moved what they had written: none of them read or encoded anything again
    assert {(each.read, each.written) for each in done} == {(1, 1)}
    assert done[0].report.rebased == 0
    assert all(each.report.rebased > 0 for each in done[1:])
    runs = [[tmp_path / f"{name}.jsonl"] for name in (WRITERS, *(d.report.pipeline for d in done))]
    assert_holds(read_lake(f"{place}/lake"), first, runs)
    assert verify(f"{place}/lake", deep=True).findings == []
