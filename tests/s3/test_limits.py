"""What data may not do: choose a path, fill the memory, change the rights of files."""

from __future__ import annotations

import gzip
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.raw_events import Line, T, ingest, pipeline_of, write_file
from tests.s3.proxy import Proxy
from tests.s3.server import Server

import seglake
from seglake.catalog.table import CatalogTable
from seglake.errors import SeglakeError, UsageError
from seglake.store import open_store

CHUNK_BYTES = 2**20

OUTSIDE = ["..", "../x", "a/../..", "/etc", "a/b", "", ".", "a\0b", "%2e%2e/x", "..\\x"]


@pytest.mark.parametrize("name", OUTSIDE)
def test_rows_whose_path_leaves_the_root_are_not_committed(
    place: str, proxy: Proxy, tmp_path: Path, name: str
) -> None:
    ingest(pipeline_of(place, write_file(tmp_path / "a.jsonl", [Line(T)])))
    catalog = CatalogTable.open(place, {"endpoint": proxy.endpoint})
    base = catalog.snapshot()
    segment = catalog.segments(base, "events")[0]
    again = {"base_offset": segment.end_offset, "end_offset": segment.end_offset + 1}
    rows = [
        replace(segment, **again, topic=name),
        replace(segment, **again, attempt_id=name),
        replace(segment, **again, index_attempt_id=name or "x"),
        replace(segment, **again, attempt_id=segment.attempt_id.upper()),
    ]
    proxy.seen.clear()
    for row in rows:
        with pytest.raises(UsageError):
            catalog.commit([row], topic=row.topic, base=base, attempt_id=segment.attempt_id)
    assert not [request for request in proxy.seen if request.method != "GET"]
    with pytest.raises(UsageError):
        catalog.commit([replace(segment, **again)], topic="events", base=base, attempt_id=name)
    assert catalog.snapshot().version == base.version


def forge(server: Server, root: str, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the `add` action of the first segment in the newest entry of the catalog's log."""
    log = server.folder / root.removeprefix("s3://") / "catalog/log/_delta_log"
    entry = max(log.glob("*.json"))
    actions = [json.loads(line) for line in entry.read_text().splitlines()]
    for action in actions:
        if "kind=segment" in action.get("add", {}).get("path", ""):
            change(action["add"])
    content = "\n".join(map(json.dumps, actions))
    open_store(root).put(f"catalog/log/_delta_log/{entry.name}", content.encode())


FORGED: dict[str, Callable[[dict[str, Any]], None]] = {
    "path up": lambda add: add.update(path="../../../outside.parquet"),
    "path up, encoded": lambda add: add.update(path="%2E%2E/%2E%2E/%2E%2E/outside.parquet"),
    "path of the system": lambda add: add.update(path="/etc/hostname"),
    "another bucket": lambda add: add.update(path="s3://other/outside.parquet"),
    "a file": lambda add: add.update(path="file:///etc/hostname"),
    "topic up": lambda add: add["partitionValues"].update(topic="../../outside"),
}


@pytest.mark.parametrize("forged", FORGED)
def test_a_forged_catalog_leads_nowhere(
    place: str, server: Server, proxy: Proxy, tmp_path: Path, forged: str
) -> None:
    root = f"{place}/lake"
    ingest(pipeline_of(root, write_file(tmp_path / "a.jsonl", [Line(T)])))
    forge(server, root, FORGED[forged])
    proxy.seen.clear()
    with pytest.raises(SeglakeError):
        lake = seglake.open(root, storage_options={"endpoint": proxy.endpoint})
        for name in {*lake.topics(), "events", "../../outside"}:
            list(lake.topic(name).read_range(0, 2 * T))
            raise AssertionError(f"{name} was read")
    inside = urlsplit(root).netloc + urlsplit(root).path
    listed = f"prefix={urlsplit(root).path[1:]}/"
    for request in proxy.seen:
        assert request.path.startswith(f"/{inside}/") or listed in request.path, request
        assert ".." not in request.path


BOMBS = {  # a gigabyte of zeros in a megabyte of gzip, and what has lines
    "one line": gzip.compress(bytes(2**26)) * 16,
    "empty lines": gzip.compress(b"\n" * 2**26) * 4,
}
MEASURED = """
import re, sys
from pathlib import Path
from tests.raw_events import ingest, pipeline_of
status = Path("/proc/self/status")
peak = lambda: int(re.search(r"VmHWM:\\s+(\\d+) kB", status.read_text())[1]) * 1024
root, small, bomb = sys.argv[1:4]
settings = {"task": {"chunk_bytes": int(sys.argv[4])}, "topic": {"compression.type": "zstd"}}
ingest(pipeline_of(root, small, **settings), "small")
before = peak()
report = ingest(pipeline_of(root, bomb, **settings), "bomb")
print(peak() - before, report.records, report.quarantined)
"""


@pytest.mark.parametrize("kind", ["one line", "empty lines"])
def test_a_decompression_bomb_is_read_in_bounded_memory(
    place: str, server: Server, tmp_path: Path, kind: str
) -> None:
    small = write_file(tmp_path / "small.jsonl.gz", [Line(T + n, broken="{") for n in range(100)])
    open_store(place).put("in/bomb.gz", BOMBS[kind])
    arguments = [f"{place}/lake", str(small), f"{place}/in/bomb.gz", str(CHUNK_BYTES)]
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, *arguments],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    grown, records, quarantined = map(int, done.stdout.split())
    print(kind, grown >> 20, "MiB")
    assert (records, quarantined) == (0, int(kind == "one line"))
    assert grown < 64 * 2**20


def test_files_have_the_rights_of_the_umask(tmp_path: Path) -> None:
    """A whole lake on a local disk, Delta's own files included."""
    made = [Line(T + n, broken=None if n % 3 else "{") for n in range(30)]
    path = write_file(tmp_path / "a.jsonl", made)
    before = os.umask(0o027)
    try:
        ingest(pipeline_of(tmp_path / "lake", path))
    finally:
        os.umask(before)
    found = [(p.is_dir(), stat.S_IMODE(p.stat().st_mode)) for p in (tmp_path / "lake").rglob("*")]
    assert len(found) > 20
    assert set(found) == {(True, 0o750), (False, 0o640)}
