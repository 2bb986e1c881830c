"""What data may not do: choose a path, fill the memory."""

import gzip
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from seglake.catalog.topic_change import Change
from seglake.errors import SeglakeError, UsageError
from seglake.store import object_store, open_store
from tests.harness.bounded import MIB, measure
from tests.harness.s3_server import BUCKET, Server
from tests.harness.tiers import rest_but
from tests.makers.catalog_rows import commit_rows
from tests.makers.forged import FORGED
from tests.makers.lakes import open_catalog
from tests.makers.raw_events import Line, T, ingest, pipeline_of, write_file
from tests.s3.proxy import Proxy

OUTSIDE = ["..", "../x", "a/../..", "/etc", "a/b", "", ".", "a\0b", "%2e%2e/x", "..\\x"]


@pytest.mark.parametrize("name", OUTSIDE)
def test_rows_whose_path_leaves_the_root_are_not_committed(
    place: str, proxy: Proxy, tmp_path: Path, name: str
) -> None:
    ingest(pipeline_of(place, write_file(tmp_path / "a.jsonl", [Line(T)])))
    catalog = open_catalog(place, {"endpoint": proxy.endpoint})
    base = catalog.snapshot()
    segment = catalog.rows.segments(base, "events")[0]
    again: dict[str, Any] = {
        "base_offset": segment.end_offset,
        "end_offset": segment.end_offset + 1,
    }
    rows = [
        replace(segment, **again, topic=name),
        replace(segment, **again, attempt_id=name),
        replace(segment, **again, index_attempt_id=name or "x"),
        replace(segment, **again, attempt_id=segment.attempt_id.upper()),
    ]
    proxy.seen.clear()
    for row in rows:
        with pytest.raises(UsageError):
            commit_rows(catalog, [row], base=base, attempt_id=segment.attempt_id)
    assert not [request for request in proxy.seen if request.method != "GET"]
    change = Change([replace(segment, **again)])
    with pytest.raises(UsageError):
        catalog.commits.make(change, topic="events", base=base, attempt_id=name)
    assert catalog.snapshot().version == base.version


@pytest.mark.parametrize("forged", FORGED)
def test_a_forged_catalog_leads_nowhere(
    place: str, server: Server, proxy: Proxy, tmp_path: Path, forged: str
) -> None:
    ingest(pipeline_of(f"{place}/lake", write_file(tmp_path / "a.jsonl", [Line(T)])))
    inside, forgery = f"{place}/lake".removeprefix("s3:/"), FORGED[forged]
    entry = forgery.of(server.folder / f"{inside[1:]}/catalog/log/_delta_log")
    open_store(f"{place}/lake").put(f"catalog/log/_delta_log/{1:020}.json", entry)
    proxy.seen.clear()
    with pytest.raises(SeglakeError):
        forgery.read(f"{place}/lake", {"endpoint": proxy.endpoint})
    for request in proxy.seen:
        listed = f"prefix={inside.removeprefix(f'/{BUCKET}/')}/" in request.path
        assert listed or request.path.startswith(f"{inside}/"), request
        assert ".." not in request.path


BOMBS = {"one line": (b"\0", 16), "empty lines": (b"\n", 4)}  # a byte, and times 64 MiB of it


@pytest.mark.parametrize("kind", rest_but(BOMBS))
def test_a_decompression_bomb_is_read_in_bounded_memory(
    place: str, server: Server, tmp_path: Path, kind: str
) -> None:
    lines = [Line(T), Line(T, broken="{")]
    small = write_file(tmp_path / "small.jsonl.gz", lines)
    record = write_file(tmp_path / "record.jsonl.gz", lines[:1]).read_bytes()
    byte, times = BOMBS[kind]
    open_store(place).put("in/bomb.gz", record + gzip.compress(byte * 2**26) * times)
    found = measure(f"{place}/lake", small, f"{place}/in/bomb.gz")
    assert found[1:] == (1, int(kind == "one line"), "")
    assert found.grown_bytes < 64 * MIB


# A real server lists the same objects, whether one stream asks or several do.

COUNT = 4000


def test_parts_of_a_long_listing_are_the_whole(
    server: Server, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = server.folder / place.removeprefix("s3://") / "in"
    for number in range(COUNT):
        path = folder / f"2026-{number // 2500}" / f"é{number // 100:02}" / f"{number}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    alone = list(open_store(place).list("in"))
    assert len(alone) == COUNT
    assert all(one.key < other.key for one, other in pairwise(alone))
    monkeypatch.setattr(object_store, "_ALONE", 1000)
    monkeypatch.setattr(object_store, "_AT_ONCE", 1000)
    assert list(open_store(place).list("in")) == alone
    below = [each._replace(key=each.key.removeprefix("in/")) for each in alone]
    assert list(open_store(f"{place}/in").list()) == below
