"""Segments that move behind those of another run: what is damaged by then is found, not moved."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from seglake.catalog.commits import CatalogCommits
from seglake.catalog.schema import SegmentRow
from seglake.errors import CorruptData, StoreError
from seglake.format.decode import scan_batches
from seglake.format.index import RECORD_KEYS, IndexPolicy
from seglake.layout import ALL_SUFFIXES, new_attempt
from seglake.maintain.health.reindex import rebuild_index_files
from seglake.maintain.health.repair import rebuild_catalog
from seglake.maintain.health.verify import verify
from seglake.maintain.vacuum import vacuum
from seglake.store import open_store
from seglake.write.driver import commit as rebase
from seglake.write.driver.commit import RebaseTask
from seglake.write.driver.report import Report
from tests.harness.damaged import flipped
from tests.makers.lakes import Event, LakeMaker, Shape, open_catalog
from tests.makers.raw_events import T, ingest, pipeline_of, read_lake, read_raw

CLOCKS = {"CreateTime": None, "LogAppendTime": 2000}


@pytest.fixture
def maker(tmp_path: Path) -> LakeMaker:
    return LakeMaker(tmp_path)


def segment(maker: LakeMaker, clock: str) -> SegmentRow:
    events = [Event(1000 + i * 7 % 20, b"k", b"v" * (i % 5)) for i in range(9)]
    maker.run(
        {0: events},
        Shape(
            policy=IndexPolicy(100, subjects=(RECORD_KEYS,)),
            batch_bytes=100,
            append_time_ms=CLOCKS[clock],
        ),
    )
    (row,) = maker.catalog.rows.segments(maker.catalog.snapshot(), "events")
    return row


def moved(maker: LakeMaker, row: SegmentRow) -> SegmentRow:
    """What becomes of a segment that moves by 100 offsets; a stamp becomes 3000."""
    return RebaseTask(open_store(str(maker.root)), {0: 100}, new_attempt(), 3000)(row)


@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("suffix", ALL_SUFFIXES)
def test_every_damaged_byte_and_length_is_named_and_stays(
    maker: LakeMaker, monkeypatch: pytest.MonkeyPatch, clock: str, suffix: str
) -> None:
    monkeypatch.setattr(rebase, "READ_BYTES", 150)  # a batch or two at a time
    row = segment(maker, clock)
    path = maker.root / row.key(suffix)  # type: ignore[arg-type]
    sound = path.read_bytes()
    if suffix != "log" and clock == "LogAppendTime":  # then it is made anew and not looked at
        path.write_bytes(b"")
        assert moved(maker, row).base_offset == 100
        return
    batches = scan_batches(sound)["position"].tolist() if suffix == "log" else [0]
    for at in range(len(sound)):
        for changed in (*flipped(sound, [at], [at % 8]), sound[:at]):
            path.write_bytes(changed)
            with pytest.raises((CorruptData, StoreError), match=path.name) as raised:
                moved(maker, row)
            if len(changed) == len(sound):
                assert isinstance(raised.value, CorruptData)
                assert raised.value.file == row.key(suffix)  # type: ignore[arg-type]
                assert raised.value.position == max(place for place in batches if place <= at)
    copies = {path.name for path in maker.root.glob("topics/*/*/*.log")}
    assert copies == ({path.name} if suffix == "log" else {f"{0:020}.log", f"{100:020}.log"})


@pytest.mark.parametrize("clock", CLOCKS)
def test_what_moved_is_as_if_it_had_been_written_there(maker: LakeMaker, clock: str) -> None:
    row = moved(maker, segment(maker, clock))
    files = rebuild_index_files(maker.store, row, row.index_policy)
    assert files.keys() == {*row.suffixes[1:]}
    for suffix in row.suffixes[1:]:
        assert bytes(maker.store.read_all(row.key(suffix))) == files[suffix]


def test_a_lost_race_copies_only_what_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others append to partition 1, then to 1 and 2; nobody appends to the partitions 0 and 3."""
    lake, commit = tmp_path / "lake", CatalogCommits.make
    topic = {"partition_field": "p", "partitions": 4}
    others = [[1], [1, 2], [1]]

    def run(name: str, partitions: Sequence[int]) -> Report:
        lines = ({"ts": T + at, "p": partitions[at % len(partitions)]} for at in range(40))
        path = tmp_path / f"{name}.jsonl"
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        return ingest(pipeline_of(lake, path, topic=topic), name)

    def overtaken(commits: CatalogCommits, *given: Any, **named: Any) -> int:
        if others:
            partitions = others.pop(0)
            with monkeypatch.context() as inner:
                inner.setattr(CatalogCommits, "make", commit)
                run(f"other {len(others)}", partitions)
        return commit(commits, *given, **named)

    run("first", range(4))
    with monkeypatch.context() as patched:
        patched.setattr(CatalogCommits, "make", overtaken)
        report = run("backfill", range(4))
    assert (report.rebased, report.records) == (3, 40)
    table = open_catalog(str(lake))
    rows = table.rows.segments(table.snapshot(), "events")
    own = {row.attempt_id for row in rows if row.partition in (0, 3)}
    assert report.attempt_id in own
    copies = list(lake.glob("topics/*/*/*.log"))
    # Of 1 one copy more, under the id that also has what stays of 2; the first id was given up.
    assert len(copies) == len(rows) + 3
    assert read_lake(lake) == read_raw(lake)
    assert not verify(str(lake), deep=True).findings
    before = read_lake(lake)
    shutil.rmtree(lake / "catalog" / "log")
    rebuild_catalog(str(lake), dry_run=False)
    assert read_lake(lake) == before
    vacuum(str(lake), dry_run=False, grace_hours=0)
    assert len([*lake.glob("topics/*/*/*.log")]) == len(rows)
    assert not verify(str(lake), deep=True).findings
