"""Segments that move behind those of another run: what is damaged by then is found, not moved."""

from __future__ import annotations

from pathlib import Path

import pytest

from seglake.catalog.rows import SegmentRow
from seglake.errors import CorruptData, StoreError
from seglake.format.decode import scan_batches
from seglake.format.index import IndexPolicy
from seglake.layout import KEY_INDEX, SUFFIXES, new_attempt
from seglake.maintain.health.segment_files import rebuild_index_files
from seglake.store import open_store
from seglake.write.driver import rebase
from seglake.write.driver.rebase import Move
from tests.harness.damaged import flipped
from tests.makers.lakes import Event, LakeMaker, Shape

CLOCKS = {"CreateTime": None, "LogAppendTime": 2000}


@pytest.fixture
def maker(tmp_path: Path) -> LakeMaker:
    return LakeMaker(tmp_path)


def segment(maker: LakeMaker, clock: str) -> SegmentRow:
    events = [Event(1000 + i * 7 % 20, b"k", b"v" * (i % 5)) for i in range(9)]
    maker.run(
        {0: events},
        Shape(
            policy=IndexPolicy("bytes", 100, keys=True),
            batch_bytes=100,
            append_time_ms=CLOCKS[clock],
        ),
    )
    (row,) = maker.catalog.segments(maker.catalog.snapshot(), "events")
    return row


def moved(maker: LakeMaker, row: SegmentRow) -> SegmentRow:
    """What becomes of a segment that moves by 100 offsets; a stamp becomes 3000."""
    return Move(open_store(str(maker.root)), {0: 100}, new_attempt(), 3000)(row)


@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("suffix", [*SUFFIXES, KEY_INDEX])
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
    sealed = rebuild_index_files(maker.store, row, row.index_policy)
    for suffix, data in zip(
        SUFFIXES[1:], (sealed.offset_index, sealed.time_index, sealed.zone_map), strict=True
    ):
        assert bytes(maker.store.read_all(row.key(suffix))) == data
