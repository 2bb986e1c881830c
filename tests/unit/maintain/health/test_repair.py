"""What was lost comes back as it was; what cannot be known is said, not guessed."""

import json
import random
import shutil
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

import seglake
from seglake.catalog import attempts as claims
from seglake.catalog import commits, transaction
from seglake.catalog.attempts import read_manifest, read_manifests
from seglake.catalog.commits import CatalogCommits
from seglake.catalog.delta import commit_log, delta_rs
from seglake.catalog.schema import Row
from seglake.catalog.table import CatalogTable
from seglake.config import Pipeline
from seglake.engine import LocalEngine
from seglake.errors import CorruptData, SeglakeError, StoreError, UsageError, VersionExpired
from seglake.format.index import IndexPolicy
from seglake.layout import REBUILDING, manifest_key, new_attempt, success_key
from seglake.maintain.health import repair
from seglake.maintain.health.reindex import reindex
from seglake.maintain.health.repair import rebuild_catalog, repair_indexes
from seglake.maintain.health.verify import verify
from seglake.maintain.merge import merge
from seglake.maintain.undo import undo
from seglake.maintain.vacuum import vacuum
from seglake.store import Store, open_store
from seglake.write.driver.run import DeclaredRun, ingest_files
from tests.harness.meanwhile import dying_before
from tests.harness.observed import observe
from tests.harness.tiers import rest_but_today
from tests.makers.catalog_rows import commit_rows, run, source
from tests.makers.lakes import Event, LakeMaker, Shape, T, create_catalog, open_catalog
from tests.makers.raw_events import Line, ingest, pipeline_of, read_lake, segments_of, write_file
from tests.makers.strategies import examples
from tests.unit.maintain.refused import refuse

ROWS = [Event(i * 7 % 50, b"k", b"v" * 30) for i in range(60)]
SHAPE = Shape(codec="zstd", segment_bytes=500)


@pytest.fixture
def maker(tmp_path: Path) -> LakeMaker:
    maker = LakeMaker(tmp_path / "lake", partitions=2)
    maker.run({0: ROWS, 1: ROWS[:20]}, SHAPE)
    maker.topic = "other"
    maker.run({0: ROWS}, SHAPE)
    return maker


def catalog_rows(root: Path) -> dict[str, Any]:
    """Everything that a catalog says, but for its version."""
    table = open_catalog(str(root))
    snapshot = table.snapshot()
    return {
        row.topic: (
            row,
            table.rows.segments(snapshot, row.topic),
            sorted(table.rows.runs(snapshot, row.topic), key=lambda run: run.run_id),
            sorted(table.rows.all(snapshot, "source", row.topic).to_pylist(), key=str),
            [
                (v.log_start_offset, v.end_offset, v.sequence)
                for v in snapshot.partitions(row.topic)
            ],
        )
        for row in snapshot.topics()
    }


def test_index_files__are_made_again_as_they_were(maker: LakeMaker) -> None:
    chance = random.Random(1)
    good: dict[Path, bytes] = {}
    for suffix in ("index", "timeindex", "zonemap"):
        for path in chance.sample([each for each in maker.files(suffix) if each.stat().st_size], 2):
            good[path] = path.read_bytes()
            path.write_bytes(b"\0" + good[path][1:] + b"x")
            if chance.random() < 0.5:
                path.unlink()
    reports = {report.topic: report for report in repair_indexes(str(maker.root))}
    damaged = {(path.parts[-3], path.stem) for path in good}
    assert sum(report.segments for report in reports.values()) == len(damaged)
    assert verify(str(maker.root), deep=True).findings == []
    for path, data in good.items():
        topic = path.parts[-3].rpartition("-")[0]
        renewed = path.parents[1] / reports[topic].attempt_id / path.name
        assert renewed.read_bytes() == data
    assert repair_indexes(str(maker.root)) == []


def test_a_segment_whose_log_is_damaged_too__is_reported(maker: LakeMaker) -> None:
    first, second = maker.files("zonemap")[:2]
    for path in (first, second):
        path.unlink()
    log = first.with_suffix(".log")
    log.write_bytes(log.read_bytes()[:-1])
    (report,) = repair_indexes(str(maker.root))
    assert report.segments == 1
    assert [maker.root / finding.file for finding in report.damaged] == [log]
    assert report.exit_code == 1
    left = {maker.root / finding.file for finding in verify(str(maker.root)).findings}
    assert left == {first, log}


def test_what_storage_refuses__is_neither_made_anew_nor_in_the_way(
    maker: LakeMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index of one segment, and the log of another, whose index is gone."""
    topic = maker.root / "topics/events-0"
    first, second, third, *_ = sorted(topic.glob("*/*.index"))
    second.unlink()
    third.unlink()
    refused = [path.relative_to(maker.root).as_posix() for path in (first, second)]
    refused[1] = refused[1].replace(".index", ".log")
    with monkeypatch.context() as patch:
        refuse(patch, maker, *refused)
        (report,) = repair_indexes(str(maker.root))
    assert {(each.file, each.kind) for each in report.damaged} == {
        (key, "unreadable") for key in refused
    }
    assert (report.segments, report.exit_code) == (1, 1)
    assert [path.name for path in topic.glob(f"{report.attempt_id}/*.index")] == [third.name]
    (report,) = repair_indexes(str(maker.root))
    assert (report.segments, report.damaged) == (1, [])
    assert verify(str(maker.root), deep=True).findings == []


def test_only_what_storage_refuses__needs_no_commit(
    maker: LakeMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch, maker, maker.files("zonemap")[0].relative_to(maker.root).as_posix())
    (report,) = repair_indexes(str(maker.root))
    assert (report.version, report.segments, len(report.damaged)) == (-1, 0, 1)


@given(st.lists(st.sampled_from(["run", "reindex", "dense", "delete"]), max_size=6))
@examples(8)
def test_a_lost_catalog__comes_back_whole(
    tmp_path_factory: pytest.TempPathFactory, actions: list[str]
) -> None:
    root = tmp_path_factory.mktemp("lake")
    maker = LakeMaker(root, partitions=2)
    for action in ["run", *actions]:
        _act(maker, action)
    before = catalog_rows(root)
    shutil.rmtree(root / "catalog/log")
    planned = rebuild_catalog(str(root), dry_run=True)
    assert not (root / "catalog/log").exists()
    report = rebuild_catalog(str(root), dry_run=False)
    assert report.topics == planned.topics == {"events": len(before["events"][1])}
    assert (report.untrusted, report.missing, report.backup) == ([], [], "")
    assert catalog_rows(root) == before
    assert verify(str(root), deep=True).findings == []
    maker.catalog = open_catalog(str(root))
    for action in ("run", *actions):  # and once more, over what the first rebuild wrote
        _act(maker, action)
    before = catalog_rows(root)
    rebuild_catalog(str(root), dry_run=False, force=True)
    assert catalog_rows(root) == before


def _act(maker: LakeMaker, action: str) -> None:
    view = maker.catalog.snapshot()
    match action:
        case "run":
            maker.run({0: ROWS[:30], 1: ROWS[:9]}, SHAPE)
        case "delete":
            part = view.partition("events", 0)
            if len(part) > 1:
                maker.delete_records(0, part.segment(0).end_offset)
        case _:
            policy = IndexPolicy(0) if action == "dense" else None
            reindex(str(maker.root), "events", policy)


def test_manifests_of_a_remote_store__are_read_side_by_side(
    maker: LakeMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two reads wait for each other: one after another would never end."""
    meeting, store = threading.Barrier(2, timeout=30), open_store(str(maker.root))
    real = store.read_all

    def read_all(key: str) -> Any:
        meeting.wait()
        return real(key)

    monkeypatch.setattr(store, "remote", True, raising=False)
    monkeypatch.setattr(store, "read_all", read_all)
    attempts = sorted(path.parent.name for path in maker.root.glob("attempts/*/manifest.json"))[:2]
    found = read_manifests(store, dict.fromkeys(attempts, 0))
    assert [*found] == attempts == [each.attempt_id for each in found.values()]


def test_a_readable_catalog__is_left_alone(maker: LakeMaker) -> None:
    before = catalog_rows(maker.root)
    report = rebuild_catalog(str(maker.root), dry_run=False)
    assert (report.status, report.version, report.backup) == ("already done", -1, "")
    assert catalog_rows(maker.root) == before
    with pytest.raises(UsageError, match=r"was not rebuilt, and it has no attempt"):
        rebuild_catalog(str(maker.root), trust=[new_attempt()], dry_run=True)
    table = DeltaTable(str(maker.root / "catalog/log"))
    table.alter.set_table_properties({"seglake.format": "5"}, raise_if_not_exists=False)
    with pytest.raises(UsageError, match=r"seglake\.format = 5"):
        rebuild_catalog(str(maker.root), dry_run=False, force=True)


@pytest.mark.parametrize("kind", ["run", "source"])
@pytest.mark.parametrize("gone", [True, False])
def test_damage_that_no_snapshot_meets__is_reason_enough(
    maker: LakeMaker, kind: str, gone: bool
) -> None:
    attempt = new_attempt()
    rows: list[Row] = [source("in/a", attempt, "events"), run("r", attempt, "events")]
    base = maker.catalog.snapshot()
    commit_rows(maker.catalog, rows, base=base, attempt_id=attempt)
    before = catalog_rows(maker.root)
    path = min((maker.root / f"catalog/log/kind={kind}/topic=events").iterdir())
    path.write_bytes(path.read_bytes().replace(b"r", b"s"))
    if gone:
        path.unlink()
    with pytest.raises(SeglakeError):
        catalog_rows(maker.root)
    rebuild_catalog(str(maker.root), dry_run=False)
    assert catalog_rows(maker.root) == before


@pytest.mark.parametrize("damage", ["log", "data"])
def test_a_damaged_catalog__is_moved_aside(maker: LakeMaker, damage: str) -> None:
    before = catalog_rows(maker.root)
    folder = maker.root / "catalog/log"
    found = folder.rglob("*.json") if damage == "log" else folder.rglob("kind=segment/**/*.parquet")
    max(found).write_bytes(b"{")
    old = {path.relative_to(folder): path.read_bytes() for path in _files(folder)}
    report = rebuild_catalog(str(maker.root), dry_run=False)
    assert report.backup.startswith("catalog/log.backup-2")
    backup = maker.root / report.backup
    assert {path.relative_to(backup): path.read_bytes() for path in _files(backup)} == old
    assert catalog_rows(maker.root) == before
    assert report.version == open_catalog(str(maker.root)).snapshot().version


@pytest.mark.parametrize("lost", rest_but_today(["log", "catalog", "nothing"]))
def test_a_number_of_a_version__never_gets_another_meaning(maker: LakeMaker, lost: str) -> None:
    before, last = catalog_rows(maker.root), maker.catalog.snapshot().version
    for number in range(2):
        if lost != "nothing":
            folder = {"log": "catalog/log/_delta_log", "catalog": "catalog"}[lost]
            shutil.rmtree(maker.root / folder)
        report = rebuild_catalog(str(maker.root), force=True, dry_run=False)
        assert report.version > last
        assert catalog_rows(maker.root) == before
        for old in range(max(0, last - 2), report.version):
            with pytest.raises(VersionExpired):
                seglake.open(str(maker.root), old)
        open_lake = seglake.open(str(maker.root))
        assert open_lake.version == report.version
        maker.catalog = open_catalog(str(maker.root))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(commit_log, "CHECKPOINT_INTERVAL", 2)
            for _ in range(4):
                maker.run({0: [Event(number)]})
        assert open_lake.refresh().version == maker.catalog.snapshot().version
        table = DeltaTable(str(maker.root / "catalog/log"))
        assert table.version() == open_lake.version
        assert seglake.open(str(maker.root), report.version).version == report.version
        before, last = catalog_rows(maker.root), open_lake.version
        found = duckdb.from_parquet(table.file_uris(), hive_partitioning=True, union_by_name=True)
        runs = sum(len(rows[2]) for rows in before.values())
        assert len(found.filter("kind = 'run'").fetchall()) == runs


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())


def test_attempts_without_a_mark__are_left_out_and_named(maker: LakeMaker) -> None:
    before = catalog_rows(maker.root)
    maker.topic = "events"
    maker.run({0: ROWS[:5]})
    last = max(catalog_rows(maker.root)["events"][2], key=lambda run: run.run_id).attempt_id
    (maker.root / success_key(last)).unlink()
    shutil.rmtree(maker.root / "catalog/log")
    report = rebuild_catalog(str(maker.root), dry_run=False)
    assert report.untrusted == [last]
    assert catalog_rows(maker.root) == before


def test_a_hole__stops_the_rebuild_and_trust_closes_it(maker: LakeMaker) -> None:
    maker.topic = "events"
    maker.run({0: ROWS[:5]})
    before = catalog_rows(maker.root)
    first = before["events"][2][0].attempt_id
    (maker.root / success_key(first)).unlink()
    shutil.rmtree(maker.root / "catalog/log")
    with pytest.raises(CorruptData, match=rf"(?s)not trusted: {first}") as caught:
        rebuild_catalog(str(maker.root), dry_run=False)
    assert caught.value.file == "attempts"
    assert not list((maker.root / "catalog").glob("log.backup-*"))
    with pytest.raises(UsageError, match="without a manifest"):
        rebuild_catalog(str(maker.root), trust=[new_attempt()], dry_run=True)
    rebuild_catalog(str(maker.root), trust=[first], dry_run=False)
    assert catalog_rows(maker.root) == before


def test_a_log_that_is_gone__stops_the_rebuild(maker: LakeMaker) -> None:
    shutil.rmtree(maker.root / "catalog/log")
    path = maker.files("log")[3]
    path.unlink()
    with pytest.raises(CorruptData) as caught:
        rebuild_catalog(str(maker.root), dry_run=False)
    assert maker.root / caught.value.file == path
    assert not (maker.root / "catalog/log").exists()


def test_index_files_that_are_gone__are_named_and_can_be_repaired(maker: LakeMaker) -> None:
    shutil.rmtree(maker.root / "catalog/log")
    path = maker.files("timeindex")[3]
    path.unlink()
    report = rebuild_catalog(str(maker.root), dry_run=False)
    assert [maker.root / key for key in report.missing] == [path]
    repair_indexes(str(maker.root))
    assert verify(str(maker.root), deep=True).findings == []


def test_a_rebuild_that_was_killed__is_done_again(maker: LakeMaker) -> None:
    before = catalog_rows(maker.root)
    shutil.rmtree(maker.root / "catalog/log")

    def is_second(*_: Any, topic: str, **__: Any) -> bool:
        return topic == "other"

    with dying_before(CatalogCommits, "make", is_second):
        rebuild_catalog(str(maker.root), dry_run=False)
    for begin in (create_catalog, open_catalog):  # an ingest would begin at offset 0
        with pytest.raises(CorruptData, match="did not finish"):
            begin(str(maker.root))
    rebuild_catalog(str(maker.root), dry_run=False)
    assert not (maker.root / REBUILDING).exists()
    assert catalog_rows(maker.root) == before
    assert rebuild_catalog(str(maker.root), dry_run=True).status == "already done"


@pytest.mark.parametrize("late", ["begun", "begun long ago", "torn"])
def test_a_late_mark_of_a_rebuild_that_ended__stops_nobody(maker: LakeMaker, late: str) -> None:
    """A request to storage may be told as failed, and be carried out much later."""
    root, mark = str(maker.root), maker.root / REBUILDING
    marks = list[bytes]()
    for _ in range(2):
        version = CatalogTable.open(maker.store).snapshot().version
        rebuild_catalog(root, dry_run=False, force=True)
        marks.append(json.dumps({"last_version": version}).encode())
    before = catalog_rows(maker.root)
    mark.write_bytes({"begun": marks[1], "begun long ago": marks[0], "torn": b""}[late])
    if late == "torn":  # which nothing can be known of
        with pytest.raises(CorruptData, match="did not finish"):
            open_catalog(root)
        rebuild_catalog(root, dry_run=False)
    assert catalog_rows(maker.root) == before
    assert rebuild_catalog(root, dry_run=True).status == "already done"


def test_a_late_mark_of_a_rebuild__does_not_open_what_the_next_one_left(maker: LakeMaker) -> None:
    root = str(maker.root)
    version = CatalogTable.open(maker.store).snapshot().version
    rebuild_catalog(root, dry_run=False, force=True)
    with dying_before(CatalogCommits, "make"):
        rebuild_catalog(root, dry_run=False, force=True)
    (maker.root / REBUILDING).write_bytes(json.dumps({"last_version": version}).encode())
    with pytest.raises(CorruptData, match="did not finish"):
        open_catalog(root)


def test_a_rebuild_after_one_that_died__numbers_its_versions_above_the_lost_catalog(
    maker: LakeMaker,
) -> None:
    for _ in range(4):
        rebuild_catalog(str(maker.root), dry_run=False, force=True)
    lost = CatalogTable.open(maker.store).snapshot().version
    shutil.rmtree(maker.root / "catalog")  # with its backups
    with dying_before(delta_rs, "renumber"):
        rebuild_catalog(str(maker.root), dry_run=False)
    assert rebuild_catalog(str(maker.root), dry_run=False).version > lost


def test_a_killed_rebuild_of_a_lake_without_a_run__is_done_again(tmp_path: Path) -> None:
    """Else an ingest makes a catalog beside it, commits, and nobody can open the lake."""
    root = str(tmp_path)
    create_catalog(root)
    with dying_before(CatalogTable, "create_empty"):
        rebuild_catalog(root, dry_run=False, force=True)
    for begin in (create_catalog, open_catalog):
        with pytest.raises(CorruptData, match="did not finish"):
            begin(root)
    assert rebuild_catalog(root, dry_run=False).status == "committed"
    assert not (tmp_path / REBUILDING).exists()
    assert rebuild_catalog(root, dry_run=True).status == "already done"


@pytest.mark.parametrize(
    "content", [b"", b"[]", b'{"format": 2}', b'{"format": 3, "rows": [{"kind": "x"}]}']
)
def test_a_damaged_manifest__is_named(maker: LakeMaker, content: bytes) -> None:
    attempt = catalog_rows(maker.root)["events"][2][0].attempt_id
    maker.store.put(manifest_key(attempt), content)
    shutil.rmtree(maker.root / "catalog/log")
    with pytest.raises(CorruptData) as caught:
        rebuild_catalog(str(maker.root), dry_run=True)
    assert caught.value.file == manifest_key(attempt)
    with pytest.raises(CorruptData):
        read_manifest(maker.store, attempt)


# Whatever happens to the catalog, a scheduled run neither begins anew nor ingests a file twice.


def _removed(root: Path, _: pytest.MonkeyPatch) -> None:
    shutil.rmtree(root / "catalog/log")


def _half_made(root: Path, patch: pytest.MonkeyPatch) -> None:
    """Killed once the new table is there, and empty."""
    real = CatalogTable.create_empty

    def die(*args: Any) -> Any:
        real(*args)
        raise KeyboardInterrupt

    with patch.context() as inner:
        inner.setattr(CatalogTable, "create_empty", die)
        with pytest.raises(KeyboardInterrupt):
            rebuild_catalog(str(root), force=True, dry_run=False)


def _sources_changed(root: Path, _: pytest.MonkeyPatch) -> None:
    """One letter of a path."""
    (path,) = root.glob("catalog/log/kind=source/*/*.parquet")
    data = path.read_bytes()
    assert b"a.jsonl" in data
    path.write_bytes(data.replace(b"a.jsonl", b"b.jsonl"))


@pytest.mark.parametrize("happened", [_removed, _half_made, _sources_changed])
def test_an_ingest_afterwards_fails_until_the_catalog_is_repaired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, happened: Any
) -> None:
    root = tmp_path / "lake"
    write_file(tmp_path / "in/a.jsonl", [Line(T + n) for n in range(40)])
    pipeline = pipeline_of(root, tmp_path / "in")
    ingest(pipeline, "1")
    before = read_lake(root)
    happened(root, monkeypatch)
    write_file(tmp_path / "in/c.jsonl", [Line(T + n) for n in range(10)])
    assert verify(str(root)).exit_code == 1
    for run_id in "23":
        with pytest.raises(SeglakeError):
            ingest(pipeline, run_id)
    rebuild_catalog(str(root), dry_run=False)
    assert read_lake(root) == before
    assert ingest(pipeline, "2").records == 10
    assert verify(str(root), deep=True).findings == []


# Which manifests a rebuild of the catalog trusts: what was committed comes back, no more.


def lines(keys: int = 5) -> list[Line]:
    return [Line(T + n, f"k{n % keys}") for n in range(30)]


def run_pipeline(root: Path, run: str) -> Pipeline:
    path = write_file(root.parent / f"{run}.jsonl", lines())
    return pipeline_of(root, path)


def with_a_lost_race(root: Path) -> Path:
    """Three runs; the second had lost a race, so its segments have moved."""
    ingest(run_pipeline(root, "0"), "0")
    steps = [partial(ingest, run_pipeline(root, "1"), "1")]

    def progress(name: str) -> None:
        if name == "commit" and steps:
            steps.pop()()

    moved = ingest_files(LocalEngine(), run_pipeline(root, "2"), DeclaredRun("2"), progress)
    assert moved.rebased == 1
    return root


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return with_a_lost_race(tmp_path / "lake")


def rebuilt(root: Path) -> Any:
    """What is seen after the catalog was lost and rebuilt."""
    shutil.rmtree(root / "catalog/log")
    rebuild_catalog(str(root), dry_run=False)
    assert verify(str(root), deep=True).findings == []
    return observe(str(root))


def test_a_mark_that_storage_refuses_for_a_while__is_written(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody runs again what ended well; without its mark a rebuild would not trust it."""
    failures, write = [StoreError("busy")] * 3, claims.mark_committed

    def busy(store: Store, attempt_id: str) -> None:
        if failures:
            raise failures.pop()
        write(store, attempt_id)

    monkeypatch.setattr(transaction, "PAUSE_S", 0)
    for module in (commits, transaction):
        monkeypatch.setattr(module, "mark_committed", busy)
    ingest(run_pipeline(root, "3"), "3")
    assert not failures
    before = observe(str(root))
    assert rebuilt(root) == before


def mark(root: Path, attempt_id: str) -> None:
    path = root / success_key(attempt_id)
    path.parent.mkdir(exist_ok=True)
    path.touch()


def test_a_mark_without_a_manifest__is_named(root: Path) -> None:
    unknown = new_attempt()
    mark(root, unknown)
    findings = verify(str(root)).findings
    assert [each.file for each in findings] == [success_key(unknown)]
    with pytest.raises(CorruptData, match=f"no manifest.*{unknown}.*not trusted: none"):
        rebuild_catalog(str(root), force=True, dry_run=False)
    assert open_catalog(str(root)).snapshot().version == 3  # nothing has changed


def test_a_missing_log__names_the_attempts_that_are_not_trusted(root: Path) -> None:
    catalog = open_catalog(str(root))
    runs = {run.run_id: run.attempt_id for run in catalog.rows.runs(catalog.snapshot(), "events")}
    (root / success_key(runs["0"])).unlink()
    last = max(segments_of(root), key=lambda row: row.base_offset)
    (root / last.key("log")).unlink()
    shutil.rmtree(root / "catalog/log")
    with pytest.raises(CorruptData, match=f"is missing.*not trusted: {runs['0']}"):
        rebuild_catalog(str(root), dry_run=False)


@pytest.mark.parametrize("step", ["_move_aside", "_check", "renumber"])
def test_a_late_write_to_the_old_catalog__does_not_stop_a_rebuild(
    root: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """As on S3, where a request may arrive when its sender is gone; before or after a step."""
    before, late = observe(str(root)), [b'{"version":3,"size":1}']
    where = delta_rs if step == "renumber" else repair
    real, hint = getattr(where, step), root / "catalog/log/_delta_log/_last_checkpoint"

    def stepped(*given: Any) -> Any:
        found = real(*given) if step == "_move_aside" else None
        for content in late[:1]:
            hint.parent.mkdir(parents=True, exist_ok=True)
            hint.write_bytes(late.pop() and content)
        return real(*given) if step != "_move_aside" else found

    monkeypatch.setattr(where, step, stepped)
    assert rebuilt(root) == before


def test_attempts_that_others_build_on__need_no_mark(root: Path) -> None:
    """All but the last commit died before their marks."""
    merge(str(root), "events", everything=True)
    last = undo(str(root), "events", "1")
    marks = [
        path for path in root.glob("attempts/*/success") if path.parent.name != last.attempt_id
    ]
    for path in marks:
        path.unlink()
    before = observe(str(root))
    shutil.rmtree(root / "catalog/log")
    report = rebuild_catalog(str(root), dry_run=False)
    assert (report.untrusted, observe(str(root))) == ([], before)
    vacuum(str(root), dry_run=False, grace_hours=0, retention_hours=0)
    assert observe(str(root)) == before
    assert (root / manifest_key(last.attempt_id)).exists()
