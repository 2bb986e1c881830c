"""Erased keys: afterwards nothing below the root has one, and everything else is as it was."""

import base64
import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import seglake
from seglake.catalog import attempts, transaction
from seglake.catalog.commits import CatalogCommits
from seglake.catalog.delta.commit_log import DeltaLog
from seglake.catalog.quarantine import table as quarantine_table
from seglake.catalog.quarantine.files import FILE_SCHEMA, write_rejects
from seglake.catalog.quarantine.table import QuarantineTable
from seglake.engine import LocalEngine
from seglake.errors import QuarantineLimit, UsageError, VersionExpired
from seglake.layout import LOG_TABLE, new_attempt
from seglake.maintain.erasure import erase as erase_module
from seglake.maintain.erasure import rewrites
from seglake.maintain.erasure.erase import EraseResult, erase
from seglake.maintain.erasure.rewrites import RejectErasure
from seglake.maintain.health.repair import rebuild_catalog
from seglake.maintain.health.verify import verify
from seglake.maintain.merge import merge
from seglake.maintain.undo import undo
from seglake.maintain.vacuum import vacuum
from seglake.reporting.figures import topic_figures
from seglake.store import Store, open_store
from seglake.write.driver.redrive import redrive
from tests.harness.killed import killed
from tests.harness.meanwhile import before_first
from tests.judges.kafka_model import read_log
from tests.makers.lakes import open_catalog
from tests.makers.raw_events import (
    Line,
    Stored,
    T,
    ingest,
    pipeline_of,
    quarantined,
    read_lake,
    write_file,
)
from tests.makers.strategies import examples

SECRET, OTHER_SECRET = "Zq7secret", "Zq8hidden"
WORD = re.compile(rb"(?<![0-9A-Za-z_])(?:Zq7secret|Zq8hidden)(?![0-9A-Za-z_])")
KEYS = (SECRET, OTHER_SECRET, "a", "b", None, "Zq7secrets")
Kept = dict[str, dict[int, list[Stored]]]


class Crash(BaseException):
    """The end of a process, which writes nothing more."""


class Lake:
    """A lake of two topics; each ingest has a file of its own."""

    def __init__(self, folder: Path, **topic: Any) -> None:
        self.folder, self.root = folder, folder / "lake"
        self.topic, self.count = {"compression.type": "zstd", **topic}, 0

    def pipeline(self, lines: list[Line], topic: str = "events", **changes: Any) -> Any:
        self.count += 1
        write_file(self.folder / str(self.count) / "in.jsonl", lines)
        names = {"name": topic, **self.topic}
        return pipeline_of(self.root, [self.folder / str(self.count)], topic=names, **changes)

    def ingest(self, lines: list[Line], topic: str = "events", **changes: Any) -> Any:
        pipeline = self.pipeline(lines, topic, **changes)
        return ingest(pipeline, f"run {self.count}")

    def fail(self, lines: list[Line]) -> None:
        """An ingest that rejects too much, and leaves a sample."""
        with pytest.raises(QuarantineLimit):
            self.ingest(lines, max_quarantine_ratio=0.0)

    def die(self, lines: list[Line], where: str = "commit") -> None:
        """An ingest that ends without a word: in front of its commit, within it, or before both."""
        with pytest.MonkeyPatch.context() as patch, killed():
            patch.setattr(*_deaths()[where])
            with pytest.raises(Crash):
                self.ingest(lines)

    def erase(self, *keys: str, **options: Any) -> EraseResult:
        return erase(str(self.root), "events", keys or (SECRET, OTHER_SECRET), **options)

    def merge(self) -> None:
        merge(str(self.root), "events", everything=True)

    def kept(self) -> Kept:
        """All records of both topics, except those that are to be erased."""
        lake = seglake.open(str(self.root))
        return {
            topic: {
                partition: [each for each in log if topic == "other" or not _is_secret(each)]
                for partition, log in read_lake(self.root, topic).items()
            }
            for topic in lake.topics()
        }

    def objects(self) -> dict[str, bytes]:
        paths = (path for path in self.root.rglob("*") if path.is_file())
        return {str(path.relative_to(self.root)): path.read_bytes() for path in paths}

    def ends(self) -> dict[int, int]:
        return seglake.open(str(self.root)).topic("events").end_offsets()


def _deaths() -> dict[str, tuple[type, str, Any]]:
    def crash(*_: object, **__: object) -> None:
        raise Crash

    real = DeltaLog.commit

    def crash_late(self: DeltaLog, *given: Any, **named: Any) -> Any:
        if self.folder == LOG_TABLE:
            raise Crash
        return real(self, *given, **named)

    return {
        "commit": (CatalogCommits, "make", crash),
        "late": (DeltaLog, "commit", crash_late),
        "early": (QuarantineTable, "add_files", crash),
    }


def _is_secret(record: Stored) -> bool:
    return record.key in {SECRET.encode(), OTHER_SECRET.encode()}


def traces(root: Path, topic: str = "events") -> Iterator[str]:
    """Where the keys still are below a root, decoded by nothing that is under test."""
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        name, data = str(path.relative_to(root)), path.read_bytes()
        if name.startswith("topics/") and not name.startswith(f"topics/{topic}-"):
            continue
        if "topic=" in name and f"topic={topic}/" not in name:
            continue
        if (
            "/blobs/" in name
            or name.endswith(".tmp")
            or any(map(WORD.search, [data, *_decoded(path, data)]))
        ):
            yield name


def _decoded(path: Path, data: bytes) -> Iterator[bytes]:
    """What a file has inside, each text on its own."""
    if path.suffix == ".log":
        yield from (record.key or b"" for _, _, record in read_log(data))
    elif path.suffix == ".parquet":
        yield from (repr(row).encode() for row in pq.read_table(path).to_pylist())
    elif path.name == "report.json":
        for row in json.loads(data)["rejects"]:
            raw = row["raw"]
            yield raw.encode() if isinstance(raw, str) else base64.b64decode(raw["base64"])


def lines(count: int, key: str | None = "a", start: int = T) -> list[Line]:
    return [Line(start + 10 * n, key) for n in range(count)]


def bad(*texts: str) -> list[Line]:
    return [Line(0, broken=text) for text in texts]


SECRET_REJECT = json.dumps({"n": 1, "k": SECRET})
rows = st.lists(
    st.one_of(
        st.builds(
            Line, st.integers(T, T + 1000), st.sampled_from(KEYS), st.integers(0, 2), st.none()
        ),
        st.sampled_from(bad(SECRET_REJECT, "{", '{"k":"Zq7secrets"}', '{"k":"\\u005aq8hidden"}')),
    ),
    min_size=1,
    max_size=12,
)
verbs = ["ingest", "ingest", "fail", "commit", "late", "early", "merge", "undo", "other", "erase"]
steps = st.lists(st.tuples(st.sampled_from(verbs), rows), min_size=1, max_size=7)


@given(steps, st.sampled_from([{"segment.bytes": 400, "batch.size": 200}, {}]), st.booleans())
@examples(10)
def test_whatever_happened__no_key_is_left_and_all_else_is_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, story: Any, shape: dict[str, Any], plain: bool
) -> None:
    codec = {"compression.type": "none"} if plain else {}
    lake = Lake(tmp_path_factory.mktemp("erase"), **shape, **codec)
    lake.ingest([*lines(3), *lines(3, SECRET), *bad(SECRET_REJECT, "{")])
    runs = ["run 1"]
    for verb, some_rows in story:
        given_rows = [Line(T, "b"), *some_rows, *bad("{")]
        if verb == "ingest":
            lake.ingest(given_rows)
            runs.append(f"run {lake.count}")
        elif verb == "fail":
            lake.fail(given_rows)
        elif verb in {"commit", "late", "early"}:
            lake.die(given_rows, verb)
        elif verb == "merge":
            lake.merge()
        elif verb == "undo" and runs:
            undo(str(lake.root), "events", runs.pop())
        elif verb == "other":
            lake.ingest(given_rows, "other")
        elif verb == "erase":
            lake.erase(grace_hours=0)
    wanted, ends = lake.kept(), lake.ends()
    rejects = [each for each in quarantined(lake.root) if not _erased(each.raw)]
    others = {name for name in lake.objects() if name.startswith("topics/other-")}
    report = lake.erase(vacuum=True, grace_hours=0)
    assert list(traces(lake.root)) == []
    assert (lake.kept(), lake.ends(), quarantined(lake.root)) == (wanted, ends, rejects)
    assert not any(map(_is_secret, itertools.chain(*read_lake(lake.root).values())))
    assert others <= lake.objects().keys()
    assert verify(str(lake.root), deep=True).findings == []
    assert (report.running, report.exit_code) == ([], 0)
    again = lake.erase(vacuum=True, grace_hours=0)
    assert (again.version, again.records, again.rejects, again.deleted) == (-1, 0, 0, [])
    rebuild_catalog(str(lake.root), force=True, dry_run=False)
    assert (lake.kept(), verify(str(lake.root), deep=True).findings) == (wanted, [])


def _erased(raw: bytes) -> bool:
    return WORD.search(raw.replace(b"\\u005a", b"Z")) is not None


# ------------------------------------------------------------------ old objects


def test_only_objects_with_the_key__go_and_their_versions_expire(tmp_path: Path) -> None:
    lake = Lake(tmp_path, partitions=1)
    lake.ingest(lines(3))
    lake.ingest(lines(3, SECRET))
    lake.ingest(lines(2), "other")
    lake.merge()
    before = lake.objects()
    logs_before = {name for name in before if name.endswith(".log")}
    old = [seglake.open(str(lake.root), version) for version in (1, 2, 3, 4)]
    report = lake.erase(vacuum=True)
    gone = {name for name in before if name not in lake.objects()}
    assert gone == set(report.deleted)
    assert report.deleted_bytes == sum(len(before[name]) for name in gone)
    assert len(gone) == 8
    assert len(logs_before - gone) == 2  # the log without the key, and that of the other topic
    assert len(old[0].topic("events").read_range(0, 2 * T).read_all()) == 3
    assert len(old[3].topic("other").read_range(0, 2 * T).read_all()) == 2
    for lake_then in old[1:]:
        with pytest.raises(VersionExpired):
            lake_then.topic("events").read_range(0, 2 * T).read_all()
    with pytest.raises(VersionExpired):
        seglake.open(str(lake.root), 2).topic("events").read(0, 3)
    assert vacuum(str(lake.root), dry_run=False).deleted == []


# ------------------------------------------------------------------ rejects


def test_rejects__go_by_key_or_text_and_the_rest_is_redriven(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    texts = [SECRET_REJECT, '{"time":1700000000000,"k":"a","p":0}', '{"k":"b","note":"for Bob"}']
    lake.ingest([*lines(2), *bad(*texts)])
    report = lake.erase(SECRET, raw_containing="Bob", vacuum=True)
    assert (report.records, report.rejects, report.segments) == (0, 2, 0)
    assert list(report.rejects_left.values()) == [1]
    (left,) = quarantined(lake.root)
    assert left.raw == texts[1].encode()
    assert verify(str(lake.root)).findings == []
    opened, quarantine = seglake.open(str(lake.root)), QuarantineTable(open_store(str(lake.root)))
    figures = topic_figures(opened, "events", T, quarantine)
    assert (figures.open_rejects, sum(figures.reasons.values())) == (1, 1)
    pipeline = pipeline_of(lake.root, [lake.folder / "1"], timestamp={"field": "time"})
    redriven = redrive(LocalEngine(), pipeline, "run 1")
    assert (redriven.records, redriven.quarantined) == (1, 0)
    assert verify(str(lake.root)).findings == []


def test_a_text_alone__erases_rejects_only(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.ingest([*lines(2, SECRET), *bad(SECRET_REJECT)])
    report = erase(str(lake.root), "events", raw_containing=SECRET)
    assert (report.records, report.rejects, quarantined(lake.root)) == (0, 1, [])
    assert sum(map(len, read_lake(lake.root).values())) == 2


# ------------------------------------------------------------------ beside ingests


def test_an_attempt_that_may_run__is_refused(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.ingest(lines(3, SECRET))
    lake.die(lines(3, SECRET))
    before = lake.objects()
    with pytest.raises(UsageError, match=r"attempt \S+ may still run, .* --grace-hours"):
        lake.erase(vacuum=True)
    assert lake.objects() == before
    planned = lake.erase(dry_run=True)
    assert (planned.records, len(planned.running), planned.exit_code) == (3, 1, 1)
    assert lake.erase(vacuum=True, grace_hours=0).running == []
    assert list(traces(lake.root)) == []


def test_an_ingest_that_commits_meanwhile__is_covered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(tmp_path)
    lake.ingest([*lines(3, SECRET), *lines(3)])
    scanned = list[str]()
    real = rewrites.count_hits

    def hits_in(keys: frozenset[bytes], store: Store, log: rewrites.StoredLog) -> rewrites.Hits:
        scanned.append(log.log_key)
        return real(keys, store, log)

    monkeypatch.setattr(rewrites, "count_hits", hits_in)
    more = [*lines(2, OTHER_SECRET), *bad(SECRET_REJECT)]

    def ingest_and_merge() -> None:
        lake.ingest(more)
        lake.merge()

    before_first(monkeypatch, CatalogCommits, "make", ingest_and_merge)
    report = lake.erase()
    assert (report.records, report.rejects, report.running) == (5, 1, [])
    assert sum(map(len, read_lake(lake.root).values())) == 3
    assert len(scanned) == len(set(scanned))  # a lost race costs new segments only
    assert verify(str(lake.root), deep=True).findings == []
    monkeypatch.undo()
    lake.erase(vacuum=True, grace_hours=0)
    assert list(traces(lake.root)) == []


def test_a_file_that_a_dead_attempt_names_at_last__goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had asked whether it was given up, and paused before its commit to the quarantine."""
    lake, dead, real = Lake(tmp_path), new_attempt(), RejectErasure.erase
    lake.ingest([*lines(2), *bad("{")])
    store = open_catalog(str(lake.root)).store
    row = {"attempt_id": dead, "source_file": "a", "line": 1, "reason": "none",
           "raw": SECRET_REJECT.encode(), "ingested_at_ms": 5}  # fmt: skip
    part = write_rejects(store, "events", dead, pa.Table.from_pylist([row], FILE_SCHEMA))

    def late(self: RejectErasure, *given: Any) -> None:
        real(self, *given)
        with monkeypatch.context() as patch:
            patch.setattr(quarantine_table, "require_not_abandoned", lambda *_: None)
            QuarantineTable(store).add_files([part], dead)

    monkeypatch.setattr(RejectErasure, "erase", late)
    assert lake.erase(vacuum=True, grace_hours=0).exit_code == 0
    assert list(traces(lake.root)) == []
    assert len(QuarantineTable(store).all_keys("events")) == 1


def test_what_an_attempt_writes_before_it_is_given_up__goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The erasure has listed what there is, and pauses; the attempt writes one blob more."""
    lake, slow, abandon = Lake(tmp_path), new_attempt(), attempts.abandon
    lake.ingest(lines(3))
    store = open_catalog(str(lake.root)).store
    store.put(f"attempts/{slow}/blobs/{new_attempt()}", b"no key")
    late = f"attempts/{slow}/blobs/{new_attempt()}"

    def paused(given: Any, attempt_id: str) -> str | None:
        if attempt_id == slow and erased:
            store.put(late, SECRET.encode())
        return abandon(given, attempt_id)

    erased: list[bool] = []
    delete_old = erase_module._Erasure.delete_old

    def deletes(self: Any) -> None:
        erased.append(True)
        delete_old(self)

    monkeypatch.setattr(erase_module._Erasure, "delete_old", deletes)
    monkeypatch.setattr(transaction, "abandon", paused)
    assert late in lake.erase(vacuum=True, grace_hours=0).deleted
    assert list(traces(lake.root)) == []
