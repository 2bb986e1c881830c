"""Logs attached where they lie: they read as the log that was copied, and nothing touches them."""

import base64
import json
import re
import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import assume, given
from hypothesis import strategies as st

import seglake
from seglake.errors import CorruptData, InputError, MissingObject, UsageError
from seglake.format.index import IndexPolicy
from seglake.kafka.attach import attach_logs
from seglake.kafka.exporting import export_logs
from seglake.kafka.importing import ImportResult, import_logs
from seglake.kafka.sources import RemoteLog, choose_logs, is_manifest, parse_manifest
from seglake.log.links import Chunks
from seglake.maintain.compaction.compact import compact
from seglake.maintain.erasure.erase import erase
from seglake.maintain.expiry.retention import delete_records, retain
from seglake.maintain.health.reindex import reindex
from seglake.maintain.health.repair import rebuild_catalog, repair_indexes
from seglake.maintain.health.verify import verify
from seglake.maintain.merge import merge
from seglake.maintain.topic_settings import alter
from seglake.maintain.vacuum import vacuum
from tests.makers.broker_folders import BrokerLog, Step, logs
from tests.makers.lakes import Event, Shape, Written
from tests.makers.strategies import T, examples
from tests.makers.tiered_bucket import (
    GOLDEN,
    GOLDEN_CHUNK,
    GOLDEN_LOG,
    GOLDEN_TOPIC,
    TOPIC_ID,
    Tiering,
    packed_sizes,
    tier,
)
from tests.unit.kafka.test_importing import assert_sound, read, view_of
from tests.unit.log.test_segments import MEMORY

STEPS = [
    Step(-1, tuple(Event(T + 10 * at, b"k%d" % (at % 3), b"value" * 5) for at in range(8))),
    Step(-1, (Event(T + 5, b"a", b"late"),), rolls=True),
    Step(-1, (Event(T + 90, b"a", None),)),
    Step(-1, (Event(T + 95, b"k1", b"new"),), rolls=True),
]
TIERINGS = [Tiering("t/", 64, compressed) for compressed in (False, True)]


def attached(tmp_path: Path, tiering: Tiering = TIERINGS[0]) -> tuple[Path, Path, list[Written]]:
    """A lake with a topic in a bucket: both, and the records."""
    log = BrokerLog(STEPS)
    folder = log.write(tmp_path / "events-0")
    tier(folder, tmp_path / "bucket", tiering)
    take(tmp_path / "lake", tmp_path / "bucket")
    return tmp_path / "lake", tmp_path / "bucket", log.committed()[0]


def take(root: Path, bucket: Path, *, dry_run: bool = False) -> ImportResult:
    (report,) = attach_logs(str(root), [str(bucket)], topic="events", dry_run=dry_run)
    return report


def content(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def plain(log: BrokerLog) -> BrokerLog:
    """The log without transactions; its segments leave no offset between them."""
    kept = [each.step for each in log.placed if each.step.events]
    steps = [step._replace(producer=-1, gap=0 if step.rolls else step.gap) for step in kept]
    return BrokerLog(steps or STEPS, log.shape, log.start)


@given(logs(), st.sampled_from(TIERINGS), st.integers(20, 300), st.data())
@examples(60)
def test_any_log_reads_as_its_copy(
    made: BrokerLog, tiering: Tiering, chunk_bytes: int, data: st.DataObject
) -> None:
    """In two parts: all but some of the last segments first."""
    log = plain(made)
    with tempfile.TemporaryDirectory(dir=MEMORY) as name:
        home, root = Path(name), Path(name, "lake")
        folder = log.write(home / "events-0")
        manifests = tier(folder, home / "all", tiering._replace(chunk_bytes=chunk_bytes))
        first = data.draw(st.integers(1, len(manifests)))
        shutil.copytree(home / "all", home / "some")
        for late in manifests[first:]:
            (home / "some" / late.relative_to(home / "all")).unlink()
        segments = 0
        for bucket in ("some", "all", "all"):
            before = content(home / bucket)
            report = take(root, home / bucket)
            segments += report.segments
            assert content(home / bucket) == before
            assert_sound(root)
        assert (segments, report.version) == (len(manifests), -1)
        assert read(root) == log.committed()[0]
        (copy,) = import_logs(f"{name}/copy", [str(home / "all")])
        ours, theirs = (view_of(Path(each)).segments for each in (root, f"{name}/copy"))
        for column in ("base_offsets", "end_offsets", "min_timestamps", "max_timestamps"):
            assert getattr(ours, column).tolist() == getattr(theirs, column).tolist()
        assert read(Path(name, "copy")) == read(root)
        assert copy.records == len(read(root))


@pytest.mark.parametrize("tiering", TIERINGS)
def test_what_the_lake_has_of_it(tmp_path: Path, tiering: Tiering) -> None:
    root, bucket, records = attached(tmp_path, tiering)
    assert not list(root.rglob("*.log"))
    assert len(list(root.rglob("*.link"))) == 3
    properties = [
        json.loads(line)["metaData"]["configuration"]["seglake.format"]
        for path in sorted(root.glob("catalog/log/_delta_log/*.json"))
        for line in path.read_text().splitlines()
        if "metaData" in line
    ]
    assert properties[-1] == "6"
    assert read(root) == records
    report = take(root, bucket, dry_run=True)
    assert (report.segments, report.dry_run) == (0, True)


@pytest.mark.parametrize("tiering", TIERINGS)
def test_nothing_touches_the_bucket(tmp_path: Path, tiering: Tiering) -> None:
    """Every verb that deletes or rewrites; the lake does what it does to its own segments."""
    root, bucket, records = attached(tmp_path, tiering)
    before, lake = content(bucket), str(root)
    steps: list[Callable[[], object]] = [
        partial(reindex, lake, "events", IndexPolicy(0)),
        partial(merge, lake, "events", everything=True),
        partial(vacuum, lake, dry_run=False, grace_hours=0, retention_hours=0),
    ]
    for step in steps:
        step()
        assert read(root) == records
        assert_sound(root)
        assert content(bucket) == before
    delete_records(lake, "events", {0: 9})
    vacuum(lake, dry_run=False, grace_hours=0, retention_hours=0)
    assert read(root) == [each for each in records if each.offset >= 9]
    assert len(list(root.rglob("*.link"))) == 2
    alter(lake, "events", {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.0})
    compact(lake, "events")
    vacuum(lake, dry_run=False, grace_hours=0, retention_hours=0)
    assert content(bucket) == before
    assert verify(lake, deep=True).findings == []


@pytest.mark.parametrize("tiering", TIERINGS)
def test_keys_are_found_by_an_index(tmp_path: Path, tiering: Tiering) -> None:
    root, bucket, records = attached(tmp_path, tiering)
    before, lake = content(bucket), str(root)
    keys = {each.key for each in records if each.key is not None}
    for indexed in (False, True):
        log = seglake.open(lake).topic("events")
        for key in keys:
            found = log.find(key).read_all()["offset"].to_pylist()
            assert found == [each.offset for each in records if each.key == key]
            assert bool(log.plan_find(key).by_index) == indexed
        alter(lake, "events", {"index.keys": True})
        reindex(lake, "events")
    assert_sound(root)
    assert content(bucket) == before


def test_fields_of_text_are_found_by_an_index(tmp_path: Path) -> None:
    root, _, records = attached(tmp_path)
    lake, pattern = str(root), r"(?P<word>value)*$"
    alter(lake, "events", {"value.format": "text", "value.pattern": pattern})
    expected = [each.offset for each in records if re.fullmatch(b"(value)+", each.value or b"")]
    assert expected
    for scanned in (True, False):
        log = seglake.open(lake).topic("events")
        assert log.find(where={"word": "value"}).read_all()["offset"].to_pylist() == expected
        assert bool(log.plan_find(where={"word": "value"}).scanned) == scanned
        alter(lake, "events", {"index.fields": "word"})
        reindex(lake, "events")
    assert_sound(root)


def test_retention_only_takes_the_names(tmp_path: Path) -> None:
    root, bucket, records = attached(tmp_path)
    before = content(bucket)
    alter(str(root), "events", {"cleanup.policy": "delete", "retention.ms": 1})
    retain(str(root), "events")
    vacuum(str(root), dry_run=False, grace_hours=0, retention_hours=0)
    assert read(root) == []
    assert not list(root.rglob("*.link"))
    assert content(bucket) == before
    assert take(root, bucket).version == -1, "what went does not come again"
    assert len(records) == 11


def test_an_erasure_is_refused(tmp_path: Path) -> None:
    root, _, records = attached(tmp_path)
    for dry_run in (True, False):
        with pytest.raises(UsageError, match=r"3 segments of events are attached.*Import"):
            erase(str(root), "events", [b"a"], dry_run=dry_run, grace_hours=0)
    assert read(root) == records


@pytest.mark.parametrize("tiering", TIERINGS)
def test_lost_catalog_and_lost_indexes_come_back(tmp_path: Path, tiering: Tiering) -> None:
    root, _, records = attached(tmp_path, tiering)
    shutil.rmtree(root / "catalog")
    rebuild_catalog(str(root), dry_run=False)
    assert read(root) == records
    for path in [*root.rglob("*.zonemap"), *root.rglob("*.timeindex")]:
        path.unlink()
    repair_indexes(str(root))
    assert_sound(root)
    assert read(root) == records


def test_export_and_import_go_on(tmp_path: Path) -> None:
    root, bucket, records = attached(tmp_path, TIERINGS[1])
    export_logs(str(root), "events", str(tmp_path / "exported"))
    import_logs(str(tmp_path / "copy"), [str(tmp_path / "exported")])
    assert read(tmp_path / "copy") == records
    last = [Step(-1, (Event(T + 99, b"z"),), rolls=True), Step(3), Step(-1, (Event(T),))]
    more = BrokerLog([*STEPS, *last])
    shutil.rmtree(bucket)
    tier(more.write(tmp_path / "more"), bucket, TIERINGS[1])
    with pytest.raises(UsageError, match=r"a transaction at offset 12.*seglake import"):
        take(root, bucket)
    (report,) = import_logs(str(root), [str(bucket)], topic="events")
    assert report.records == 2
    assert read(root) == [*records, *more.committed()[0][-2:]]
    assert_sound(root)


def test_a_lost_or_changed_object_is_found(tmp_path: Path) -> None:
    root, bucket, _ = attached(tmp_path)
    first, second, _ = sorted(bucket.rglob("*.log"))
    first.unlink()
    second.write_bytes(second.read_bytes() + b"x")
    found = verify(str(root)).findings
    assert [(each.kind, Path(each.file).suffix) for each in found] == [
        ("missing", ".link"), ("damaged", ".log"),
    ]  # fmt: skip
    with pytest.raises(MissingObject, match=first.name):
        read(root)


def test_a_damaged_object_is_named_where_it_is(tmp_path: Path) -> None:
    folder = BrokerLog(STEPS).write(tmp_path / "events-0")
    tier(folder, tmp_path / "bucket", TIERINGS[1])
    path = damaged(tmp_path / "bucket", 0)
    with pytest.raises(CorruptData, match="chunk 0 is not a zstd frame") as damage:
        take(tmp_path / "lake", tmp_path / "bucket")
    assert damage.value.file == str(path)


def damaged(bucket: Path, at: int) -> Path:
    """The first log of a bucket, of which four bytes are others."""
    (path, *_) = sorted(bucket.rglob("*.log"))
    data = bytearray(path.read_bytes())
    data[at : at + 4] = b"none"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("at", [0, 4, 70])
def test_damage_behind_a_link_names_the_object(tmp_path: Path, at: int) -> None:
    root, bucket, _ = attached(tmp_path)
    path = damaged(bucket, at)
    with pytest.raises(CorruptData, match=rf"stored outside the lake: byte 0, {path}") as damage:
        read(root)
    assert damage.value.file.endswith(".link")
    for deep in (False, True):
        (finding,) = verify(str(root), deep=deep).findings
        assert finding.file.endswith(".link")
        assert str(path) in finding.problem


def test_copies_of_several_leaders(tmp_path: Path) -> None:
    """The second leader copied its own segments, and one that both have begins in the first's."""
    one = BrokerLog(STEPS, Shape())
    other = BrokerLog([step._replace(rolls=at == 2) for at, step in enumerate(STEPS)], Shape())
    for number, log in enumerate((one, other)):
        folder = log.write(tmp_path / f"{number}" / "events-0")
        epochs = {0: 0} if not number else {0: 0, 1: 9}
        tier(folder, tmp_path / "bucket", TIERINGS[0], epochs=epochs, number=number)
    take(tmp_path / "lake", tmp_path / "bucket")
    assert read(tmp_path / "lake") == one.committed()[0]
    assert_sound(tmp_path / "lake")


def test_a_source_without_segments_gets_advice(tmp_path: Path) -> None:
    (tmp_path / "bucket").mkdir()
    (tmp_path / "bucket" / "other.txt").touch()
    for source, why in (
        ("bucket", "but no manifest"),
        ("bukcet", "there is no object below"),
        ("bucket/", "has 1 objects"),
        ("no/such/folder", "there is no object below"),
    ):
        with pytest.raises(InputError, match=rf"{why}.*with its key\.prefix"):
            attach_logs(str(tmp_path / "lake"), [f"{tmp_path}/{source}"])
    assert not (tmp_path / "lake").exists()


@pytest.mark.parametrize("take_in", [attach_logs, import_logs])
def test_a_key_prefix_that_is_no_folder(
    tmp_path: Path, take_in: Callable[..., list[ImportResult]]
) -> None:
    log = BrokerLog(STEPS)
    folder = log.write(tmp_path / "events-0")
    tier(folder, tmp_path / "bucket", Tiering("odd/pre-"))
    tier(folder, tmp_path / "bucket", Tiering("odd/other-"), topic="others")
    root = str(tmp_path / "lake")
    with pytest.raises(InputError):
        take_in(root, [f"{tmp_path}/bucket/odd/pre-/"])
    (report,) = take_in(root, [f"{tmp_path}/bucket/odd/pre-"])
    assert (report.topic, report.segments) == ("events", 3)
    assert read(tmp_path / "lake") == log.committed()[0]
    (again,) = take_in(root, [f"{tmp_path}/bucket/odd"], topic="events")
    assert (again.segments, again.gone) == (0, [])


def bucket_of_three(tmp_path: Path) -> Path:
    """A bucket with the topics good, bad (it has a transaction) and worse (a damaged manifest)."""
    bucket = tmp_path / "three"
    sound = BrokerLog(STEPS).write(tmp_path / "good-0")
    unsettled = BrokerLog([*STEPS, Step(3, (Event(T),), rolls=True), Step(3)])
    tier(sound, bucket, topic="good")
    tier(unsettled.write(tmp_path / "bad-0"), bucket, topic="bad")
    *_, manifest = tier(sound, bucket, topic="worse")
    manifest.write_text("{")
    return bucket


def test_a_refused_topic_keeps_no_other_out(tmp_path: Path) -> None:
    bucket, root = bucket_of_three(tmp_path), str(tmp_path / "lake")
    for dry_run in (True, False):
        bad, good, worse = attach_logs(root, [str(bucket)], dry_run=dry_run)
        assert (bad.version, good.segments, worse.version) == (-1, 3, -1)
        assert good.refused is None
        assert "has a transaction" in str(bad.refused)
        assert "this is not the manifest" in str(worse.refused)
    assert seglake.open(root).topics() == ["good"]
    good, none = attach_logs(root, [str(bucket)], topic=["none", "good"])
    assert (good.segments, good.version) == (0, -1)
    assert "has no topic 'none'" in str(none.refused)
    with pytest.raises(CorruptData, match="this is not the manifest"):
        attach_logs(root, [str(bucket)], topic="worse")
    with pytest.raises(UsageError, match=r"bad: .*transaction.*; worse: .*not the manifest"):
        attach_logs(root, [str(bucket)], topic=["bad", "worse"])
    with pytest.raises(UsageError, match=r"several .bad, good."):
        attach_logs(root, [str(bucket)], topic=["bad", "good"], name="other")


def test_topics_of_the_broker_stay_out(tmp_path: Path) -> None:
    """Also damaged ones, unless they are named."""
    folder, bucket = BrokerLog(STEPS).write(tmp_path / "events-0"), tmp_path / "bucket"
    *_, manifest = tier(folder, bucket, topic="__own")
    with pytest.raises(InputError, match="only internal topics"):
        attach_logs(str(tmp_path / "lake"), [str(bucket)])
    tier(folder, bucket)
    manifest.write_text("{")
    (report,) = attach_logs(str(tmp_path / "lake"), [str(bucket)])
    assert (report.topic, report.refused) == ("events", None)
    with pytest.raises(CorruptData):
        attach_logs(str(tmp_path / "lake"), [str(bucket)], topic="__own")


def test_objects_that_vanished_are_told(tmp_path: Path) -> None:
    root, bucket, _ = attached(tmp_path)
    tier(tmp_path / "events-0", bucket, TIERINGS[0], topic="others", topic_id="B" * 22)
    others, *_ = attach_logs(str(root), [str(bucket)], topic="others")
    assert others.gone == []
    first = min((bucket / "t").glob("events-*/0/*.log"))
    first.unlink()
    for topics in (["events"], None):
        reports = attach_logs(str(root), [str(bucket)], topic=topics, dry_run=topics is None)
        assert [report.gone for report in reports if report.topic == "events"] == [[str(first)]]
    shutil.rmtree(first.parents[1])
    reports = attach_logs(str(root), [str(bucket / "t")])
    assert {report.topic: len(report.gone) for report in reports} == {"others": 0, "events": 3}
    (report,) = attach_logs(str(root), [str(bucket)], topic="events")
    assert len(report.gone) == 3
    assert "has no topic 'events'" in str(report.refused)


def test_a_lost_object_in_the_middle_is_told_with_the_refusal(tmp_path: Path) -> None:
    root, bucket, _ = attached(tmp_path)
    _, second, _ = sorted(bucket.rglob("*.log"))
    second.unlink()
    report = take(root, bucket)
    assert report.gone == [str(second)]
    assert "are missing between" in str(report.refused)


def test_an_unfinished_copy_is_left_out(tmp_path: Path) -> None:
    folder = BrokerLog(STEPS).write(tmp_path / "events-0")
    *_, last = tier(folder, tmp_path / "bucket")
    last.with_suffix(".log").unlink()
    report = take(tmp_path / "lake", tmp_path / "bucket")
    assert report.segments == 2
    assert any("left out" in note for note in report.notes)


def test_a_bucket_that_moved(tmp_path: Path) -> None:
    """A copy of the lake whose bucket moved is mended by the links alone."""
    root, bucket, records = attached(tmp_path)
    shutil.move(bucket, tmp_path / "moved")
    for path in root.rglob("*.link"):
        link = json.loads(path.read_text())
        path.write_text(json.dumps({**link, "root": str(tmp_path / "moved")}))
    assert read(root) == records
    assert len(seglake.open(str(root)).topic("events").beginning_offsets()) == 1


# Manifests of tiered storage, and which of several copies of a log count.

PLACE = ("events", TOPIC_ID, 0)
SMALL_TIERINGS = {
    "plain": Tiering("tiered/", GOLDEN_CHUNK),
    "zstd": Tiering("kafka-", GOLDEN_CHUNK, compressed=True),
}


def manifest(**changes: Any) -> bytes:
    """A manifest of the plugin's own, with other values."""
    (path, *_) = sorted((GOLDEN / "plain").rglob("*.rsm-manifest"))
    return json.dumps({**json.loads(path.read_bytes()), **changes}).encode()


@pytest.mark.parametrize("name", SMALL_TIERINGS)
def test_what_the_plugin_wrote_comes_in(name: str, tmp_path: Path) -> None:
    """Objects that Aiven's plugin wrote, version 1.2.0-SNAPSHOT; by name of the topic, or all."""
    for topic in (None, GOLDEN_TOPIC):
        root = tmp_path / f"lake-{topic}"
        (report,) = import_logs(str(root), [str(GOLDEN / name)], topic=topic)
        assert (report.topic, report.segments, report.notes) == (GOLDEN_TOPIC, 3, [])
        assert [each._replace(partition=0) for each in read(root, GOLDEN_TOPIC)] == (
            GOLDEN_LOG.committed()[0]
        )
    (again,) = import_logs(str(root), [str(next((GOLDEN / name).rglob("3")).parent)])
    assert (again.segments, again.version) == (0, -1)


@pytest.mark.parametrize("name", SMALL_TIERINGS)
def test_the_tests_bucket_is_the_plugins(name: str, tmp_path: Path) -> None:
    folder = GOLDEN_LOG.write(tmp_path / "events-3")
    tier(
        folder, tmp_path / "bucket", SMALL_TIERINGS[name], topic=GOLDEN_TOPIC, partition=3,
        epochs={0: 0, 2: 46},
    )  # fmt: skip
    ours, theirs = (
        {str(path.relative_to(home)): path.read_bytes() for path in _files(home)}
        for home in (tmp_path / "bucket", GOLDEN / name)
    )
    assert sorted(ours) == sorted(theirs)
    for key, data in ours.items():
        if is_manifest(key):
            assert parse_manifest(data, key, key)[:5] == parse_manifest(theirs[key], key, key)[:5]
            assert json.loads(data).keys() == json.loads(theirs[key]).keys()
        elif name == "plain":
            assert data == theirs[key]


def _files(home: Path) -> list[Path]:
    return [path for path in home.rglob("*") if path.is_file()]


def test_encryption_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"-manifest is encrypted.*Kafka Connect"):
        import_logs(str(tmp_path / "lake"), [str(GOLDEN / "encrypted")])
    assert not (tmp_path / "lake").exists()


@given(st.lists(st.integers(1, 2**31 - 1), min_size=1, max_size=40))
@examples(100)
def test_sizes_of_chunks(sizes: list[int]) -> None:
    text = base64.b64encode(zstandard.compress(packed_sizes(sizes))).decode()
    total = 100 * len(sizes) - 50
    index = {"type": "variable", "originalChunkSize": 100, "originalFileSize": total,
             "transformedChunks": text}  # fmt: skip
    log = parse_manifest(manifest(compression=True, chunkIndex=index), "0.rsm-manifest", "m")
    assert log.chunks == Chunks(total, 100, tuple(sizes))


@given(st.data())
@examples(300)
def test_a_damaged_manifest_is_named(data: st.DataObject) -> None:
    (path, *_) = sorted((GOLDEN / "zstd").rglob("*.rsm-manifest"))
    stored = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(stored) - 1))
    stored[at] ^= data.draw(st.integers(1, 255))
    stop = data.draw(st.sampled_from([len(stored), at]))
    try:
        parse_manifest(bytes(stored[:stop]), "0.rsm-manifest", "m").chunks.check()
    except (CorruptData, InputError) as error:
        assert getattr(error, "file", "m") == "m"  # noqa: PT017  # what is read may be sound


def test_what_else_is_refused() -> None:
    with pytest.raises(InputError, match="version 2, but Seglake reads only version 1"):
        parse_manifest(manifest(version="2"), "k", "m")
    index = {"type": "fixed", "originalChunkSize": 2**30, "originalFileSize": 2**29,
             "transformedChunkSize": 5, "finalTransformedChunkSize": 5}  # fmt: skip
    with pytest.raises(InputError, match="Seglake reads at most"):
        parse_manifest(manifest(compression=True, chunkIndex=index), "k", "m")


# ---------------------------------------------------------------- leader epochs


@st.composite
def leaders(draw: st.DrawFn) -> tuple[list[RemoteLog], list[int]]:
    """What leaders copied of their logs, and the epoch at each offset of the newest one's log.

    Each leader begins with a part of the newest log, and so loses what was behind; it copies its
    log in segments of its own, from some offset on below which it knows copies of each record.
    """
    histories: list[list[int]] = [[]]
    logs: list[RemoteLog] = []
    for epoch in range(draw(st.integers(1, 4))):
        before = histories[-1]
        keep = len(before) if draw(st.booleans()) else draw(st.integers(0, len(before)))
        history = [*before[:keep], *([epoch] * draw(st.integers(1, 5)))]
        histories.append(history)
        cuts = {0, len(history), *draw(st.lists(st.integers(0, len(history)), max_size=4))}
        known = _known(logs, history)
        first = draw(st.sampled_from(sorted(cut for cut in cuts if cut <= known)))
        edges = [cut for cut in sorted(cuts) if cut >= first]
        for base, end in pairwise(edges):
            own = {each: base + history[base:end].index(each) for each in {*history[base:end]}}
            key = f"{epoch}/{base}"
            logs.append(RemoteLog(PLACE, key, base, end, tuple(sorted(own.items())), Chunks(1)))
    return logs, histories[-1]


def _known(logs: list[RemoteLog], history: list[int]) -> int:
    """Up to where there are copies of this log."""
    for offset, epoch in enumerate(history):
        if not any(
            log.base_offset <= offset < log.end_offset and _epoch(log, offset) == epoch
            for log in logs
        ):
            return offset
    return len(history)


def _epoch(log: RemoteLog, offset: int) -> int:
    return max(epoch for epoch, at in log.epochs if at <= offset)


@given(leaders())
@examples(500)
def test_the_newest_leaders_log_is_chosen(made: tuple[list[RemoteLog], list[int]]) -> None:
    logs, newest = made
    assume(any(log.end_offset == len(newest) and log.epochs[-1][0] == newest[-1] for log in logs))
    chosen = choose_logs(logs)
    bases = [log.base_offset for log in chosen]
    assert bases == sorted({*bases})
    assert chosen[-1].end_offset == len(newest)
    for log, end in zip(chosen, [*bases[1:], len(newest)], strict=True):
        assert end <= log.end_offset
        epochs = [_epoch(log, offset) for offset in range(log.base_offset, end)]
        assert epochs == newest[log.base_offset : end]


def test_a_hole_is_refused() -> None:
    logs = [RemoteLog(PLACE, f"{base}.log", base, base + 10, ((0, base),), Chunks(1))
            for base in (0, 20)]  # fmt: skip
    with pytest.raises(InputError, match=r"offsets 10 to 20 of events-0 are missing between"):
        choose_logs(logs)
    assert choose_logs(logs[1:]) == logs[1:]
