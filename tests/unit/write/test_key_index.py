"""What ingest writes as key indexes is what a re-index makes of the logs."""

from pathlib import Path
from typing import Any

import pytest

import seglake
from seglake.maintain.health.reindex import reindex
from seglake.maintain.health.verify import verify
from tests.makers.raw_events import Line, T, ingest, pipeline_of, segments_of, write_files

KEYS = [None, "", "a", "b", "käse", "x" * 70, "y" * 5_000, *(f"user-{n}" for n in range(30))]
SMALL = {"batch.size": 400, "segment.bytes": 9_000, "index.interval.bytes": 500}


def _files(root: Path) -> dict[str, bytes]:
    rows = segments_of(root)
    assert all(row.keyindex_bytes for row in rows)
    return {
        f"{row.partition}-{row.base_offset}": (root / row.key("keyindex")).read_bytes()
        for row in rows
    }


OF_KEYS, OF_ALL = {"index.keys": True}, {"index.keys": True, "index.fields": ["k", "ts"]}


@pytest.mark.parametrize("order", ["time", "arrival"])
@pytest.mark.parametrize(
    ("codec", "of"),
    [("none", OF_KEYS), ("gzip", OF_KEYS), ("zstd", OF_KEYS), ("lz4", OF_KEYS), ("zstd", OF_ALL)],
)
def test_ingest_writes_what_a_reindex_makes(
    tmp_path: Path, order: str, codec: str, of: dict[str, Any]
) -> None:
    root = tmp_path / "lake"
    topic = {**of, "compression.type": codec, **SMALL}
    for run in range(2):
        content = [Line(T + n * 7 % 60, KEYS[(n * n + run) % len(KEYS)]) for n in range(150)]
        paths = write_files(tmp_path / f"in-{run}", [(content, "")])
        ingest(pipeline_of(root, paths, topic=topic, order=order), str(run))
    written, log = _files(root), seglake.open(str(root)).topic("events")
    records = log.read_range(0, 2**62).read_all().to_pylist()
    assert len(records) == 300
    for key in {record["key"] for record in records} - {None}:
        own = [r["offset"] for r in records if r["key"] == key]
        assert log.find(key).read_all()["offset"].to_pylist() == own
    for where in ({"k": "a"}, {"ts": T + 7}) if of is OF_ALL else ():
        assert len(log.find(where=where).read_all()) > 0
        assert log.plan_find(where=where).by_index > 0 == log.plan_find(where=where).scanned
    assert log.plan_find("a").by_index > 0 == log.plan_find("a").scanned
    reindex(str(root), "events")
    assert _files(root) == written
    assert verify(str(root), deep=True).findings == []


def test_without_the_setting_there_is_no_trace_of_it(tmp_path: Path) -> None:
    paths = write_files(tmp_path / "in", [([Line(T, "a")], "")])
    ingest(pipeline_of(tmp_path / "lake", paths))
    files = [path for path in (tmp_path / "lake").rglob("*") if path.is_file()]
    assert not [path for path in files if path.suffix == ".keyindex"]
    logs = [path for path in files if "catalog" not in path.parts]  # its schema has the column
    assert not [path for path in logs if b"keyindex" in path.read_bytes()]
