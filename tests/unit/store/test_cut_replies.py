"""Replies of an object store that end early: asked for again, and no sign of damage."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import seglake
from seglake.errors import StoreError
from seglake.maintain.health.verify import verify
from seglake.store import open_store
from tests.harness.object_server import Asked, Choice, Cut, ObjectServer, object_server
from tests.harness.tiers import rest_but, rest_but_today
from tests.makers.lakes import Event, LakeMaker, Shape, T

RUNS = 27  # so that there is a checkpoint, and commits after it


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    maker = LakeMaker(tmp_path_factory.mktemp("lake"))
    for _ in range(RUNS):
        maker.run({0: [Event(T, b"k", b"v")]}, Shape())
    return maker.root


@pytest.fixture
def server(lake: Path) -> Iterator[ObjectServer]:
    with object_server(lake) as running:
        yield running


def first(times: int, of: str) -> Choice:
    """Cut the first so many listings, or replies whose object has this in its key."""
    left = [times]

    def choice(asked: Asked) -> Cut | None:
        hit = left[0] > 0 and (asked.kind == of or (asked.kind == "GET" and of in asked.key))
        left[0] -= hit
        return Cut.BODY if hit else None

    return choice


KINDS = ["LIST", "_last_checkpoint", ".checkpoint.parquet", "27.json", "kind=segment"]


@pytest.mark.parametrize("what", KINDS)
def test_a_cut_reply_ends_no_command(server: ObjectServer, what: str) -> None:
    server.choice = first(2, what)
    lake = seglake.open(server.root, storage_options=server.options)
    assert lake.topic("events").end_offsets() == {0: RUNS}
    assert seglake.open(server.root, 5, server.options).version == 5


def test_a_listing_goes_on_behind_what_it_had(server: ObjectServer) -> None:
    store = open_store(server.root, server.options)
    sound = list(store.list("topics"))
    assert len(sound) == 4 * RUNS
    server.choice = first(3, "LIST")
    assert list(store.list("topics")) == sound


def test_a_listing_that_never_ends_is_an_error(
    server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("seglake.store.interface.sleep", pauses.append)
    server.choice = first(1000, "LIST")
    store = open_store(server.root, server.options)
    with pytest.raises(StoreError, match=f"{server.root}/topics: "):
        list(store.list("topics"))
    assert 1 < sum(pauses) < 10


@pytest.mark.parametrize("what", rest_but_today(KINDS))
def test_verify_finds_no_damage_in_a_cut_reply(server: ObjectServer, what: str) -> None:
    server.choice = first(3, what)
    assert verify(server.root, storage_options=server.options).findings == []


@pytest.mark.parametrize("what", rest_but(["LIST", "kind=segment"], "LIST"))
def test_verify_tells_what_it_could_not_read_from_damage(
    server: ObjectServer, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr("seglake.store.interface.sleep", lambda _: None)
    monkeypatch.setitem(seglake.store.object_store._RETRIES, "max_retries", 1)
    server.choice = first(10**6, what)
    found = verify(server.root, storage_options=server.options).findings
    assert {finding.kind for finding in found} == {"unreadable"}
