"""`Log.find` and `Log.last`: against the plain list of records, with key indexes and without."""

import logging
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import seglake
from seglake.compile.fallback import long_way
from seglake.errors import UnknownTopic, UsageError
from seglake.format import zonemap
from seglake.format.index import RECORD_KEYS, IndexPolicy, subjects_of
from seglake.format.partitioner import partition_of
from seglake.format.records import Spans
from seglake.log import key_indexes
from seglake.maintain.compaction.compact import compact
from seglake.maintain.erasure.erase import erase
from seglake.maintain.health.reindex import reindex
from seglake.maintain.health.repair import rebuild_catalog, repair_indexes
from seglake.maintain.health.verify import verify
from seglake.maintain.merge import merge
from seglake.maintain.topic_settings import alter, describe
from seglake.maintain.undo import undo
from seglake.maintain.vacuum import vacuum
from seglake.read.lake import Lake
from seglake.read.log import Log
from seglake.store import Store, open_store
from tests.harness.counting import CountingStore
from tests.makers.lakes import Event, LakeMaker, Shape, T, Written, open_catalog
from tests.makers.strategies import examples

BIG = b"big" * 350_000  # 1 MB
ABSENT = b"absent"
KEYS = st.sampled_from([None, b"", b"a", b"b", b"user-1", b"user-2", b"BIG"])
EVENTS = st.lists(
    st.builds(
        lambda at, key, gap: (-1 if at is None else T + at, key, gap),
        st.one_of(st.none(), st.integers(0, 50)), KEYS, st.sampled_from([0, 0, 0, 2]),
    ),
    max_size=40,
)  # fmt: skip
POLICIES = [IndexPolicy(0), IndexPolicy(300), IndexPolicy(200)]


def _offsets(batches: Any) -> list[tuple[int, int]]:
    table = batches.read_all()
    return list(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))


def _newest(records: list[Written], count: int) -> list[tuple[int, int]]:
    """Return the places of the newest among the last `count` records of each partition."""
    partitions = sorted({record.partition for record in records})
    ends = [[r for r in records if r.partition == p][-count:] for p in partitions if count]
    ranked = sorted((r.timestamp, r.partition, r.offset) for end in ends for r in end)
    return sorted((partition, offset) for _, partition, offset in ranked[-count:])


def _check(log: Log, records: list[Written]) -> None:
    """Every question about every key has the answer of the plain list."""
    keys = {record.key for record in records if record.key is not None}
    for key in {*keys, b"", ABSENT}:
        own = [record for record in records if record.key == key]
        places = [record[:2] for record in own]
        assert _offsets(log.find(key)) == places
        near = [r[:2] for r in own if T + 10 <= r.timestamp < T + 30]
        assert _offsets(log.find(key, start=T + 10, end=T + 30)) == near
        dated = [r[:2] for r in own if r.timestamp >= T + 20]
        assert _offsets(log.find(key, start=T + 20)) == dated
        for count in range(4):
            assert _offsets(log.find(key, newest=count)) == _newest(own, count)
        last = log.last(key)
        assert ([last[1:3]] if last else []) == _newest(own, 1)
    for count in range(4):
        assert _offsets(log.tail(count)) == _newest(records, count)
    some = [b"a", b"user-2", ABSENT]
    assert _offsets(log.find(keys=some)) == [r[:2] for r in records if r.key in some]


@examples(15)
@given(
    st.lists(EVENTS, min_size=1, max_size=4), st.sampled_from(POLICIES),
    st.sampled_from(["none", "zstd"]), st.booleans(), st.integers(0, 20),
)  # fmt: skip
def test_answers_are_those_of_the_plain_list(
    runs: list[list[tuple[int, bytes | None, int]]],
    policy: IndexPolicy,
    codec: str,
    indexed: bool,
    start: int,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        maker = LakeMaker(Path(folder) / "lake", partitions=2)
        for number, rows in enumerate(runs):
            subjects = (RECORD_KEYS,) if indexed and number % 3 < 2 else ()
            has = IndexPolicy(policy.interval, subjects)
            events = [
                Event(at, BIG if key == b"BIG" else key, b"v", gap=gap) for at, key, gap in rows
            ]
            size = 2**21 if any(key == b"BIG" for _, key, _ in rows) else 700
            maker.run({number % 2: events}, Shape(codec, 150, size, has))
        log = _without_homes(maker)
        _check(log, maker.records())
        if start and start < log.end_offsets()[0]:
            maker.delete_records(0, start)
            _check(_without_homes(maker), maker.records())


class Far(CountingStore):
    """A store far away, which keeps the calls that read, each with the thread that made it."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.remote = True
        self.calls: list[tuple[str, str]] = []

    def read(self, key: str, start: int, end: int) -> Any:
        self._call(key)
        return super().read(key, start, end)

    def read_ranges(self, key: str, starts: Any, ends: Any) -> Any:
        self._call(key)
        return super().read_ranges(key, starts, ends)

    def _call(self, key: str) -> None:
        self.calls.append((key.rpartition(".")[2], threading.current_thread().name))


def test_a_cold_search_waits_for_four_reads_one_after_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name, value in (
        (zonemap, "SMALL_BYTES", 100), (key_indexes, "_SMALL_BYTES", 0),
        (key_indexes, "_HEAD_BYTES", 700),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, value)
    maker = LakeMaker(tmp_path, partitions=1)
    events = [Event(T + at, b"user-%d" % (at % 70), b"v" * 90) for at in range(7000)]
    maker.run({0: events}, Shape("none", 300, 2**21, IndexPolicy(0, (RECORD_KEYS,))))
    store = Far(open_store(str(tmp_path)))
    log = Lake(store).topic("events")
    store.calls.clear()
    assert len(log.find("user-3").read_all()) == 100
    beside = [kind for kind, thread in store.calls if thread.startswith("seglake-beside")]
    waits = [kind for kind, thread in store.calls if not thread.startswith("seglake-beside")]
    assert beside == ["keyindex"]
    assert waits == ["zonemap", "keyindex", "zonemap", "log"]


def _without_homes(maker: LakeMaker) -> Log:
    """The log, whose keys are in any partition."""
    log = seglake.open(str(maker.root)).topic("events")
    log.partition_counts = list  # type: ignore[method-assign]
    return log


@pytest.fixture(params=["keys", "keys, fields and headers"])
def maker(tmp_path: Path, request: pytest.FixtureRequest) -> LakeMaker:
    """A topic whose key indexes are of keys only, or of a field and a header, too."""
    settings: dict[str, Any] = _OF_ALL if "fields" in request.param else {"index.keys": True}
    settings = settings | (_CSV if "CSV" in request.param else {})
    made = LakeMaker(tmp_path / "lake", settings=settings)
    policy = IndexPolicy(200, subjects_of(settings))
    for run in range(3):
        events = [_event(T + 100 * run + i, i % 40, "CSV" in request.param) for i in range(100)]
        made.run({0: events}, Shape("zstd", 250, 3_000, policy))
    return made


_OF_ALL = {"index.keys": True, "index.fields": ["n"], "index.headers": ["h", "lacking"]}
_CSV = {"value.format": "csv", "value.columns": ["", "n"]}
of_each_format = pytest.mark.parametrize(
    "maker", ["keys, fields and headers", "keys, fields and headers of CSV"], indirect=True
)


def _event(timestamp: int, number: int, as_csv: bool = False) -> Event:
    value = (b'"a,b",%d' if as_csv else b'{"n":%d}') % number
    return Event(timestamp, b"k%d" % number, value, (("h", b"h%d" % number),))


def _rows(maker: LakeMaker) -> list[Any]:
    catalog = open_catalog(str(maker.root))
    return catalog.rows.segments(catalog.snapshot(), "events")


def _all_offsets(maker: LakeMaker) -> dict[bytes, list[tuple[int, int]]]:
    log = seglake.open(str(maker.root)).topic("events")
    table = log.find(keys=[b"k%d" % n for n in range(45)]).read_all()
    answer: dict[bytes, list[tuple[int, int]]] = {}
    for row in table.to_pylist():
        answer.setdefault(row["key"], []).append((row["partition"], row["offset"]))
    for number in range(3, 45, 4):  # 7 is the one that is erased; there is no 43
        key, places = b"k%d" % number, answer.get(b"k%d" % number, [])
        assert _offsets(log.find(key)) == places
        assert _offsets(log.find(where={"n": number})) == places
        assert _offsets(log.find(where={"n": str(number)}, headers={"h": f"h{number}"})) == places
    return answer


DEEDS: dict[str, Callable[[str], object]] = {
    "merge": lambda root: merge(root, "events", everything=True, rebatch=True),
    "erase": lambda root: erase(root, "events", [b"k7"], vacuum=True),
    "undo": lambda root: undo(root, "events", "run 1"),
    "compact": lambda root: [
        alter(root, "events", {"cleanup.policy": "compact"}),
        compact(root, "events", force=True),
    ],
}


@of_each_format
@pytest.mark.parametrize("deed", DEEDS)
def test_commands_write_the_index_as_a_reindex_would(maker: LakeMaker, deed: str) -> None:
    root = str(maker.root)
    DEEDS[deed](root)
    rows = _rows(maker)
    settings = describe_settings(root)
    assert all(row.index_policy.subjects == subjects_of(settings) for row in rows)
    before = {row.base_offset: bytes(maker.store.read_all(row.key("keyindex"))) for row in rows}
    answer = _all_offsets(maker)
    assert not verify(root, deep=True).findings
    alter(root, "events", {"index.keys": False}, delete=["index.fields", "index.headers"])
    reindex(root, "events")
    assert all(row.keyindex_bytes is None for row in _rows(maker))
    assert _all_offsets(maker) == answer
    alter(root, "events", {}, delete=["index.keys"])
    alter(root, "events", settings)
    reindex(root, "events")
    after = {row.base_offset: maker.store.read_all(row.key("keyindex")) for row in _rows(maker)}
    assert after == before
    assert _all_offsets(maker) == answer
    assert (b"k7" in answer) == (deed != "erase")


def test_an_erasure_leaves_no_key_index_with_a_hash_of_the_key(maker: LakeMaker) -> None:
    erase(str(maker.root), "events", [b"k7"], vacuum=True)
    files = maker.files("keyindex")
    assert {str(f.relative_to(maker.root)) for f in files} == {
        row.key("keyindex") for row in _rows(maker)
    }


def describe_settings(root: str) -> dict[str, Any]:
    """The settings of key indexes."""
    values = {each.key: each.value for each in describe(root, "events") if each.is_set}
    return {key: value for key, value in values.items() if key in _OF_ALL | _CSV}


@pytest.mark.parametrize("maker", ["keys, fields and headers"], indirect=True)
def test_only_blocks_of_all_that_is_sought_are_read(maker: LakeMaker) -> None:
    log = seglake.open(str(maker.root)).topic("events")
    whole = sum(row.log_bytes for row in _rows(maker))
    indexed: list[dict[str, Any]] = [
        {"where": {"n": 7}}, {"where": {"n": ["7", 7.0]}}, {"headers": {"h": "h7"}},
    ]  # fmt: skip
    for how in indexed:
        plan = log.plan_find(**how)
        assert (plan.by_index, plan.scanned) == (len(_rows(maker)), 0)
        assert 0 < plan.size_bytes < whole * 2 / 3
    both = log.plan_find(where={"n": 7}, headers={"h": "h30"})
    assert both.size_bytes < log.plan_find(where={"n": 7}).size_bytes / 2
    assert log.plan_find(headers={"lacking": "x"}).size_bytes == 0
    unindexed: list[dict[str, Any]] = [
        {"where": {"other": 7}}, {"where": {"n": [7, None]}}, {"headers": {"h": None}},
    ]  # fmt: skip
    for how in unindexed:
        assert (log.plan_find(**how).by_index, log.plan_find(**how).size_bytes) == (0, whole)


def test_a_field_is_found_in_old_and_new_segments(tmp_path: Path) -> None:
    """An index of other things answers nothing about a field."""
    maker = LakeMaker(tmp_path / "lake")
    for settings in ({}, {"index.keys": True}, {"index.fields": ["m"]}, {"index.fields": ["n"]}):
        policy = IndexPolicy(200, subjects_of(settings))
        maker.run(
            {0: [_event(T + i, i % 40) for i in range(100)]}, Shape("zstd", 250, policy=policy)
        )
    log = seglake.open(str(maker.root)).topic("events")
    assert len(log.find(where={"n": 7}).read_all()) == 12
    plan = log.plan_find(where={"n": 7})
    assert (plan.by_index, plan.scanned) == (1, 3)
    alter(str(maker.root), "events", {"index.fields": "m,n"})
    reindex(str(maker.root), "events")
    log = seglake.open(str(maker.root)).topic("events")
    assert len(log.find(where={"n": 7}).read_all()) == 12
    assert log.plan_find(where={"n": 7}).scanned == 0
    assert log.plan_find(b"k7").scanned == 4


@pytest.mark.parametrize("columns", [["offset"], ["offset", "headers"], None])
@pytest.mark.parametrize("keys", [[b"k7"], [b"k7", b"k11", ABSENT]], ids=["one", "some"])
def test_every_way_of_decoding_finds_the_same(
    maker: LakeMaker, keys: list[bytes], columns: list[str] | None
) -> None:
    """Headers are not for the kernel, and without it batches go the long way."""

    def read(chosen: list[str] | None) -> Any:
        log = seglake.open(str(maker.root)).topic("events")
        return log.find(keys=keys, columns=chosen, stats=stats).read_all()

    expected = [r[:2] for r in maker.records() if r.key in keys]
    stats = seglake.ReadStats()
    found = read(columns)
    assert found["offset"].to_pylist() == [offset for _, offset in expected] != []
    assert stats.records == len(expected)
    with long_way():
        assert read(columns).equals(found)
    everything = seglake.open(str(maker.root)).topic("events").read_range(0, 2**62).read_all()
    same = pc.is_in(everything["key"], pa.array(keys, pa.binary()))
    assert everything.filter(same).select(found.column_names).equals(found)


def test_only_blocks_of_the_key_are_read(maker: LakeMaker) -> None:
    log = seglake.open(str(maker.root)).topic("events")
    plan = log.plan_find(b"k7")
    assert (plan.by_index, plan.scanned) == (len(_rows(maker)), 0)
    assert plan.size_bytes < sum(row.log_bytes for row in _rows(maker)) * 2 / 3
    assert "segments with a key index" in str(plan)
    within = log.plan_find(b"k7", start=T, end=T + 100)
    assert within.by_index < plan.by_index
    stats = seglake.ReadStats()
    log.find(b"k7", stats=stats).read_all()
    assert stats.bytes_fetched == plan.size_bytes


def test_every_changed_byte_of_an_index_gives_the_right_answer_and_is_found(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    maker = LakeMaker(tmp_path / "lake")
    rows = [Event(T + i, b"k%d" % (i % 6)) for i in range(30)]
    maker.run({0: rows}, Shape("none", 150, policy=IndexPolicy(0, subjects=(RECORD_KEYS,))))
    (file,) = maker.files("keyindex")
    sound = file.read_bytes()
    expected = [(0, offset) for offset in range(2, 30, 6)]
    for at in range(len(sound)):
        file.write_bytes(sound[:at] + bytes([sound[at] ^ 1]) + sound[at + 1 :])
        log = seglake.open(str(maker.root)).topic("events")
        assert _offsets(log.find(b"k2")) == expected
    (finding,) = verify(str(maker.root)).findings
    assert finding.file.endswith(".keyindex")
    for content in (b"", sound[:-8], sound[: len(sound) // 2], None):
        file.unlink() if content is None else file.write_bytes(content)
        log = seglake.open(str(maker.root)).topic("events")
        assert _offsets(log.find(b"k2")) == expected
        assert log.plan_find(b"k2").scanned == 1


@of_each_format
def test_repairs_make_the_same_index(maker: LakeMaker) -> None:
    root, files = str(maker.root), maker.files("keyindex")
    sound = {file.name: file.read_bytes() for file in files}
    files[0].unlink()
    files[1].write_bytes(b"x")
    found = {finding.file for finding in verify(root).findings}
    assert found == {str(file.relative_to(maker.root)) for file in files[:2]}
    repair_indexes(root, dry_run=False)
    assert not verify(root, deep=True).findings
    new = [maker.root / row.key("keyindex") for row in _rows(maker)]
    assert {file.name: file.read_bytes() for file in new} == sound
    answer = _all_offsets(maker)
    vacuum(root, dry_run=False, grace_hours=0, retention_hours=0)
    assert not verify(root, deep=True).findings
    rebuild_catalog(root, dry_run=False, force=True)
    assert not verify(root, deep=True).findings
    assert _all_offsets(maker) == answer
    subjects = subjects_of(describe_settings(root))
    assert all(row.index_policy.subjects == subjects for row in _rows(maker))


def test_a_damaged_zone_map_does_not_shift_the_blocks(maker: LakeMaker) -> None:
    answer = _all_offsets(maker)
    for file in maker.files("zonemap"):
        file.write_bytes(bytes(40))
    assert _all_offsets(maker) == answer


def test_only_the_partition_of_the_key_is_asked(tmp_path: Path) -> None:
    maker = LakeMaker(tmp_path / "lake", partitions=8)
    keys = [b"k%d" % n for n in range(60)]
    homes = partition_of(Spans.from_list(list(keys)), 8).tolist()
    maker.run({p: [Event(T, k) for k, home in zip(keys, homes, strict=True) if home == p]
               for p in range(8)})  # fmt: skip
    log = seglake.open(str(maker.root)).topic("events")
    for key, home in zip(keys, homes, strict=True):
        assert [row["partition"] for row in log.plan_find(key).rows] == [home]
        assert [p for p, _ in _offsets(log.find(key))] == [home]
        assert not _offsets(log.find(key, partitions=[(home + 1) % 8]))
    assert len(_offsets(log.find(keys=keys))) == 60


def test_columns_and_versions(maker: LakeMaker) -> None:
    log = seglake.open(str(maker.root)).topic("events")
    table = log.find("k7", columns=["value", "offset"]).read_all()
    assert table.column_names == ["value", "offset"]
    assert len(table) == 9
    assert len(log.find("k7", version=maker.versions[0]).read_all()) == 3
    last = log.last("k7", version=maker.versions[0])
    assert last is not None
    assert last.offset == 87
    assert log.last("absent") is None
    assert not _offsets(log.find(keys=[]))


def test_bad_questions_are_refused(maker: LakeMaker) -> None:
    log = seglake.open(str(maker.root)).topic("events")
    bad: list[dict[str, Any]] = [
        {}, {"key": "a", "keys": ["b"]}, {"keys": "abc"}, {"key": 7}, {"key": "a", "newest": -1},
        {"key": "a", "columns": ["nope"]}, {"key": "a", "start": T, "end": T - 1},
        {"where": "status=500"}, {"headers": ["h"]},
    ]  # fmt: skip
    for question in bad:
        with pytest.raises(UsageError):
            log.find(**question)
    with pytest.raises(UnknownTopic):
        log.find("a", partitions=[9]).read_all()
