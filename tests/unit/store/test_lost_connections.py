"""A request whose connection ends at any stage is made again, if that is safe: eight tries."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from seglake.errors import StoreError
from seglake.store import Store, open_store
from seglake.store.interface import may_retry
from tests.harness.object_server import Asked, Choice, Cut, ObjectServer, object_server
from tests.harness.tiers import rest_but_today

BIG = bytes(range(256)) * (9 * 4096)  # two parts
OLD = b"0123456789" * 100


@pytest.fixture
def server() -> Iterator[ObjectServer]:
    with object_server() as running:
        running.objects |= {"a": OLD, "b": b"b", "big": bytes(len(BIG))}
        yield running


def first(times: int, kind: str, cut: Cut) -> Choice:
    """Cuts the first so many requests of a kind."""
    left = [times]

    def choice(asked: Asked) -> Cut | None:
        hit = asked.kind == kind and left[0] > 0
        left[0] -= hit
        return cut if hit else None

    return choice


def streamed(store: Store, key: str) -> None:
    with store.writer(key) as stream:
        for start in range(0, len(BIG), 1 << 20):
            stream.write(BIG[start : start + (1 << 20)])


Verb = tuple[str, Callable[[Store], Any], Callable[[ObjectServer], Any], Any]
VERBS: dict[str, Verb] = {  # the request that is cut, the call, and what must come of it
    "stat": ("HEAD", lambda s: s.stat("a").size, lambda _: None, len(OLD)),
    "read": ("GET", lambda s: bytes(s.read("a", 3, 500)), lambda _: None, OLD[3:500]),
    "read all": ("GET", lambda s: bytes(s.read_all("a")), lambda _: None, OLD),
    "read ranges": (
        "GET", lambda s: [*map(bytes, s.read_ranges("a", [0, 9], [1, 400]))], lambda _: None,
        [OLD[:1], OLD[9:400]],
    ),
    "list": ("LIST", lambda s: [each.key for each in s.list()], lambda _: None, ["a", "b", "big"]),
    "put": ("PUT", lambda s: s.put("new", OLD), lambda server: server.objects["new"], OLD),
    "large put": ("BEGIN", lambda s: s.put("n", BIG), lambda server: server.objects["n"], BIG),
    "delete": ("DELETE", lambda s: s.delete(["a", "b"]), lambda server: [*server.objects], ["big"]),
    "begin": ("BEGIN", lambda s: streamed(s, "big"), lambda server: server.objects["big"], BIG),
    "part": ("PART", lambda s: streamed(s, "big"), lambda server: server.objects["big"], BIG),
    "end": ("COMPLETE", lambda s: streamed(s, "big"), lambda server: server.objects["big"], BIG),
}  # fmt: skip


@pytest.mark.parametrize("cut", Cut)
@pytest.mark.parametrize("verb", rest_but_today(VERBS))
def test_a_lost_connection_ends_nothing(server: ObjectServer, verb: str, cut: Cut) -> None:
    kind, call, left, wanted = VERBS[verb]
    server.choice = first(2, kind, cut)
    answer = call(open_store(server.root, server.options))
    assert (left(server) if answer is None else answer) == wanted
    assert server.count(kind) >= 2 or cut is Cut.BODY


@pytest.mark.parametrize("cut", Cut)
def test_what_is_created_is_there_once(server: ObjectServer, cut: Cut) -> None:
    """A lost reply may look like a lost race, but never like a race that was won."""
    store = open_store(server.root, server.options)
    server.choice = first(3, "CREATE", cut)
    undone = cut.name.startswith(("UN", "HALF"))
    assert store.put_if_absent("new", OLD) == (undone or cut is Cut.BODY)
    assert server.objects["new"] == OLD
    server.choice = first(3, "CREATE", cut)
    assert not store.put_if_absent("a", b"other")
    assert server.objects["a"] == OLD


@pytest.mark.parametrize(
    ("kind", "cut", "call"),
    [
        ("DELETE", Cut.DONE_RESET, lambda s: s.delete(["a"])),
        ("DELETE", Cut.BODY, lambda s: s.delete(["a"])),
        ("CREATE", Cut.UNDONE_RESET, lambda s: s.put_if_absent("new", b"")),
        ("BEGIN", Cut.BODY, lambda s: streamed(s, "new")),
        ("LIST", Cut.BODY, lambda s: list(s.list(""))),
    ],
)
def test_eight_tries_and_no_more(
    server: ObjectServer, kind: str, cut: Cut, call: Callable[[Store], Any]
) -> None:
    server.choice = first(1000, kind, cut)
    with pytest.raises(StoreError, match=re.escape(server.root)):
        call(open_store(server.root, server.options))
    assert server.count(kind) == 8


def test_an_end_that_came_to_nothing_is_an_error(server: ObjectServer) -> None:
    """The object that is there is an older one, of the same size."""

    def choice(asked: Asked) -> Cut | None:
        if asked.kind == "COMPLETE":
            server.uploads.clear()  # as if somebody had aborted it
        return None

    server.choice = choice
    with pytest.raises(StoreError):
        streamed(open_store(server.root, server.options), "big")
    assert server.objects["big"] == bytes(len(BIG))


def test_tries_of_the_library_count() -> None:
    text = "Server error with status 503: SlowDown"
    assert may_retry(OSError(text), 1)
    assert may_retry(OSError(f"in 3s, after 6 retries, max_retries: 8 - {text}"), 1)
    assert not may_retry(OSError(f"in 3s, after 8 retries, max_retries: 8 - {text}"), 1)
    assert not may_retry(OSError("Client error with status 403"), 1)
