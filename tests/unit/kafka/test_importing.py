"""Import of a broker's folders: what comes in is what a consumer with read_committed gets."""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import seglake
from seglake.catalog.transaction import transact
from seglake.catalog.version.snapshot import PartitionView
from seglake.engine import LocalEngine
from seglake.errors import ConfigError, CorruptData, InputError, UsageError
from seglake.format.batch import OVERHEAD
from seglake.kafka import importing as intake
from seglake.kafka.importing import PARTITIONER, ImportResult, import_logs
from seglake.maintain.expiry.retention import delete_records
from seglake.maintain.health.reindex import reindex
from seglake.maintain.health.repair import rebuild_catalog
from seglake.maintain.health.verify import verify
from seglake.maintain.merge import merge
from seglake.maintain.topic_settings import alter
from seglake.store import open_store
from seglake.write.driver.run import DeclaredRun, ingest_files
from tests.judges.oracle import as_written
from tests.makers.broker_folders import BrokerLog, Step, batch, logs, marker, note
from tests.makers.lakes import Event, LakeMaker, Shape, Written, open_catalog
from tests.makers.raw_events import Line, pipeline_of, write_file
from tests.makers.strategies import T, examples
from tests.unit.log.test_segments import MEMORY

HW, STARTS, RECOVERY = (
    "replication-offset-checkpoint", "log-start-offset-checkpoint",
    "recovery-point-offset-checkpoint",
)  # fmt: skip
ONE = (Event(T, b"k", b"v"),)
TWO = (Event(T + 1, b"k", b"w"), Event(T + 2, None, None))


def take(
    root: Path, *sources: Path, dry_run: bool = False, name: str | None = None
) -> ImportResult:
    places = [str(each) for each in sources]
    (report,) = import_logs(str(root), places, dry_run=dry_run, name=name)
    return report


def read(root: Path, topic: str = "events") -> list[Written]:
    log = seglake.open(str(root)).topic(topic)
    starts, ends = log.beginning_offsets(), log.end_offsets()
    plan = log.plan_offsets({number: (starts[number], end) for number, end in ends.items()})
    return as_written(plan.execute().read_all())


def view_of(root: Path, topic: str = "events", partition: int = 0) -> PartitionView:
    return open_catalog(str(root)).snapshot().partition(topic, partition)


def assert_sound(root: Path) -> None:
    report = verify(str(root), deep=True)
    assert (report.findings, report.orphans) == ([], [])


@given(logs(), st.data())
@examples(60)
def test_any_log_is_read_as_committed(log: BrokerLog, data: st.DataObject) -> None:
    """In several imports, each up to a higher watermark: as one consumer sees it in the end."""
    ends = [log.start, *(each.end for each in log.placed)]
    limits = sorted({*data.draw(st.lists(st.sampled_from(ends), max_size=3)), log.end})
    with tempfile.TemporaryDirectory(dir=MEMORY) as name:
        home, root = Path(name, "logs"), Path(name, "lake")
        folder = log.write(home / "events-0")
        (home / ".kafka_cleanshutdown").touch()
        for limit in limits:
            note(home, HW, {"events-0": limit})
            take(root, *data.draw(st.sampled_from([[home], [folder]])))
            records, end = log.committed(limit)
            if end > log.start:
                assert read(root) == records
                assert seglake.open(str(root)).topic("events").end_offsets() == {0: end}
                assert_sound(root)
        if log.committed()[1] > log.start:
            assert_no_transactions(root)
            merge(str(root), "events", everything=True)
            assert read(root) == log.committed()[0]
            assert_sound(root)


def assert_no_transactions(root: Path) -> None:
    """No batch makes a reader wait for a marker."""
    for path in root.glob("topics/*/*/*.log"):
        data = path.read_bytes()
        at = 0
        while at < len(data):
            attributes, producer = data[at + 22], int.from_bytes(data[at + 43 : at + 51], "big")
            assert not attributes & 0x30
            assert producer == 2**64 - 1
            at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")


def test_plain_batches_stay_byte_for_byte(tmp_path: Path) -> None:
    log = BrokerLog([Step(-1, ONE), Step(-1, TWO, rolls=True), Step(-1, ONE)], Shape("zstd"))
    folder = log.write(tmp_path / "events-0", epoch=5)
    report = take(tmp_path / "lake", folder)
    ours = sorted((tmp_path / "lake").glob("topics/*/*/*.log"))
    theirs = sorted(folder.glob("*.log"))
    assert [path.read_bytes() for path in ours] == [path.read_bytes() for path in theirs]
    assert [path.name for path in ours] == [path.name for path in theirs]
    assert (report.segments, report.records) == (2, 4)
    assert view_of(tmp_path / "lake").leader_epoch == 5
    assert any("high watermark" in text for text in report.notes)


def test_a_committed_batch_is_the_one_of_no_transaction(tmp_path: Path) -> None:
    steps = [Step(7, TWO), Step(7), Step(-1, ONE)]
    take(tmp_path / "lake", BrokerLog(steps).write(tmp_path / "events-0"))
    (path,) = (tmp_path / "lake").glob("topics/*/*/*.log")
    plain = [batch(TWO, 0, -1, Shape()), batch(ONE, 3, -1, Shape())]
    assert path.read_bytes() == b"".join(plain)


def test_several_partitions_and_topics_of_a_log_dir(tmp_path: Path) -> None:
    home, root = tmp_path / "logs", tmp_path / "lake"
    for name in ("a.b-0", "a.b-2", "other-0", "__consumer_offsets-3"):
        BrokerLog([Step(-1, ONE)] * (1 + len(name))).write(home / name)
    for name in (f"a.b-1.{'0' * 32}-delete", f"a.b-1.{'1' * 32}-stray"):
        BrokerLog([Step(-1, ONE)]).write(home / name)
    (home / "a.b-0" / "00000000000000000000.log.deleted").write_bytes(b"gone")
    (home / "meta.properties").write_text("version=1\n")
    reports = import_logs(str(root), [str(home)])
    assert [report.topic for report in reports] == ["a.b", "other"]
    assert sum("TOPIC-PARTITION" in note for note in reports[0].notes) == 2
    assert any("1 unrelated file" in note for note in reports[0].notes)
    log = seglake.open(str(root)).topic("a.b")
    assert log.end_offsets() == {0: 6, 1: 0, 2: 6}
    assert log.settings.partitioner == PARTITIONER
    assert log.partition_counts() == []
    only = import_logs(str(root), [str(home)], topic="__consumer_offsets", name="offsets")
    assert [report.topic for report in only] == ["offsets"]
    assert_sound(root)
    assert [row.operation for row in seglake.open(str(root)).maintenance()] == ["import"] * 3


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    folder = BrokerLog([Step(-1, ONE), Step(3, TWO), Step(3, commits=False)]).write(
        tmp_path / "events-0"
    )
    told = take(tmp_path / "lake", folder, dry_run=True)
    assert not (tmp_path / "lake").exists()
    (part,) = told.partitions
    assert (part.start_offset, part.end_offset, part.aborted_transactions) == (0, 4, 1)
    done = take(tmp_path / "lake", folder)
    assert done.partitions == told.partitions
    again = take(tmp_path / "lake", folder)
    assert (again.version, again.segments) == (-1, 0)


def test_partitions_that_came_later(tmp_path: Path) -> None:
    home, root = tmp_path / "logs", tmp_path / "lake"
    BrokerLog([Step(-1, ONE)]).write(home / "events-0")
    take(root, home)
    BrokerLog([Step(-1, TWO)]).write(home / "events-2")
    report = take(root, home)
    assert report.segments == 1
    log = seglake.open(str(root)).topic("events")
    assert log.end_offsets() == {0: 1, 1: 0, 2: 2}
    assert log.settings.sequence == 2
    assert_sound(root)


def test_index_files_of_the_broker_do_not_count(tmp_path: Path) -> None:
    """They may be padded, sparse or damaged; ours are made from the log."""
    log = BrokerLog([Step(-1, TWO)] * 9, Shape("lz4"))
    folder = log.write(tmp_path / "events-0")
    for suffix in ("index", "timeindex", "snapshot"):
        (folder / f"{0:020d}.{suffix}").write_bytes(b"rubbish" * 1000)
    take(tmp_path / "lake", folder)
    assert read(tmp_path / "lake") == log.committed()[0]
    assert_sound(tmp_path / "lake")


def test_the_log_start_is_honoured(tmp_path: Path) -> None:
    home, root = tmp_path / "logs", tmp_path / "lake"
    BrokerLog([Step(-1, TWO), Step(-1, ONE, rolls=True), Step(-1, TWO), Step(-1, TWO)]).write(
        home / "events-0"
    )
    note(home, STARTS, {"events-0": 4})
    take(root, home)
    log = seglake.open(str(root)).topic("events")
    assert (log.beginning_offsets(), log.end_offsets()) == ({0: 4}, {0: 7})
    assert [each.offset for each in read(root)] == [4, 5, 6]
    view = view_of(root)
    assert view.segments.base_offsets.tolist() == [3]  # the batch in which the log begins
    assert_sound(root)


def test_empty_segments_of_a_cleaner_keep_their_offsets(tmp_path: Path) -> None:
    root, folder = tmp_path / "lake", tmp_path / "events-0"
    BrokerLog([Step(-1, ONE)]).write(folder)
    for base in (5, 9):
        (folder / f"{base:020d}.log").touch()
    take(root, folder)
    view = view_of(root)
    assert view.segments.base_offsets.tolist() == [0, 5]
    assert view.end_offset == 9
    assert [each.offset for each in read(root)] == [0]
    assert_sound(root)


@pytest.mark.parametrize("start", [0, 7])
def test_an_empty_topic_comes_with_its_partitions(tmp_path: Path, start: int) -> None:
    root, home = tmp_path / "lake", tmp_path / "logs"
    for number in range(3):
        BrokerLog([], start=start).write(home / f"events-{number}")
    note(home, STARTS, {f"events-{number}": start for number in range(3)})
    assert (take(root, home, dry_run=True).records, root.exists()) == (0, False)
    for _ in range(2):
        assert take(root, home).records == 0
    log = seglake.open(str(root)).topic("events")
    assert log.beginning_offsets() == log.end_offsets() == dict.fromkeys(range(3), start)
    assert_sound(root)
    rebuild_catalog(str(root), dry_run=False)
    BrokerLog([], start=start).write(home / "events-3")  # it grew
    take(root, home)
    assert [*seglake.open(str(root)).topic("events").end_offsets()] == [0, 1, 2, 3]
    shutil.rmtree(home / "events-1")
    BrokerLog([Step(-1, TWO)], start=start).write(home / "events-1")
    assert take(root, home).records == 2
    assert [each.offset for each in read(root)] == [start, start + 1]
    assert_sound(root)


@pytest.mark.parametrize("tail", ["zeros", "cut", "crc", "rubbish"])
def test_the_torn_end_of_the_active_segment_is_cut(tmp_path: Path, tail: str) -> None:
    home, root = tmp_path / "logs", tmp_path / "lake"
    log = BrokerLog([Step(-1, TWO), Step(-1, ONE, rolls=True)])
    folder = log.write(home / "events-0")
    note(home, RECOVERY, {"events-0": 2})
    last, more = max(folder.glob("*.log")), bytearray(batch(TWO, 3, -1, Shape()))
    whole = last.stat().st_size
    if tail == "zeros":
        more = bytearray(10_000)
    elif tail == "cut":
        more = more[:-3]
    elif tail == "crc":
        more[OVERHEAD + 4] ^= 1
    else:
        more = bytearray(b"\xff" * 300)
    last.write_bytes(last.read_bytes() + more)
    report = take(root, home)
    assert any(f"from byte {whole} on" in text for text in report.notes)
    assert read(root) == log.committed()[0]
    assert_sound(root)


@pytest.mark.parametrize("where", ["closed", "clean", "recovered"])
def test_damage_elsewhere_is_damage(tmp_path: Path, where: str) -> None:
    home, root = tmp_path / "logs", tmp_path / "lake"
    log = BrokerLog([Step(-1, TWO), Step(-1, ONE), Step(-1, TWO, rolls=True)])
    folder = log.write(home / "events-0")
    (home / ".kafka_cleanshutdown").touch() if where != "recovered" else None
    note(home, RECOVERY, {"events-0": 5})
    files = sorted(folder.glob("*.log"))
    hurt = files[0] if where == "closed" else files[-1]
    data = bytearray(hurt.read_bytes())
    data[OVERHEAD + 5] ^= 1
    hurt.write_bytes(data)
    with pytest.raises(CorruptData, match=f"{hurt} at byte 0: CRC"):
        take(root, home)
    assert not root.exists() or open_catalog(str(root)).snapshot().topics() == []


def test_an_open_transaction_ends_the_import(tmp_path: Path) -> None:
    root, home = tmp_path / "lake", tmp_path / "logs"
    steps = [Step(-1, ONE), Step(4, TWO), Step(-1, ONE)]
    BrokerLog(steps).write(home / "events-0")
    report = take(root, home)
    assert report.partitions[0].last_stable_offset == 1
    assert any("a transaction is open at the last stable offset 1" in text for text in report.notes)
    assert [each.offset for each in read(root)] == [0]
    nothing = take(root, home)
    assert nothing.version == -1
    shutil.rmtree(home)
    log = BrokerLog([*steps, Step(4)])
    log.write(home / "events-0")
    take(root, home)
    assert read(root) == log.committed()[0]
    assert_sound(root)


def old_format(folder: Path, magic: int) -> Path:
    folder.mkdir()
    message = bytes(8) + (30).to_bytes(4, "big") + bytes(4) + bytes([magic]) + bytes(25)
    (folder / f"{0:020d}.log").write_bytes(message)
    return folder


@pytest.mark.parametrize("magic", [0, 1])
def test_old_message_formats_are_refused(tmp_path: Path, magic: int) -> None:
    folder = old_format(tmp_path / "events-0", magic)
    with pytest.raises(CorruptData, match=f"{0:020d}.log at byte 0: message format {magic}"):
        take(tmp_path / "lake", folder)
    assert not (tmp_path / "lake").exists()


def test_folders_that_are_no_log(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "notes.log").write_text("hello")
    internal = BrokerLog([Step(-1, ONE)]).write(tmp_path / "own" / "__transaction_state-0").parent
    for folder, word in (
        (tmp_path / "empty", "is not the log of a broker"),
        (tmp_path / "missing", "is not the log of a broker"),
        (tmp_path / "text", "is not the log of a broker"),
        (internal, "internal topics of the broker"),
    ):
        with pytest.raises(InputError, match=word):
            take(tmp_path / "lake", folder)
    folder = BrokerLog([Step(-1, ONE)]).write(tmp_path / "events-0")
    (folder / "stray.log").touch()
    with pytest.raises(InputError, match=r"stray.log is not the log of a segment"):
        take(tmp_path / "lake", folder)
    (folder / "stray.log").unlink()
    (folder / f"{7:020d}.log.swap").touch()
    with pytest.raises(InputError, match="interrupted log cleaning"):
        take(tmp_path / "lake", folder)
    note(tmp_path, HW, {"events-0": 1})
    (tmp_path / HW).write_text("0\n3\nevents 0 1\n")
    (folder / f"{7:020d}.log.swap").unlink()
    with pytest.raises(CorruptData, match="not a checkpoint"):
        take(tmp_path / "lake", folder)
    assert not (tmp_path / "lake").exists()


LOCK = """
import fcntl, sys
file = open(sys.argv[1], "r+b")
fcntl.lockf(file, fcntl.LOCK_EX)
print("locked", flush=True)
sys.stdin.read()
"""


def test_a_running_broker_is_refused(tmp_path: Path) -> None:
    folder = BrokerLog([Step(-1, ONE)]).write(tmp_path / "logs" / "events-0")
    (folder.parent / ".lock").touch()
    command = [sys.executable, "-c", LOCK, str(folder.parent / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        for source in (folder, folder.parent):
            with pytest.raises(InputError, match="a running broker uses"):
                take(tmp_path / "lake", source)
        holder.communicate()
    take(tmp_path / "lake", folder)
    assert len(read(tmp_path / "lake")) == 1


def test_replicas(tmp_path: Path) -> None:
    """The longest is taken, below the smallest high watermark; they may roll at other offsets."""
    steps = [Step(-1, ONE), Step(-1, TWO), Step(2, ONE), Step(2), Step(-1, TWO), Step(-1, ONE)]
    other = [step._replace(rolls=n % 2 == 1) for n, step in enumerate(steps)]
    homes = [tmp_path / name for name in "abc"]
    log = BrokerLog(steps)
    log.write(homes[0] / "events-0")
    BrokerLog(other).write(homes[1] / "events-0")
    log.write(homes[2] / "events-0", until=5)
    for home, limit in zip(homes, (8, 7, 8), strict=True):
        note(home, HW, {"events-0": limit})
    report = take(tmp_path / "lake", *homes)
    assert (read(tmp_path / "lake"), 7) == log.committed(7)
    assert len(report.partitions) == 1
    assert_sound(tmp_path / "lake")


def test_an_import_over_a_gap_below_the_end_or_of_another_topic(tmp_path: Path) -> None:
    root, home = tmp_path / "lake", tmp_path / "logs"
    folder = BrokerLog([Step(-1, TWO), Step(-1, TWO)]).write(home / "events-0")
    take(root, home)
    before = open_catalog(str(root)).snapshot().version
    older = BrokerLog([Step(-1, ONE)]).write(tmp_path / "older" / "events-0")
    later = BrokerLog([Step(-1, ONE)], start=9).write(tmp_path / "later" / "events-0")
    across = BrokerLog([Step(-1, ONE), Step(-1, TWO), Step(-1, TWO)]).write(
        tmp_path / "across" / "events-0"
    )
    again = BrokerLog([Step(-1, TWO)] * 3).write(tmp_path / "again" / "events-0")
    (again / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAg\n")
    for source, word in (
        (older, "ends at offset 1, below 4"),
        (later, "begins at offset 9, .* ends at 4: the offsets between them are missing"),
        (across, "has a record batch at offset 3, below 4"),
        (again, "deleted and created again"),
    ):
        with pytest.raises(UsageError, match=word):
            take(root, source)
    with pytest.raises(UsageError, match=r"has the topic id .* has"):
        take(tmp_path / "new", folder, again)
    take(root, later, name="second")
    assert open_catalog(str(root)).snapshot().version == before + 1
    assert seglake.open(str(root)).topic("second").beginning_offsets() == {0: 9}


def test_topics_of_pipelines_and_of_imports_do_not_mix(tmp_path: Path) -> None:
    maker = LakeMaker(tmp_path / "lake")
    maker.run({0: [Event(T)]})
    folder = BrokerLog([Step(-1, TWO)]).write(tmp_path / "events-0")
    with pytest.raises(UsageError, match="does not come from an import"):
        take(maker.root, folder)
    take(maker.root, folder, name="theirs")
    lines = write_file(tmp_path / "in" / "a.jsonl", [Line(T, "k")])
    pipeline = pipeline_of(str(maker.root), lines, topic={"name": "theirs"})
    with pytest.raises(ConfigError, match="partitioner = 'unknown'"):
        ingest_files(LocalEngine(), pipeline, DeclaredRun("run"))


def test_two_imports_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that comes second looks again, and takes what is left."""
    root, home = tmp_path / "lake", tmp_path / "logs"
    log = BrokerLog([Step(-1, ONE), Step(-1, TWO, rolls=True), Step(6, ONE), Step(6)])
    log.write(home / "events-0")
    note(home, HW, {"events-0": 3})
    first = transact
    raced: list[int] = []

    def race(*given: object, **more: object) -> int | None:
        if not raced:
            raced.append(1)
            take(root, home)
            note(home, HW, {"events-0": 5})
        return first(*given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(intake, "transact", race)
    take(root, home)
    assert (read(root), 3) == log.committed(3)
    take(root, home)
    assert read(root) == log.committed()[0]
    assert verify(str(root), deep=True).findings == []


def test_an_import_into_a_topic_of_csv_indexes_its_columns(tmp_path: Path) -> None:
    root, old, new = tmp_path / "lake", tmp_path / "old", tmp_path / "new"
    first, second = ((Event(T + n, None, b"%d,a" % n),) for n in range(2))
    BrokerLog([Step(-1, first)]).write(old / "events-0")
    take(root, old)
    columns = {"value.format": "csv", "value.columns": ["n", "word"], "index.fields": ["n"]}
    alter(str(root), "events", columns)
    BrokerLog([Step(-1, first), Step(-1, second, rolls=True)]).write(new / "events-0")
    assert take(root, new).records == 1
    log = seglake.open(str(root)).topic("events")
    assert [as_written(log.find(where={"n": n}).read_all())[0].offset for n in (0, 1)] == [0, 1]
    assert log.plan_find(where={"n": 1}).scanned == 1  # the first segment, which has no index yet
    reindex(str(root), "events")
    log = seglake.open(str(root)).topic("events")
    assert log.plan_find(where={"n": 1}).scanned == 0
    words = log.find(where={"n": 1}, fields=["word"]).read_all()["word"]
    assert words.to_pylist() == ["a"]
    assert_sound(root)


def test_the_catalog_is_rebuilt_with_imports(tmp_path: Path) -> None:
    root, home = tmp_path / "lake", tmp_path / "logs"
    log = BrokerLog([Step(-1, TWO), Step(3, TWO), Step(3, commits=False)])
    log.write(home / "events-0", epoch=4)
    note(home, STARTS, {"events-0": 1})
    take(root, home)
    before, settings = view_of(root), seglake.open(str(root)).topic("events").settings
    delete_records(str(root), "events", {0: 2})
    assert view_of(root).leader_epoch == 4
    store = open_store(str(root))
    store.delete([found.key for found in store.list("catalog/log")])
    rebuild_catalog(str(root), dry_run=False)
    after = view_of(root)
    assert (after.leader_epoch, after.log_start_offset, after.end_offset) == (4, 2, 5)
    assert before.segments.base_offsets.tolist() == after.segments.base_offsets.tolist()
    assert json.loads(seglake.open(str(root)).topic("events").settings.settings) == json.loads(
        settings.settings
    )


def test_damage_in_an_imported_log_is_found(tmp_path: Path) -> None:
    """Leader epochs rise in it; that is no damage, and an epoch out of order is."""
    root, folder = tmp_path / "lake", tmp_path / "events-0"
    folder.mkdir()
    parts = [batch(TWO, 2 * n, -1, Shape(), epoch) for n, epoch in enumerate((1, 1, 3, 3))]
    (folder / f"{0:020d}.log").write_bytes(b"".join(parts))
    take(root, folder)
    assert_sound(root)
    (path,) = root.glob("topics/*/*/*.log")
    data = bytearray(path.read_bytes())
    data[len(parts[0]) + 15] = 9
    path.write_bytes(data)
    (finding,) = verify(str(root)).findings
    assert (finding.position, "CRC-32C" in finding.problem) == (len(parts[0]), True)


def test_markers_alone(tmp_path: Path) -> None:
    """Nothing but markers, and a marker of another kind: offsets without a record."""
    folder = tmp_path / "events-0"
    folder.mkdir()
    (folder / f"{0:020d}.log").write_bytes(marker(0, 3, commits=True) + marker(1, 3, commits=False))
    take(tmp_path / "lake", folder)
    assert read(tmp_path / "lake") == []
    assert seglake.open(str(tmp_path / "lake")).topic("events").end_offsets() == {0: 2}
    assert_sound(tmp_path / "lake")
