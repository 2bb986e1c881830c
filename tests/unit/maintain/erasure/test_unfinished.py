"""An erasure that dies between its two commits keeps its promise, whatever is erased after it."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from seglake.catalog.commits import CatalogCommits
from seglake.catalog.quarantine.files import read_all_rejects, write_rejects
from seglake.catalog.quarantine.table import QuarantineTable
from seglake.engine import LocalEngine
from seglake.errors import CommitConflict, CorruptData, UsageError
from seglake.layout import is_rejects_key, new_attempt
from seglake.maintain.erasure import erase as erase_module
from seglake.maintain.erasure.erase import EraseResult, erase
from seglake.maintain.health.repair import rebuild_catalog
from seglake.maintain.health.verify import verify
from seglake.maintain.vacuum import vacuum
from seglake.store import open_store
from seglake.write.driver.redrive import RedriveReport, redrive
from tests.harness.killed import killed
from tests.harness.meanwhile import before_first
from tests.makers.lakes import open_catalog
from tests.makers.raw_events import Line, T, ingest, pipeline_of, quarantined, read_lake, write_file

KEYS = ("gone", "also", "kept")


class Crash(BaseException):
    """The end of a process, which writes nothing more."""


def crash(*_: object, **__: object) -> None:
    raise Crash


@contextmanager
def dying(owner: type, name: str) -> Iterator[None]:
    """In the block, whoever calls this dies; that ends the block."""

    with pytest.MonkeyPatch.context() as patch, killed():
        patch.setattr(owner, name, crash)
        with pytest.raises(Crash):
            yield


def between_the_commits() -> Any:
    return dying(QuarantineTable, "replace_files")


class Lake:
    """Runs of one record of each key, and of rejects that become records with another setting."""

    def __init__(self, folder: Path) -> None:
        self.root, self._folder, self._runs = folder / "lake", folder, 0

    def ingest(self, *rejected: str, topic: str = "events", good: Sequence[str] = KEYS) -> None:
        self._runs += 1
        records = [Line(T + n, key) for n, key in enumerate(good)]
        texts = [json.dumps({"time": T + n, "k": key, "p": 0}) for n, key in enumerate(rejected)]
        path = self._folder / str(self._runs) / "in.jsonl"
        write_file(path, [*records, *(Line(0, broken=text) for text in texts)])
        ingest(pipeline_of(self.root, path, topic={"name": topic}), f"run {self._runs}")

    def erase(self, *keys: str, **options: Any) -> EraseResult:
        return erase(str(self.root), "events", keys, **options)

    def redrive(self, run: int = 1) -> RedriveReport:
        path = self._folder / str(run) / "in.jsonl"
        pipeline = pipeline_of(self.root, path, timestamp={"field": "time"})
        return redrive(LocalEngine(), pipeline, f"run {run}")

    def keys(self) -> set[str]:
        """Of records and of rejects."""
        records = (each for log in read_lake(self.root).values() for each in log)
        rejects = (json.loads(each.raw)["k"] for each in quarantined(self.root))
        return {(each.key or b"").decode() for each in records} | {*rejects}

    def lists(self) -> list[Path]:
        return sorted(self.root.glob("attempts/*/rejects*"))

    def findings(self) -> list[str]:
        return [each.problem for each in verify(str(self.root)).findings]

    def orphans(self) -> list[str]:
        return [key for key in verify(str(self.root)).orphans if is_rejects_key(key)]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = Lake(tmp_path)
    made.ingest("gone", "also", "kept")
    return made


def test_a_redrive__is_refused_although_the_count_is_right(lake: Lake) -> None:
    """Another program took a row out of the quarantine, not the one that was to go."""
    with between_the_commits():
        lake.erase("gone")
    _delete_from_the_quarantine(lake, "also")
    assert lake.findings() == []
    with pytest.raises(CommitConflict, match=r"is not finished.*run `seglake erase` again"):
        lake.redrive()
    assert lake.erase("gone").rejects == 1
    assert lake.redrive().records == 1


def _delete_from_the_quarantine(lake: Lake, key: str) -> None:
    store = open_store(str(lake.root))
    table = QuarantineTable(store)
    (old,) = table.all_keys("events")
    rows = read_all_rejects(store, old)
    (attempt_id,) = set(map(str, rows["attempt_id"].to_pylist()))
    has = pc.match_substring(rows["raw"].cast(pa.string()), key)
    new = write_rejects(store, "events", attempt_id, rows.filter(pc.invert(has)))
    table.replace_files(table.version(), [old], [new], new_attempt())


def test_a_late_list_of_a_try_that_lost__hides_none_of_the_next(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on S3: the request for the first list arrives once more when the second is written."""
    first = list[tuple[Path, bytes]]()

    def overtake() -> None:
        first.extend((path, path.read_bytes()) for path in lake.lists())
        lake.ingest("gone", good=["kept"])

    before_first(monkeypatch, CatalogCommits, "make", overtake)
    with between_the_commits():
        lake.erase("gone", wait=True)
    ((path, data),) = first
    path.write_bytes(data)
    assert lake.erase("also").rejects == 3
    assert lake.redrive(1).records == 1
    assert (lake.keys(), lake.lists()) == ({"kept"}, [])


def test_an_end_in_front_of_the_removal_of_the_list__hinders_nobody(lake: Lake) -> None:
    with dying(erase_module._Erasure, "_erase_samples"), pytest.MonkeyPatch.context() as patch:
        patch.setattr(erase_module, "delete_objects", lambda *_: None)
        lake.erase("gone")
    assert len(lake.lists()) == 1
    assert lake.redrive().records == 2
    assert (lake.erase("nobody").version, lake.lists()) == (-1, [])


def test_the_list__outlives_vacuums_and_rebuilds(lake: Lake) -> None:
    with between_the_commits():
        lake.erase("gone")
    vacuum(str(lake.root), dry_run=False, grace_hours=0, retention_hours=0)
    rebuild_catalog(str(lake.root), force=True, dry_run=False)
    vacuum(str(lake.root), dry_run=False, grace_hours=0, retention_hours=0)
    assert (len(lake.lists()), lake.orphans()) == (1, [])
    assert lake.erase("also").rejects == 2
    assert lake.redrive().records == 1
    assert lake.keys() == {"kept"}


def test_the_list_of_an_erasure_that_did_not_commit__means_nothing_and_goes(lake: Lake) -> None:
    lake.ingest("gone", topic="other")
    with dying(CatalogCommits, "make"):
        lake.erase(raw_containing="gone")
    assert len(lake.orphans()) == 1
    with pytest.raises(UsageError, match="may still run"):
        lake.erase("also")
    assert erase(str(lake.root), "other", ["also"]).records == 1
    assert lake.erase("also", grace_hours=0).rejects == 1
    assert lake.redrive().records == 2
    vacuum(str(lake.root), dry_run=False, grace_hours=0)
    assert lake.lists() == []


def test_the_list__says_nothing_of_the_rows(lake: Lake) -> None:
    with between_the_commits():
        lake.erase("gone")
    (path,) = lake.lists()
    catalog = open_catalog(str(lake.root))
    (run,) = catalog.rows.runs(catalog.snapshot(), "events")
    gone = quarantined(lake.root)[0]
    lines = {hashlib.sha256(gone.path.encode()).hexdigest(): [gone.number]}
    wanted = {"topic": "events", "rejects": {run.attempt_id: lines}}
    assert json.loads(path.read_text()) == wanted


def test_a_damaged_list__is_named(lake: Lake) -> None:
    with between_the_commits():
        lake.erase("gone")
    (path,) = lake.lists()
    path.write_bytes(b'{"topic": "events", "rej')
    for call in (partial(lake.erase, "also"), lake.redrive):
        with pytest.raises(CorruptData, match=f"{path.parent.name}/rejects"):
            call()
