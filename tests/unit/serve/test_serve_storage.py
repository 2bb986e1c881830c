"""What stands on storage: damage is named and never sent; lost files are no end."""

import logging
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer import FetchResponse

from seglake.catalog.table import CatalogTable
from seglake.errors import VersionExpired
from seglake.format.batch import OVERHEAD
from seglake.format.decode import scan_batches
from seglake.format.index import IndexPolicy
from seglake.maintain.health.repair import rebuild_catalog
from seglake.serve.records import batch_ranges
from seglake.store import local
from tests.harness.lake_server import Wire, serving
from tests.makers.fetches import (
    Wanted,
    everything,
    fetch,
    fetch_request,
    metadata,
    offset_at,
    records_in,
    topic_id,
)
from tests.makers.gaps import Loss
from tests.makers.lakes import Event, LakeMaker, Shape, T
from tests.makers.served import asked, rich_lake, time_name
from tests.makers.strategies import examples
from tests.makers.versions import Run, cuts, in_window, lost, runs

CORRUPT, STORAGE = 2, 56


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> LakeMaker:
    maker = LakeMaker(tmp_path_factory.mktemp("sound"))
    rows = [Event(T + i, b"key", b"value %d" % i) for i in range(200)]
    maker.run({0: rows}, Shape("lz4", batch_bytes=300, policy=IndexPolicy(700)))
    return maker


def log_of(maker: LakeMaker, root: Path) -> Path:
    (row,) = maker.catalog.rows.segments(maker.catalog.snapshot(), "events")
    return root / row.key("log")


def test_a_damaged_batch_is_named_and_all_others_are_sent(
    sound: LakeMaker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "lake"
    shutil.copytree(sound.root, root)
    path = log_of(sound, root)
    data = bytearray(path.read_bytes())
    table = scan_batches(bytes(data))
    bad = table[len(table) // 2]
    data[int(bad["position"]) + OVERHEAD + 3] ^= 1
    path.write_bytes(data)
    with serving(root) as server, Wire(server.address) as wire:
        (got,) = fetch(wire, "events", [Wanted(0, 0)])
        assert (got.code, got.data) == (0, bytes(data[: int(bad["position"])]))
        for offset in (int(bad["base_offset"]), int(bad["last_offset"])):
            (got,) = fetch(wire, "events", [Wanted(0, offset)])
            assert (got.code, got.data) == (CORRUPT, b"")
        (got,) = fetch(wire, "events", [Wanted(0, int(bad["last_offset"]) + 1)])
        behind = int(bad["position"]) + int(bad["size"])
        assert (got.code, got.data) == (0, bytes(data[behind:]))
        counts = server.topics._counts
        assert counts.damaged_batches == 1
    named = [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR]
    assert len(named) == 1
    assert f"{path.relative_to(root)} at byte {bad['position']}" in named[0]


@given(
    place=st.integers(0, 10**6), bit=st.integers(0, 7), size=st.sampled_from([500, 2**20])
)  # fmt: skip
@examples(60)
def test_no_damage_is_sent(
    sound: LakeMaker, tmp_path_factory: pytest.TempPathFactory, place: int, bit: int, size: int
) -> None:
    """Whatever bit of a log is wrong, what arrives is what was written, and all but one block."""
    maker = sound
    root = shutil.copytree(maker.root, tmp_path_factory.mktemp("damaged") / "lake")
    path = log_of(maker, root)
    data = bytearray(path.read_bytes())
    data[place % len(data)] ^= 1 << bit
    path.write_bytes(data)
    written = {record.offset: record for record in maker.records(0)}
    found, failed, offset = 0, 0, 0
    with serving(root) as server, Wire(server.address) as wire:
        while offset < 200:
            (got,) = fetch(wire, "events", [Wanted(0, offset, size)])
            if got.code:
                assert got.code == CORRUPT
                failed, offset = failed + 1, offset + 1
                continue
            for record in records_in(got.data, 0, offset):
                assert record == written[record.offset]
                found, offset = found + 1, record.offset + 1
    shutil.rmtree(root)
    assert found + failed == 200
    epoch = any(  # the leader epoch alone is in no checksum
        0 <= place % len(data) - int(batch["position"]) - 12 < 4
        for batch in scan_batches(log_of(maker, maker.root).read_bytes())
    )
    assert epoch == (failed == 0)
    assert failed < 60


def test_a_lost_log_is_told_and_the_rest_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    maker = LakeMaker(tmp_path, partitions=2)
    maker.run({0: [Event(T)], 1: [Event(T)]})
    for row in maker.catalog.rows.segments(maker.catalog.snapshot(), "events"):
        if row.partition == 0:
            (tmp_path / row.key("log")).unlink()
    with serving(tmp_path) as server, Wire(server.address) as wire:
        lost_one, other = fetch(wire, "events", [Wanted(0, 0), Wanted(1, 0)])
        assert (lost_one.code, other.code, bool(other.data)) == (STORAGE, 0, True)
        (old,) = fetch(wire, "events", [Wanted(0, 0)], version=5)
        assert old.code == 6
    assert ".log" in caplog.text


def test_files_that_a_vacuum_removed(tmp_path: Path) -> None:
    """The next request is of the newer version; a pinned one ends with a clear error."""
    maker = LakeMaker(tmp_path)
    maker.run({0: [Event(T + i) for i in range(100)]}, Shape(batch_bytes=100, segment_bytes=500))
    old = maker.catalog.rows.segments(maker.catalog.snapshot(), "events")
    with serving(tmp_path, refresh_ms=600_000) as server, Wire(server.address) as wire:
        maker.delete_records(0, 60)
        for row in old:
            if row.end_offset <= 60:
                (tmp_path / row.key("log")).unlink()
        (got,) = fetch(wire, "events", [Wanted(0, 0)])
        assert got.code == STORAGE
        (got,) = fetch(wire, "events", [Wanted(0, 0)])
        assert got.code == 1  # out of range: the client goes to the log start
        _, start, _ = offset_at(wire, "events", 0, -2)
        assert start == 60
        (got,) = fetch(wire, "events", [Wanted(0, 60)])
        assert records_in(got.data, 0, 60) == maker.records(0)


def test_a_catalog_that_is_rebuilt_beside_the_server(tmp_path: Path) -> None:
    """It is the same lake, so the server goes on; another lake at the root is not served."""
    maker = LakeMaker(tmp_path / "lake")
    maker.run({0: [Event(T)]})
    with serving(maker.root, refresh_ms=3_600_000) as server, Wire(server.address) as wire:
        kept = topic_id(wire, "events")
        rebuild_catalog(str(maker.root), dry_run=False, force=True)
        server.refresh()
        version = server.topics.version
        maker.catalog = CatalogTable.open(maker.store)
        maker.run({0: [Event(T + 1)]})
        server.refresh()
        assert server.topics.version > version
        data = b"".join(everything(wire, "events", 0))
        assert [each.timestamp for each in records_in(data, 0)] == [T, T + 1]
        assert topic_id(wire, "events") == kept
        shutil.rmtree(maker.root)
        LakeMaker(maker.root).run({0: [Event(T + 2)]})
        with pytest.raises(VersionExpired, match="another lake replaced"):
            server.refresh()


@pytest.mark.parametrize("fetch_version", [5, 12, 18])
def test_names_whose_version_expired(
    fetch_version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A version's name is told to be invalid; a window's is bound anew; both at once."""
    maker = LakeMaker(tmp_path, partitions=2)
    shape = Shape(batch_bytes=100, segment_bytes=500)
    first = maker.run({p: [Event(T + i) for i in range(100)] for p in (0, 1)}, shape)
    old = maker.catalog.rows.segments(maker.catalog.snapshot(), "events")
    pinned, window = f"events.v{first}", f"events.{time_name(T)}.{time_name(T + 1000)}"
    both = [Wanted(0, 0), Wanted(1, 0)]
    with serving(tmp_path, refresh_ms=600_000) as server, Wire(server.address) as wire:
        assert offset_at(wire, pinned, 0, -1)[:2] == offset_at(wire, window, 0, -1)[:2] == (0, 100)
        maker.delete_records(0, 60)
        maker.delete_records(1, 60)
        for row in old:
            if row.end_offset <= 60:
                (tmp_path / row.key("log")).unlink()
        ids = {name: topic_id(wire, name) for name in (pinned, window)}
        opened = list[object]()
        monkeypatch.setattr(CatalogTable, "open", _counted(CatalogTable.open, opened))

        def codes(name: str) -> set[int]:
            request = fetch_request(name, both, id_of=ids[name])
            (topic,) = wire.ask(request, FetchResponse, fetch_version).responses
            return {each.error_code for each in topic.partitions}

        assert codes(pinned) == {100 if fetch_version == 18 else 3}
        assert codes(window) == {6 if fetch_version == 5 else STORAGE}
        looks = len(opened)
        for _ in range(5):
            assert codes(pinned) == {3 if fetch_version < 13 else 100}
            assert metadata(wire, [pinned], 9).topics[0].error_code == 17
            assert offset_at(wire, pinned, 0, -1)[0] == offset_at(wire, pinned, 0, T)[0] == 17
        assert offset_at(wire, window, 0, -2)[:2] == (0, 60)
        (got,) = fetch(wire, window, [Wanted(0, 60)])
        assert records_in(got.data, 0, 60) == maker.records(0)
        assert len(opened) == looks


def _counted(call: Any, calls: list[object]) -> Any:
    def counted(*given: Any) -> Any:
        calls.append(given)
        return call(*given)

    return counted


# an object store: here local files that pretend to be far away; S3 in tests/s3


@pytest.fixture
def far_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local._LocalStore, "remote", True)


@given(runs, cuts, lost, st.sampled_from([1, 700, 2**20]))
@examples(15)
def test_object_stores_give_the_same(
    generated: list[Run], cut: float, loss: Loss | None, size: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local._LocalStore, "remote", True)
        with asked(generated, cut, False, loss) as (log, maker, wire):
            name = f"events.{time_name(T)}.{time_name(T + 20)}"
            for partition in log.partitions():
                data = b"".join(everything(wire, "events", partition, 12, size))
                start = log.beginning_offsets()[partition]
                assert records_in(data, partition, start) == maker.records(partition)
                data = b"".join(everything(wire, name, partition, 12, size))
                wanted = in_window(maker.records(partition), T, T + 20)
                assert records_in(data, partition) == wanted


def test_large_logs_far_away(far_away: None, tmp_path: Path) -> None:
    """Several batch ranges, read ahead; an answer takes 4 MiB at most."""
    maker = LakeMaker(tmp_path)
    rows = [Event(T + i, None, b"%d" % i * 2000) for i in range(1000)]
    maker.run({0: rows}, Shape("none", batch_bytes=100_000))
    with serving(tmp_path) as server, Wire(server.address) as wire:
        data = list(everything(wire, "events", 0, 12, 2**26))
        assert max(map(len, data)) <= 4 * 2**20
        assert records_in(b"".join(data), 0) == maker.records(0)
        (got,) = fetch(wire, "events", [Wanted(0, 700)])
        assert records_in(got.data, 0, 700)[0].offset == 700


def test_what_was_checked_is_forgotten_when_it_is_too_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_ranges, "_MOST_RANGES", 3)
    maker = rich_lake(tmp_path)
    with serving(tmp_path) as server, Wire(server.address) as wire:
        for size in (2**20, 600):
            data = b"".join(everything(wire, "events", 0, 12, size))
            assert records_in(data, 0) == maker.records(0)
        known = server.topics.batch_ranges
        held = sum(len(log.batch_ranges) for log in known._logs.values())
        assert known._count == held <= 4


def test_all_at_once(tmp_path: Path) -> None:
    """Many clients that begin together read each byte once; each gets all."""
    maker = rich_lake(tmp_path)
    wanted, wrong = maker.records(0), list[int]()
    with serving(tmp_path) as server:

        def read(number: int) -> None:
            with Wire(server.address) as wire:
                data = b"".join(everything(wire, "events", 0, 12, 3000 + 500 * number))
                if records_in(data, 0) != wanted:
                    wrong.append(number)

        threads = [threading.Thread(target=read, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []
