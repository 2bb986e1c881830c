"""Publishers that race, pause, die or lose replies, next to erasures and other publishers."""

import itertools
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any
from unittest.mock import patch

import pyarrow.parquet as pq
import pytest

import seglake
from seglake.catalog.delta.commit_log import DeltaLog
from seglake.catalog.published import PublishedTable, known_tables
from seglake.errors import AttemptAbandoned, StoreError, UsageError
from seglake.maintain.publish import publish as publishing
from seglake.maintain.publish.encode import FileWriter
from seglake.store.local import _LocalStore
from tests.harness.meanwhile import before_first
from tests.harness.tiers import rest_but_today
from tests.makers.lakes import LakeMaker
from tests.makers.published import FIELDS, require_equal
from tests.unit.publish.test_publish import event, make, publish

KEY = "k3"


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    make(tmp_path / "lake")
    return tmp_path / "lake"


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "PAUSE_S", 0)


def files_with_the_key(lake: Path) -> list[str]:
    """All objects below the tables that have the key, whatever names them."""
    found = []
    for path in (lake / "tables").rglob("*"):
        if path.suffix == ".parquet" and "checkpoint" not in path.name:
            has = KEY.encode() in pq.read_table(path)["key"].to_pylist()
        else:
            has = path.is_file() and f'"{KEY}"'.encode() in path.read_bytes().replace(b"\\", b"")
        found += [path.name] * has
    return found


# ---------------- erasure


def test_publisher_that_paused_in_front_of_its_commit_adds_nothing_after_an_erasure(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def erase() -> None:
        with pytest.raises(UsageError, match="may still run"):
            seglake.erase(str(lake), "events", [KEY])
        seglake.erase(str(lake), "events", [KEY], vacuum=True, grace_hours=0)

    before_first(monkeypatch, PublishedTable, "commit", erase)
    assert publish(lake).status == "already done"
    assert files_with_the_key(lake) == []
    require_equal(str(lake), "events")


def test_put_that_paused_after_every_check_loses_to_the_erasure(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(lake)
    LakeMaker(lake, partitions=2).run({0: [event(900, KEY.encode())]})

    def erase() -> None:
        seglake.erase(str(lake), "events", [KEY], grace_hours=0)

    before_first(
        monkeypatch, _LocalStore, "put_if_absent", erase,
        when=lambda _store, key, _data: key.startswith("tables/") and key.endswith("2.json"),
    )  # fmt: skip
    with pytest.raises(AttemptAbandoned):
        publish(lake)
    done = seglake.erase(str(lake), "events", [KEY], vacuum=True)
    assert (done.tables, files_with_the_key(lake)) == ({}, [])
    require_equal(str(lake), "events")


def test_erasure_names_tables_that_still_have_the_key(lake: Path) -> None:
    publish(lake)
    done = seglake.erase(str(lake), "events", [KEY])
    assert ([*done.tables], done.exit_code) == ([f"{lake}/tables/events"], 0)
    assert files_with_the_key(lake)
    done = seglake.erase(str(lake), "events", [KEY], vacuum=True)
    assert (done.tables, done.exit_code, files_with_the_key(lake)) == ({}, 0, [])
    require_equal(str(lake), "events")


def test_erasure_leaves_no_statistics_with_the_key(lake: Path) -> None:
    publish(lake, fields={"user": "string"})
    LakeMaker(lake, partitions=2).run({0: [event(900, KEY.encode(), user=KEY)]})
    publish(lake)
    assert any(name.endswith(".json") for name in files_with_the_key(lake))
    seglake.erase(str(lake), "events", [KEY], vacuum=True)
    assert files_with_the_key(lake) == []
    assert seglake.publish(str(lake), "events").status == "already done"
    LakeMaker(lake, partitions=2).run({0: [event(901)]})
    assert seglake.publish(str(lake), "events").added == 1


def test_files_of_killed_publishers_and_of_other_programs_are_erased(lake: Path) -> None:
    publish(lake)
    folder = lake / "tables/events"
    for file in [*folder.glob("*.parquet")]:
        (folder / f"part-{file.name}").write_bytes(file.read_bytes())
        name = file.name[:-37] + "0" * 32 + ".parquet"
        (folder / name).write_bytes(file.read_bytes())
        (folder / f"{name}.{'1' * 32}.tmp").write_bytes(file.read_bytes())
    seglake.erase(str(lake), "events", [KEY], vacuum=True)
    assert {path.name for path in folder.glob("*.parquet")} == {
        Path(uri).name for uri in require_equal(str(lake), "events").file_uris()
    }
    assert not [*folder.glob("*.tmp")]


def test_table_that_cannot_be_cleared_is_named(lake: Path) -> None:
    publish(lake)
    (lake / "tables/events/_delta_log" / f"{2:020}.json").write_text(
        '{"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [],'
        ' "writerFeatures": ["rowTracking"]}}'
    )
    done = seglake.erase(str(lake), "events", [KEY], vacuum=True)
    assert "rowTracking" in done.tables[f"{lake}/tables/events"]
    assert (done.uncleared, done.exit_code) == ([*done.tables], 1)
    assert seglake.open(str(lake)).topic("events").find(keys=[KEY]).read_all().num_rows == 0


# ---------------- races


def test_loser_of_a_race_decodes_nothing_again(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def other() -> None:
        LakeMaker(lake, partitions=2).run({0: [event(900)]})
        catalog = seglake.open(str(lake))._origin._catalog
        (row,) = known_tables(catalog, catalog.snapshot(), "events")
        PublishedTable(catalog.store, catalog.lake, row).fence()

    before_first(monkeypatch, PublishedTable, "commit", other)
    real = FileWriter.__call__
    with patch.object(FileWriter, "__call__", autospec=True, side_effect=real) as made:
        publish(lake)
    decoded = [call.args[2].content for call in made.call_args_list]
    assert len(decoded) == len({*decoded}) > 1
    require_equal(str(lake), "events")


def test_two_publishers_leave_one_file_for_each_segment(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before_first(monkeypatch, PublishedTable, "commit", lambda: publish(lake))
    assert publish(lake).status == "already done"
    table = require_equal(str(lake), "events")
    named = {Path(uri).name for uri in table.file_uris()}
    assert {path.name for path in (lake / "tables/events").glob("*.parquet")} == named


def test_publisher_of_an_older_version_loses(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(lake)
    LakeMaker(lake, partitions=2).run({0: [event(900)]})

    def newer() -> None:
        seglake.undo(str(lake), "events", "run 1", force=True)
        publish(lake)

    before_first(
        monkeypatch,
        DeltaLog,
        "commit",
        newer,
        when=lambda log, *_, **__: log.folder != "catalog/log",
    )
    publish(lake)
    require_equal(str(lake), "events")


# ---------------- kills, lost replies

CALLS = ("put", "put_if_absent", "writer", "delete")


def fail_at(faulty: pytest.MonkeyPatch, number: int, error: BaseException, *, after: bool) -> None:
    """Let the n-th request that writes fail, before or after its effect. The dead write no more."""
    count = itertools.count(1)

    def instead(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            now = next(count)
            if now < number or (now > number and isinstance(error, StoreError)):
                return real(*given, **named)
            if after and name != "writer":
                real(*given, **named)
            raise error

        return call

    for name in CALLS:
        faulty.setattr(_LocalStore, name, instead(name, getattr(_LocalStore, name)))


@pytest.mark.parametrize(
    "failure",  # and whether after a request; a process that dies then dies before the next one
    rest_but_today([
        (KeyboardInterrupt(), False),
        (StoreError("storage failed"), False),
        (StoreError("storage failed"), True),
    ]),
)  # fmt: skip
def test_publish_that_dies_or_fails_at_any_request_is_finished_by_the_next(
    tmp_path: Path, failure: tuple[BaseException, bool]
) -> None:
    root = tmp_path / "lake"
    maker, (error, after) = LakeMaker(root, partitions=1), failure
    maker.run({0: [event(n) for n in range(5)]})
    for at in itertools.count(1):
        maker.run({0: [event(at), event(at + 1, KEY.encode())]})
        if at == 6:
            seglake.merge(str(root), "events", everything=True)
        finished = False
        with pytest.MonkeyPatch.context() as faulty, suppress(KeyboardInterrupt, StoreError):
            fail_at(faulty, at, error, after=after)
            publish(root)
            finished = True
        if (root / "tables").exists() and [*(root / "tables/events/_delta_log").glob("*.json")]:
            require_equal(str(root), "events", newest=False)
        if finished and at > 12:
            break
        if at % 3 == 0:
            seglake.publish(str(root), "events", fields=FIELDS)
            require_equal(str(root), "events")
    assert at > 8
    seglake.vacuum(str(root), dry_run=False, grace_hours=0)
    seglake.erase(str(root), "events", [KEY], vacuum=True, grace_hours=0)
    assert files_with_the_key(root) == []
    require_equal(str(root), "events")


def test_failed_publish_leaves_no_file(lake: Path) -> None:
    LakeMaker(lake, partitions=2).run({0: [event(900, n="x")]})
    with pytest.raises(UsageError, match="cannot hold"):
        publish(lake, strict=True)
    assert not [*(lake / "tables/events").glob("*.parquet")]


def test_erasure_waits_for_a_publisher(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = list[Any]()

    def erase() -> None:
        done.append(seglake.erase(str(lake), "events", [KEY], vacuum=True, wait=True))

    eraser = Thread(target=erase)

    def begin() -> None:
        eraser.start()
        while "erase" not in {row.operation for row in seglake.open(str(lake)).maintenance()}:
            time.sleep(0.05)

    before_first(monkeypatch, PublishedTable, "commit", begin)
    publish(lake)
    eraser.join(60)
    assert (done[0].running, done[0].tables, files_with_the_key(lake)) == ([], {}, [])
    require_equal(str(lake), "events")
