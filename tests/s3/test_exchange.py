"""Import from an S3 server and export to it: the folders of a broker on object storage."""

from pathlib import Path

import pytest

import seglake
from seglake.errors import InputError, UsageError
from seglake.kafka.attach import attach_logs
from seglake.kafka.exporting import export_logs
from seglake.kafka.importing import import_logs
from seglake.maintain.health.verify import verify
from seglake.maintain.merge import merge
from seglake.maintain.vacuum import vacuum
from seglake.store import open_store
from tests.harness.observed import copy_lake
from tests.judges.oracle import as_written
from tests.makers.broker_folders import BrokerLog, Step, note
from tests.makers.lakes import Event, Shape, Written
from tests.makers.strategies import T
from tests.makers.tiered_bucket import Tiering, tier


def read(lake: str) -> list[Written]:
    log = seglake.open(lake).topic("events")
    return as_written(log.plan_offsets({0: (0, log.end_offsets()[0])}).execute().read_all())


@pytest.mark.rest
def test_in_out_and_in_again(place: str, tmp_path: Path) -> None:
    rows = tuple(Event(T + n, b"k", b"v" * 50) for n in range(40))
    steps = [Step(-1, rows), Step(1, rows, rolls=True), Step(1, commits=False), Step(-1, rows)]
    log = BrokerLog(steps, Shape("zstd"))
    log.write(tmp_path / "events-0", epoch=2)
    note(tmp_path, "replication-offset-checkpoint", {"events-0": log.end})
    source = f"{place}/broker"
    copy_lake(str(tmp_path), source)
    with pytest.raises(InputError, match="is not the log of a broker"):
        import_logs(f"{place}/lake", [f"{place}/nothing"])
    (report,) = import_logs(f"{place}/lake", [source])
    assert (report.records, report.notes) == (80, [])
    assert read(f"{place}/lake") == log.committed()[0]
    (again,) = import_logs(f"{place}/lake", [f"{source}/events-0"])
    assert again.version == -1
    export_logs(f"{place}/lake", "events", f"{place}/out")
    with pytest.raises(UsageError, match="is not empty"):
        export_logs(f"{place}/lake", "events", f"{place}/out")
    import_logs(f"{place}/back", [f"{place}/out"])
    assert read(f"{place}/back") == log.committed()[0]
    assert [verify(f"{place}/{name}", deep=True).findings for name in ("lake", "back")] == [[], []]


@pytest.mark.parametrize("compressed", [False, True])
def test_a_bucket_is_read_in_place(place: str, tmp_path: Path, *, compressed: bool) -> None:
    rows = tuple(Event(T + n, b"k", b"v" * 50) for n in range(40))
    log = BrokerLog([Step(-1, rows), Step(-1, rows, rolls=True)], Shape("lz4"))
    log.write(tmp_path / "events-0")
    tier(tmp_path / "events-0", tmp_path / "tier", Tiering("t/", 500, compressed))
    source, store = f"{place}/tier", open_store(f"{place}/tier")
    copy_lake(str(tmp_path / "tier"), source)
    before = {each.key: (each.size, each.modified_ms) for each in store.list()}
    with pytest.raises(InputError, match=r"there is no object below.*key\.prefix"):
        attach_logs(f"{place}/attached", [f"{place}/teir"])
    (report,) = attach_logs(f"{place}/by-prefix", [f"{source}/t/ev"])
    assert report.segments == 2
    for root in (f"{place}/attached", str(tmp_path / "attached")):
        (report,) = attach_logs(root, [source])
        assert (report.segments, report.records) == (2, 80)
        (again,) = attach_logs(root, [f"{source}/t"])
        assert again.version == -1
        merge(root, "events", everything=True)
        vacuum(root, dry_run=False, grace_hours=0, retention_hours=0)
        assert read(root) == log.committed()[0]
        assert verify(root, deep=True).findings == []
    assert {each.key: (each.size, each.modified_ms) for each in store.list()} == before
