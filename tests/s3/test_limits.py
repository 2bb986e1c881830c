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

import pytest

import seglake
from seglake.catalog.table import CatalogTable
from seglake.errors import SeglakeError, UsageError
from seglake.store import open_store
from tests.raw_events import Line, T, ingest, pipeline_of, write_file
from tests.s3.proxy import Proxy
from tests.s3.server import BUCKET, Server

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


def forge(log: Path, kind: str, change: Callable[[dict[str, Any]], None]) -> bytes:
    """The newest entry of a catalog's log with other `add` actions for rows of this kind."""
    actions = [json.loads(line) for line in max(log.glob("*.json")).read_text().splitlines()]
    for action in actions:
        if f"kind={kind}" in action.get("add", {}).get("path", ""):
            change(action["add"])
    return "\n".join(map(json.dumps, actions)).encode()


FORGED: dict[str, tuple[str, str, Callable[[dict[str, Any]], None]]] = {  # topic, kind, change
    "path up": ("events", "segment", lambda add: add.update(path="../../../outside.parquet")),
    "path up, encoded": (
        "events", "segment", lambda add: add.update(path="%2E%2E/%2E%2E/%2E%2E/outside.parquet")
    ),
    "path of the system": ("events", "segment", lambda add: add.update(path="/etc/hostname")),
    "another bucket": ("events", "segment", lambda add: add.update(path="s3://other/x.parquet")),
    "a file": ("events", "segment", lambda add: add.update(path="file:///etc/hostname")),
    "topic up": ("../../x", "", lambda add: add["partitionValues"].update(topic="../../x")),
}  # fmt: skip


def read_all(root: str, topic: str, options: dict[str, str]) -> None:
    lake = seglake.open(root, storage_options=options)
    assert lake.topics() == [topic]
    assert list(lake.topic(topic).read_range(0, 2 * T))


@pytest.mark.parametrize("forged", FORGED)
def test_a_forged_catalog_leads_nowhere(
    place: str, server: Server, proxy: Proxy, tmp_path: Path, forged: str
) -> None:
    ingest(pipeline_of(f"{place}/lake", write_file(tmp_path / "a.jsonl", [Line(T)])))
    inside, (topic, *change) = f"{place}/lake".removeprefix("s3:/"), FORGED[forged]
    entry = forge(server.folder / f"{inside[1:]}/catalog/log/_delta_log", *change)
    open_store(f"{place}/lake").put(f"catalog/log/_delta_log/{1:020}.json", entry)
    proxy.seen.clear()
    with pytest.raises(SeglakeError):
        read_all(f"{place}/lake", topic, {"endpoint": proxy.endpoint})
    for request in proxy.seen:
        listed = f"prefix={inside.removeprefix(f'/{BUCKET}/')}/" in request.path
        assert listed or request.path.startswith(f"{inside}/"), request
        assert ".." not in request.path


@pytest.mark.parametrize("forged", FORGED)
def test_a_forged_catalog_on_a_disk_leads_nowhere(tmp_path: Path, forged: str) -> None:
    """The file outside is there, and would do."""
    root, (topic, *change) = tmp_path / "lake", FORGED[forged]
    ingest(pipeline_of(root, write_file(tmp_path / "a.jsonl", [Line(T)])))
    segment = next(root.glob("catalog/log/kind=segment/*/*.parquet"))
    (tmp_path / "outside.parquet").write_bytes(segment.read_bytes())
    entry = forge(root / "catalog/log/_delta_log", *change)
    (root / f"catalog/log/_delta_log/{1:020}.json").write_bytes(entry)
    with pytest.raises(SeglakeError):
        read_all(str(root), topic, {})


BOMBS = {"one line": (b"\0", 16), "empty lines": (b"\n", 4)}  # a byte, and times 64 MiB of it
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


@pytest.mark.parametrize("kind", BOMBS)
def test_a_decompression_bomb_is_read_in_bounded_memory(
    place: str, server: Server, tmp_path: Path, kind: str
) -> None:
    small = write_file(tmp_path / "small.jsonl.gz", [Line(T + n, broken="{") for n in range(100)])
    byte, times = BOMBS[kind]
    open_store(place).put("in/bomb.gz", gzip.compress(byte * 2**26) * times)
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
    assert (records, quarantined) == (0, int(kind == "one line"))
    assert grown < 64 * CHUNK_BYTES


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
