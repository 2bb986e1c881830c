"""A compaction needs the memory of a bucket, however many keys there are."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from seglake.engine import Item, LocalEngine, Result, Task
from seglake.maintain.compaction import passes
from seglake.maintain.compaction import passes as keys
from seglake.maintain.compaction.compact import compact_topic
from seglake.maintain.compaction.passes import FindKeys, FindSurvivors, PassOutput
from seglake.write.spool.spool import unpack_rows
from tests.makers.keyed_logs import TOPIC, Keyed, make_keyed_lake
from tests.makers.lakes import open_catalog

FEW, MANY = 200_000, 3_000_000
ALLOWED = 48 * 2**20  # a table with 24 bytes for each key would be 96 MiB, and its copy again

COMPACT = """
import sys
from seglake.engine import LocalEngine
from seglake.catalog.table import CatalogTable
from seglake.maintain.compaction import passes as keys
from seglake.maintain.compaction.compact import compact_topic
from seglake.store import open_store
keys.TABLE_ROWS, keys.BUCKET_ROWS = 2**16, 50_000
def peak():  # of this program; ru_maxrss would count what its parent was when it forked
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
for root in sys.argv[1:]:
    table = CatalogTable.open(open_store(root))
    done = compact_topic(table, "events", LocalEngine(), force=True, now_ms=2 * 10**12)
    (log,) = done.partitions
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


class _Noting(LocalEngine):
    """Notes options many blobs the tasks tell of, and how many tasks there are, by kind of task."""

    cores = 4

    def __init__(self) -> None:
        self.told: dict[type, list[int]] = {}

    def map(self, task: Task[Item, Result], items: Sequence[Item]) -> list[Result]:
        results = super().map(task, items)
        if isinstance(task, FindKeys | FindSurvivors):
            rows = [
                len(unpack_rows([result.packed])) for result in cast("list[PassOutput]", results)
            ]
            self.told.setdefault(type(task), []).extend(rows)
        return results


def test_blobs_do_not_grow_with_the_square_of_the_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table that is full does not make blobs; a bucket has one of each task, a segment two."""
    monkeypatch.setattr(keys, "TABLE_ROWS", 2**8)
    monkeypatch.setattr(keys, "BUCKET_ROWS", 1_000)
    made = Keyed(20_000, 20_000, in_turn=True, segment_bytes=2**17)
    segments = len(make_keyed_lake(tmp_path, made, **{"segment.bytes": 2**17}))
    engine, now_ms = _Noting(), 2 * 10**12
    compact_topic(open_catalog(str(tmp_path)), TOPIC, engine, force=True, now_ms=now_ms)
    found, stays = engine.told[FindKeys], engine.told[FindSurvivors]
    assert max(found) == made.records // 1_000
    assert segments > 2
    assert max(stays) <= 2 * segments
    monkeypatch.setattr(passes, "_MOST_BLOBS", 24)
    engine = _Noting()
    compact_topic(open_catalog(str(tmp_path)), TOPIC, engine, force=True, now_ms=now_ms + 1)
    assert sum(engine.told[FindKeys]) < sum(found)
    assert len(engine.told[FindSurvivors]) < len(stays)
