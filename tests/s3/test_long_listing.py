"""A real server lists the same objects, whether one stream asks or several do."""

from itertools import pairwise

import pytest

from seglake.store import object_store, open_store
from tests.harness.s3_server import Server

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
