"""A published table on S3: whatever becomes of the requests, it equals the log."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import seglake
from seglake.errors import CommitConflict, StoreError
from seglake.maintain.publish import publish as publishing
from tests.harness.observed import copy_lake
from tests.makers.lakes import Event, LakeMaker
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


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.RESET, Fault.BUSY_AFTER])
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


def test_publish_of_one_run_makes_ten_requests_and_reads_no_other_file(
    place: str, tmp_path: Path, proxy: Proxy, through: Callable[..., None]
) -> None:
    maker = LakeMaker(tmp_path / "lake")
    for number in range(9):  # the last checkpoint of the table is four commits old
        maker.run({0: [Event(number, b"k", b"{}")]})
        if number < 8:
            seglake.publish(str(tmp_path / "lake"), "events", fields=FIELDS)
    copy_lake(str(tmp_path / "lake"), place)
    through(lambda: seglake.publish(place, "events"))
    asked = [each for each in proxy.seen if "/tables/" in each.path]
    files = {each.path for each in asked if each.path.endswith(".parquet")}
    assert len({path for path in files if "checkpoint" not in path}) == 1
    assert len(asked) <= 10
    require_equal(place, "events")
