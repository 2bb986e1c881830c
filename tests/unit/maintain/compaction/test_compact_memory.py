"""A compaction needs the memory of a bucket, however many keys there are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import seglake
from tests.makers.keyed_logs import TOPIC, Keyed, make_keyed_lake

FEW, MANY = 200_000, 3_000_000
ALLOWED = 48 * 2**20  # a table with 24 bytes for each key would be 96 MiB, and its copy again

COMPACT = """
import sys
from seglake.engine import LocalEngine
from seglake.catalog.table import CatalogTable
from seglake.maintain.compaction import keys
from seglake.maintain.compaction.compact import compact_topic
from seglake.maintain.compaction.passes import How
from seglake.store import open_store
keys.TABLE_ROWS = 2**16
def peak():  # of this program; ru_maxrss would count what its parent was when it forked
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
for root in sys.argv[1:]:
    table = CatalogTable.open(open_store(root))
    how = How(force=True, now_ms=2 * 10**12, bucket_rows=50_000)
    (log,) = compact_topic(table, "events", LocalEngine(), how).partitions
    print(log.records, log.superseded, peak())
"""


@pytest.mark.rest
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for the peak of its memory")
def test_memory_does_not_grow_with_the_number_of_keys(tmp_path: Path) -> None:
    """`make bench` shows it for 20 million keys and buckets of the usual size."""
    for number, count in enumerate((FEW, MANY)):
        made = Keyed(count + 1000, count, in_turn=True, segment_bytes=2**24)
        make_keyed_lake(tmp_path / str(number), made, **{"segment.bytes": 2**24})
    roots = [str(tmp_path / "0"), str(tmp_path / "0"), str(tmp_path / "1")]
    done = subprocess.run(
        [sys.executable, "-c", COMPACT, *roots], capture_output=True, text=True, check=True
    )
    told = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    assert [each[:2] for each in told] == [(FEW + 1000, 1000), (FEW, 0), (MANY + 1000, 1000)]
    (_, (_, _, before), (_, _, after)) = told
    assert after - before < ALLOWED


def test_large_logs_are_those_of_plain_numbers(tmp_path: Path) -> None:
    """The maker of large logs, by our reader."""
    made = Keyed(5000, 700, segment_bytes=2**16)
    rows = make_keyed_lake(tmp_path, made)
    assert sum(row.record_count for row in rows) == made.records
    assert len(rows) > 1
    report = seglake.compact(str(tmp_path), TOPIC)
    left = seglake.open(str(tmp_path)).topic(TOPIC).read(0, 0, max_records=10**4)
    assert left["offset"].to_pylist() == made.last().tolist()
    assert report.partitions[0].superseded == made.records - len(left)
