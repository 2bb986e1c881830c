"""`seglake verify` finds every damaged byte and every missing end, in each of a segment's files."""

from pathlib import Path

import pytest

from seglake.catalog.schema import SegmentRow
from seglake.format.decode import scan_batches
from seglake.layout import SUFFIXES
from seglake.maintain.health.reindex import check_segment
from tests.harness.damaged import DamagedStore, flipped
from tests.makers.lakes import Event, LakeMaker, Shape

Lake = tuple[DamagedStore, SegmentRow]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    maker = LakeMaker(tmp_path_factory.mktemp("lake"))
    events = [Event(1000 + i * 7 % 20, b"k", b"v" * (i % 9), (("h", b"x"),)) for i in range(20)]
    maker.run({0: events}, Shape("zstd", batch_bytes=150))
    (row,) = maker.catalog.rows.segments(maker.catalog.snapshot(), "events")
    return DamagedStore(maker.store), row


def assert_found(lake: Lake, suffix: str, changed: bytes, at: int, *, deep: bool) -> None:
    store, row = lake
    key = row.key(suffix)  # type: ignore[arg-type]
    store.replaced = {key: changed}
    (found,) = check_segment(store, row, deep=deep)  # type: ignore[arg-type]
    assert found.file == key
    if suffix == "log" and len(changed) == len(store.sound[key]):  # then its batch is named
        at = max(
            place for place in scan_batches(store.sound[key])["position"].tolist() if place <= at
        )
    assert found.position == at


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_byte_and_length(lake: Lake, suffix: str, deep: bool) -> None:
    store, row = lake
    sound = store.sound[row.key(suffix)]  # type: ignore[arg-type]
    for at in range(len(sound)):
        for changed in flipped(sound, [at], [at % 8]):
            assert_found(lake, suffix, changed, at, deep=deep)
        assert_found(lake, suffix, sound[:at], at, deep=deep)
    store.replaced = {}
    assert check_segment(store, row, deep=deep) == []  # type: ignore[arg-type]


def test_the_lake_is_one_of_files(lake: Lake) -> None:
    assert {Path(key).suffix for key in lake[0].sound} == {f".{suffix}" for suffix in SUFFIXES}
