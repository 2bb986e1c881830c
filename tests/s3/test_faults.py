"""Bad storage: requests fail on their way or their replies are lost; an ingest survives it."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

import seglake
from seglake.catalog import transaction
from seglake.catalog.failed_run import failed_runs
from seglake.config import Pipeline
from seglake.errors import InputError, StoreError
from seglake.maintain.health.verify import verify
from seglake.read.log import Log
from seglake.store import object_store, open_store
from tests.harness.survival import RECORDS, assert_survives, two_files, visible
from tests.harness.tiers import rest_but, rest_but_today
from tests.makers.lakes import open_catalog
from tests.makers.raw_events import (
    Line,
    T,
    assert_holds,
    ingest,
    pipeline_of,
    read_lake,
    write_file,
)
from tests.s3.proxy import PASSING, Choice, Fault, Proxy, nth
from tests.s3.test_flow import upload

SWEEP = 4  # places in an ingest at which each fault is tried
PEACE = nth(Fault.BUSY, 0)
COMMIT = r"catalog/log/_delta_log/0{19}1\.json$"
REFUSED = [r"/blobs/", r"/fate$", r"\.log$", r"manifest\.json$", COMMIT]


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction, "PAUSE_S", 0.01)


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    return two_files(tmp_path)


def settings_of(root: str, proxy: Proxy, paths: list[Path]) -> Pipeline:
    """An ingest whose every request passes the proxy, and waits a second at most."""
    inputs = [upload(path, f"{root}/in") for path in paths]
    return pipeline_of(
        f"{root}/lake", inputs, storage={"endpoint": proxy.endpoint, "timeout": "1s"}
    )


@contextmanager
def disturbed(proxy: Proxy, choice: Choice) -> Iterator[None]:
    proxy.seen.clear()
    proxy.choice = choice
    try:
        yield
    finally:
        proxy.choice = PEACE


def survive(root: str, proxy: Proxy, paths: list[Path], choice: Choice) -> str:
    settings, named = settings_of(root, proxy, paths), rf"{root}/(lake|in)/?\S*: "
    outcome = assert_survives(settings, paths, disturbed(proxy, choice), named)
    assert proxy.faults(), "no request was disturbed"
    return outcome


@pytest.fixture
def requests(place: str, proxy: Proxy, paths: list[Path]) -> int:
    """How many requests an ingest makes."""
    ingest(settings_of(f"{place}/0", proxy, paths))
    return len(proxy.seen)


@pytest.mark.parametrize("fault", rest_but(PASSING, Fault.LOST))
def test_one_fault_anywhere(
    place: str, proxy: Proxy, paths: list[Path], requests: int, fault: Fault
) -> None:
    step = requests // (SWEEP if fault is not Fault.SLOW else 2)
    ended = [
        survive(f"{place}/{at}", proxy, paths, nth(fault, at))
        for at in range(1 + PASSING.index(fault), requests, step)
    ]
    assert "committed" in ended
    if fault in {Fault.BUSY, Fault.BUSY_AFTER}:
        assert set(ended) == {"committed"}


def every(fault: Fault, number: int) -> Choice:
    """Befalls each `number`-th request."""
    count = 0

    def choice(_method: str, _path: str) -> Fault | None:
        nonlocal count
        count += 1
        return None if count % number else fault

    return choice


@pytest.mark.parametrize(
    "fault", rest_but([Fault.BUSY, Fault.BUSY_AFTER, Fault.LOST], Fault.BUSY_AFTER)
)
def test_a_server_that_is_bad_all_the_time(
    place: str, proxy: Proxy, paths: list[Path], fault: Fault
) -> None:
    assert survive(place, proxy, paths, every(fault, 7)) == "committed"
    assert len(proxy.faults()) > 5


@pytest.mark.parametrize(
    "fault",
    rest_but([Fault.LOST, Fault.BUSY_AFTER, Fault.RESET, Fault.SLOW], Fault.LOST, Fault.RESET),
)
def test_the_commit_is_done_once_whatever_its_reply(
    place: str, proxy: Proxy, paths: list[Path], fault: Fault
) -> None:
    """A commit whose reply was lost is found in the catalog, and is not made again."""
    choice = nth(fault, 1, "PUT", COMMIT)
    assert survive(place, proxy, paths, choice) == "committed"
    table = open_catalog(f"{place}/lake")
    assert table.snapshot().version == 1


def test_what_is_known_of_a_failure_outlives_faults(
    place: str, proxy: Proxy, paths: list[Path]
) -> None:
    storage = {"endpoint": proxy.endpoint, "timeout": "1s"}
    settings = pipeline_of(f"{place}/lake", paths[0].parent / "none.jsonl", storage=storage)
    for key in (r"report\.json$", r"failed/[0-9a-f-]+$"):
        for fault in (Fault.LOST, Fault.BUSY_AFTER, Fault.RESET):
            proxy.choice = nth(fault, 1, "PUT", key)
            with pytest.raises(InputError):
                ingest(settings, fault.name)
            proxy.choice = PEACE
            (failed,) = failed_runs(open_store(settings.root), "events", fault.name)
            assert "does not exist" in failed.error


@pytest.mark.rest
def test_a_log_that_cannot_be_written_stays_invisible(
    place: str, proxy: Proxy, paths: list[Path]
) -> None:
    """The server refuses for good: nothing is there but what no catalog names."""
    settings = settings_of(place, proxy, paths)
    proxy.choice = nth(Fault.RESET, 2, "PUT", r"\.log$", times=1000)
    with pytest.raises(StoreError, match=r"lake/topics/events-\d/[0-9a-f-]+/\d{20}\.log: "):
        ingest(settings)
    assert visible(settings.root) == 0
    proxy.choice = PEACE
    ingest(settings)
    assert_holds(read_lake(settings.root), settings, [paths])
    left = verify(settings.root).orphans
    assert left
    assert all(re.match(r"(topics|attempts)/", key) for key in left)


@pytest.mark.parametrize("fault", rest_but([Fault.DENIED, Fault.FULL], Fault.FULL))
@pytest.mark.parametrize("path", rest_but_today(REFUSED, 2))
def test_a_refusal_that_lasts_is_told_and_leaves_nothing(
    place: str,
    proxy: Proxy,
    paths: list[Path],
    fault: Fault,
    path: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No right to write, or no space, for one kind of object_store."""
    monkeypatch.setitem(object_store._RETRIES, "max_retries", 2)
    choice = nth(fault, 1, "PUT|POST", path, times=1000)
    outcome = survive(place, proxy, paths, choice)
    assert re.search(
        "AccessDenied|403" if fault is Fault.DENIED else "InsufficientCap|507", outcome
    )


def answers(log: Log) -> tuple[Any, Any]:
    """A lookup by time in every partition, and all records."""
    found = log.offsets_for_times(dict.fromkeys(range(3), T + 5000))
    return found, sorted(map(str, log.read_range(0, 2 * T).read_all().to_pylist()))


@pytest.mark.parametrize("fault", rest_but(Fault, Fault.LOST))
@pytest.mark.parametrize("kind", rest_but(["zonemap", "log"], "log"))
def test_reads_answer_or_name_the_object(
    place: str, proxy: Proxy, paths: list[Path], fault: Fault, kind: str
) -> None:
    settings = settings_of(place, proxy, paths)
    ingest(settings)
    sound = answers(seglake.open(settings.root).topic("events"))
    assert len(sound[1]) == RECORDS
    options = {"endpoint": proxy.endpoint, "timeout": "1s"}
    log = seglake.open(settings.root, storage_options=options).topic("events")
    passing = fault in PASSING
    named = rf"^{settings.root}/topics/\S+\.{kind}: "
    ended = nullcontext() if passing else pytest.raises(StoreError, match=named)
    with disturbed(proxy, nth(fault, 1, "GET", rf"\.{kind}$", 1 if passing else 1000)), ended:
        assert answers(log) == sound
    assert proxy.faults()
    assert answers(log) == sound


@pytest.mark.parametrize("fault", rest_but([Fault.CUT, Fault.REFUSED], Fault.REFUSED))
@pytest.mark.long
def test_a_refresh_that_fails_leaves_the_lake_as_it_was(
    place: str, proxy: Proxy, paths: list[Path], fault: Fault
) -> None:
    settings = settings_of(place, proxy, paths)
    ingest(settings)
    lake = seglake.open(settings.root, storage_options={"endpoint": proxy.endpoint})
    assert sum(lake.topic("events").end_offsets().values()) == RECORDS
    more = write_file(paths[0].with_name("c.jsonl"), [Line(T)] * 10)
    ingest(pipeline_of(settings.root, more), "2")
    proxy.choice = lambda _method, _path: fault
    with pytest.raises(StoreError, match=f"{settings.root}/catalog/log/_delta_log/"):
        lake.refresh()
    with pytest.raises(StoreError, match=f"{settings.root}/catalog/log"):
        seglake.open(settings.root, storage_options={"endpoint": proxy.endpoint})
    assert sum(lake.topic("events").end_offsets().values()) == RECORDS
    proxy.choice = nth(Fault.CUT, 1)  # which is asked for again
    assert sum(lake.refresh().topic("events").end_offsets().values()) == RECORDS + 10


def always(fault: Fault) -> Callable[[str, str], Fault]:
    return lambda _method, _path: fault


@pytest.mark.rest  # it waits for half a minute; one that ends connections is asked each time
@pytest.mark.long
def test_a_server_that_never_answers_is_an_error(
    place: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No endless wait: a request has its time, and retries are bounded."""
    monkeypatch.setitem(object_store._RETRIES, "max_retries", 2)
    open_store(place).put("k", b"abc")
    store = open_store(place, {"endpoint": proxy.endpoint, "timeout": "100ms"})
    for fault in (Fault.BUSY, Fault.SLOW):
        proxy.choice = always(fault)
        with pytest.raises(StoreError, match=f"{place}/k: "):
            store.read("k", 0, 3)
        with pytest.raises(StoreError, match=f"{place}/k: "):
            store.put("k", b"x")
    assert bytes(open_store(place).read_all("k")) in {b"abc", b"x"}
