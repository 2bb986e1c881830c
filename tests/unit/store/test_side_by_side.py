"""Long listings of an object store are what short ones are, and their parts run side by side."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglake.store import object_store, open_store
from seglake.store.interface import Listed
from tests.harness.object_server import Cut, ObjectServer, object_server

NAMES = st.lists(st.sampled_from(["a", "b", "b-", "b0", "é"]), min_size=1, max_size=4)


@pytest.fixture(scope="module", autouse=True)
def _few_are_many() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        for name, value in (("_ALONE", 3), ("_AT_ONCE", 2), ("_ENOUGH", 3), ("_PARTS", 4)):
            patched.setattr(object_store, name, value)
        yield


@given(st.sets(NAMES.map("/".join)), st.sampled_from(["", "a", "a/", "b", "b/b0", "c"]))
def test_all_objects_come_once_and_in_order(keys: set[str], prefix: str) -> None:
    store = open_store("memory://some")
    for key in keys:
        store.put(key, key.encode())
    folder = f"{prefix.rstrip('/')}/" if prefix else ""
    listed = [*store.list(prefix)]
    assert [each.key for each in listed] == sorted(k for k in keys if k.startswith(folder))
    assert all(each.size == len(each.key.encode()) for each in listed)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ObjectServer]:
    """30 folders of 10 files in two, and a file in front of them."""
    for number in range(300):
        path = tmp_path / "in" / f"{number // 150}" / f"{number // 10:02}" / f"{number}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "in" / "0.jsonl").touch()
    with object_server(tmp_path) as running:
        running.page = 10
        yield running


def test_parts_of_a_long_listing_run_side_by_side(
    server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_store, "_ALONE", 50)
    monkeypatch.setattr(object_store, "_AT_ONCE", 50)  # obstore makes as many of pages at once
    store = open_store(server.root, server.options)
    everything = sorted(server.objects)
    server.wait_s = 0.02
    assert [each.key for each in store.list("in")] == everything
    assert server.at_once >= 4
    pages, of_folders, parts, ahead = len(everything) // server.page + 1, 7, 4, 5
    assert len(server.asked) <= pages + of_folders + parts * ahead


def test_reading_the_first_objects_requests_one_page(server: ObjectServer) -> None:
    server.page = 60
    store = open_store(server.root, server.options)
    assert len([*islice(store.list("in"), 3)]) == 3
    assert len(server.asked) == 1


def test_a_reply_that_ends_early_ends_no_part(server: ObjectServer) -> None:
    store = open_store(server.root, server.options)
    sound: list[Listed] = [*store.list("in")]
    left = [5]

    def choice(_asked: object) -> Cut | None:
        left[0] -= 1
        return Cut.BODY if left[0] % 2 == 0 and left[0] >= 0 else None

    server.choice = choice
    assert [*store.list("in")] == sound


@pytest.mark.parametrize(
    ("bucket", "cuts"), [("s3://a", True), ("s3://a--use1-az4--x-s3/in", False), ("az://a", False)]
)
def test_a_store_that_cannot_begin_behind_a_key_has_one_stream(
    bucket: str, cuts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[bool]()

    def noted(_client: object, _prefix: str, *, cuts: bool, after: str) -> Iterator[Listed]:
        asked.append(cuts and not after)
        return iter(())

    monkeypatch.setattr("seglake.store.object_store.ObjectListing", noted)
    monkeypatch.setattr("seglake.store.object_store._ObjectStore.client", None)
    assert [*open_store(bucket).list()] == []
    assert asked == [cuts]


def test_keys_that_do_not_ascend_have_one_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [f"{-n % 7}/{n}" for n in range(30)]
    monkeypatch.setattr(
        object_store.ObjectListing, "_behind", lambda *_: (Listed(key, 1, 1, None) for key in keys)
    )
    assert [each.key for each in object_store.ObjectListing(None, "", cuts=True)] == keys
