"""What must hold of a lake after another program committed to its catalog."""

from pathlib import Path

import pytest

import seglake
from seglake.catalog.schema import Row
from seglake.errors import CommitConflict, CorruptData
from seglake.layout import new_attempt
from seglake.maintain.health.reindex import reindex
from seglake.maintain.health.repair import rebuild_catalog
from seglake.maintain.health.verify import verify
from seglake.maintain.vacuum import vacuum
from tests.makers.catalog_rows import commit_rows, run
from tests.makers.lakes import Event, LakeMaker, open_catalog

TABLE = "catalog/log"


def made_lake(folder: Path) -> LakeMaker:
    """A lake of two runs, whose handle stays open while others commit."""
    maker = LakeMaker(folder / "lake", partitions=2)
    maker.run({0: [Event(1000), Event(1001)], 1: [Event(5)]})
    maker.run({0: [Event(2000)]})
    maker.catalog.snapshot()  # the handle knows this version
    return maker


def table_of(maker: LakeMaker) -> str:
    """The path of the catalog table."""
    return str(maker.root / TABLE)


def commits(maker: LakeMaker) -> list[str]:
    """The names of the commits that there are."""
    return sorted(path.name for path in (maker.root / TABLE / "_delta_log").glob("*.json"))


def assert_digested(maker: LakeMaker, versions: int) -> None:
    """Others made some commits, and everybody goes on: open handles, readers, writers."""
    seen = maker.catalog.refresh(maker.catalog.snapshot(maker.versions[-1]))
    newest = open_catalog(str(maker.root)).snapshot()
    assert seen.version == newest.version == maker.versions[-1] + versions
    assert seen.files == newest.files
    _assert_records(maker)
    maker.run({0: [Event(3000)], 1: [Event(4000)]})
    reindex(str(maker.root), maker.topic)  # replaces rows that others may have moved
    _assert_records(maker)
    assert verify(str(maker.root)).findings == []


def assert_refused(maker: LakeMaker, problem: str) -> None:
    """Nobody reads, writes or deletes any more; `verify` says why; a repair ends it."""
    base = maker.catalog.snapshot(maker.versions[-1])
    root, there, kept = str(maker.root), commits(maker), sorted(maker.root.glob("topics/*/*/*"))
    for refused in (
        lambda: seglake.open(root),
        lambda: open_catalog(root),
        lambda: maker.catalog.refresh(base),
        maker.catalog.snapshot,
        lambda: vacuum(root, dry_run=False, grace_hours=0, retention_hours=0),
        lambda: reindex(root, maker.topic),
    ):
        with pytest.raises(CorruptData, match=f"{problem}.*`seglake repair {root} --catalog`"):
            refused()
    attempt = new_attempt()
    rows: list[Row] = [run("late", attempt, maker.topic)]
    with pytest.raises((CorruptData, CommitConflict)):
        commit_rows(maker.catalog, rows, base=base, attempt_id=attempt)
    (maker.root / f"attempts/{attempt}/manifest.json").unlink()
    assert (commits(maker), sorted(maker.root.glob("topics/*/*/*"))) == (there, kept)
    (finding,) = verify(root).findings
    assert finding.kind == "catalog"
    assert_repaired(maker)


def assert_repaired(maker: LakeMaker) -> None:
    """The catalog is rebuilt without force, and the lake is as if nothing had happened."""
    rebuild_catalog(str(maker.root), dry_run=False)
    maker.catalog = open_catalog(str(maker.root))
    _assert_records(maker)
    maker.run({0: [Event(3000)], 1: [Event(4000)]})
    _assert_records(maker)
    assert verify(str(maker.root)).findings == []


def _assert_records(maker: LakeMaker) -> None:
    log = seglake.open(str(maker.root)).topic(maker.topic)
    found = log.plan_offsets(dict.fromkeys(log.partitions(), (0, 2**62))).execute().read_all()
    written = [(record.partition, record.offset) for record in maker.records()]
    assert [
        *zip(found["partition"].to_pylist(), found["offset"].to_pylist(), strict=True)
    ] == written
