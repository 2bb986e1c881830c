"""A published table on S3: whatever becomes of the requests, it equals the log."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

import seglake
from seglake.catalog.published import NewFile, PublishedTable, columns_digest, wanted_segments
from seglake.catalog.schema import TableRow
from seglake.errors import CommitConflict, StoreError
from seglake.layout import new_attempt
from seglake.maintain.publish import publish as publishing
from seglake.maintain.publish.columns import TableColumns
from tests.harness.observed import copy_lake
from tests.harness.tiers import rest_but_today
from tests.makers.lakes import Event, LakeMaker, open_catalog
from tests.makers.many_segments import TOPIC, many_segments
from tests.makers.published import FIELDS, require_equal
from tests.s3.proxy import Fault, Proxy, nth

WRITES = "PUT|POST|DELETE"


@pytest.fixture
def lake(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A lake with two runs on S3."""
    monkeypatch.setattr(publishing, "PAUSE_S", 0.01)
    maker = LakeMaker(tmp_path / "lake", partitions=2)
    for run in range(2):
        events = [Event(n, b"k%d" % (n % 3), b'{"n": %d, "user": "u"}' % n) for n in range(20)]
        maker.run({run: events, 1 - run: events[:7]})
    copy_lake(str(tmp_path / "lake"), place)
    return place


@pytest.fixture
def through(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A function that calls another one through the proxy, and ignores failures of storage."""

    def call(act: Callable[[], object]) -> None:
        with monkeypatch.context() as patch:
            patch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
            try:
                act()
            except (StoreError, CommitConflict):
                assert proxy.faults()

    return call


def test_table_on_s3_equals_the_log(lake: str) -> None:
    seglake.publish(lake, "events", fields=FIELDS)
    require_equal(lake, "events")
    seglake.merge(lake, "events", everything=True)
    assert not seglake.publish(lake, "events").data_change
    done = seglake.erase(lake, "events", ["k1"], vacuum=True)
    assert done.tables == {}
    assert seglake.publish(lake, "events").status == "already done"
    require_equal(lake, "events")


@pytest.mark.parametrize("fault", rest_but_today([Fault.LOST, Fault.RESET, Fault.BUSY_AFTER]))
def test_publish_survives_a_fault_at_each_write(
    lake: str, proxy: Proxy, through: Callable[..., None], fault: Fault
) -> None:
    for number in range(1, 9):
        proxy.seen.clear()
        proxy.choice = nth(fault, number, WRITES, times=2)
        through(lambda: seglake.publish(lake, "events", fields=FIELDS, replace=True))
        if proxy.faults():
            require_equal(lake, "events", newest=False)
    proxy.choice = nth(fault, 0)
    seglake.publish(lake, "events", fields=FIELDS)
    require_equal(lake, "events")


def test_publish_of_one_run_reads_no_other_file_and_its_requests_do_not_depend_on_files(
    place: str, tmp_path: Path, proxy: Proxy, through: Callable[..., None]
) -> None:
    counts = []
    for files in (200, 10_000):
        root, target = tmp_path / str(files), f"{place}/{files}"
        many_segments(str(root), files)
        _publish_without_files(str(root))
        LakeMaker(root, TOPIC, 100).run({7: [Event(1, b"k", b"{}")]})
        copy_lake(str(root), target)
        proxy.seen.clear()
        through(lambda target=target: seglake.publish(target, TOPIC))
        asked = [each.path for each in proxy.seen if "/tables/" in each.path]
        data = {path for path in asked if path.endswith(".parquet") and "checkpoint" not in path}
        logs = {each.path for each in proxy.seen if each.path.endswith(".log")}
        assert (len(data), len(logs)) == (1, 1)
        assert len(asked) <= 10
        counts.append((len(asked), len(proxy.seen)))
        status = seglake.open(target).table(TOPIC)
        assert (status.version, status.segments_behind, status.files_ahead) == (9, 0, 0)
    assert counts[0] == counts[1]


def _publish_without_files(root: str) -> None:
    """Commit a table with a file for each segment. Its checkpoint is three commits old."""
    catalog = open_catalog(root)
    columns = TableColumns({})
    row = TableRow(topic=TOPIC, path=f"tables/{TOPIC}", sequence=0, settings=columns.dump())
    publishing._register(catalog, row)
    snapshot = catalog.snapshot()
    table = PublishedTable(catalog.store, catalog.lake, row)
    table.create(columns.schema)
    wanted = [*wanted_segments(snapshot, TOPIC, columns_digest(row, snapshot))]
    for some in (wanted[7:], *([each] for each in wanted[:7])):
        base = table.read()
        assert base is not None
        new = [NewFile(each.path(new_attempt()), 9, 1000, {}, Counter()) for each in some]
        table.commit(base, columns.schema, snapshot.version, new, [])
