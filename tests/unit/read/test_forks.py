"""Processes that fork: what goes on in the child, what is refused there, and the parent's peace."""

import multiprocessing
import os
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

import seglake
from seglake.errors import UsageError
from seglake.read.log import Log
from seglake.store import Store, open_store
from tests.harness.object_server import ObjectServer, object_server
from tests.harness.tiers import rest_but
from tests.makers.lakes import Event, LakeMaker, Shape, T

pytestmark = pytest.mark.slow  # processes of their own

FORKING = multiprocessing.get_context("fork")


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    maker = LakeMaker(tmp_path, partitions=2)
    for _ in range(2):
        maker.run({p: [Event(T + i, b"k", b"v") for i in range(200)] for p in (0, 1)}, Shape())
    return tmp_path


@pytest.fixture
def server(lake: Path) -> Iterator[ObjectServer]:
    with object_server(lake) as running:
        yield running


def count(root: str, options: dict[str, str]) -> int:
    log = seglake.open(root, storage_options=options).topic("events")
    return len(log.read_range(T, T + 100).read_all())


def ended(work: Callable[[], object]) -> int | None:
    """The exit code of a fork that does the work; None if it does not end by itself."""
    child = FORKING.Process(target=work)
    child.start()
    child.join(20)
    if child.is_alive():
        child.kill()
        child.join()
        return None
    return child.exitcode


def in_new_process(work: Callable[..., None], *arguments: object) -> None:
    """`work` in a process that has not used any library yet, and that forks itself."""
    process = multiprocessing.get_context("spawn").Process(target=work, args=arguments)
    process.start()
    process.join(120)
    if process.is_alive():
        process.kill()
        process.join()
    assert process.exitcode == 0


def refused(library: str, work: Callable[[], object]) -> Callable[[], None]:
    def call() -> None:
        with pytest.raises(UsageError, match=f'after {library} was used, .* "spawn"'):
            work()

    return call


def fork_on_a_disk(root: str) -> None:
    log = seglake.open(root).topic("events")
    assert ended(refused("delta-rs", lambda: seglake.open(root))) == 0
    assert ended(refused("delta-rs", lambda: log.at(1))) == 0

    def read() -> None:
        assert len(log.read_range(T, T + 100).read_all()) == 400
        assert log.record_at(0, 5).value == b"v"

    assert ended(read) == 0
    assert len(log.at(1).read_range(T, T + 100).read_all()) == 200


def test_a_child_on_a_disk_reads_open_logs_and_may_not_open_others(lake: Path) -> None:
    in_new_process(fork_on_a_disk, str(lake))


def fork_with_objects(root: str, options: dict[str, str]) -> None:
    store = [open_store(root, options)]
    log = seglake.open(root, storage_options=options).topic("events")
    key = log.reader(0).segment(0).log_key
    assert len(log.read_range(T, T + 100).read_all()) == 400
    for offset in (0, 100, 300):  # of blocks that no read has cached
        assert ended(refused("obstore", partial(log.record_at, 0, offset))) == 0
        again = refused("obstore", lambda: open_store(root, options).read_all(key))
        assert ended(again) == 0
        assert ended(refused("(delta-rs|obstore)", lambda: count(root, options))) == 0
        assert log.record_at(0, offset).value == b"v"
        assert store[0].size(key)
    fork_and_end(store)


def fork_and_end(store: list[Store]) -> None:
    """A child that frees what it inherits, and ends as programs do, leaves the parent alone."""
    keys = [found.key for found in store[0].list("topics")]
    child = os.fork()
    if not child:
        store.clear()
        sys.exit()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    for key in keys:
        assert store[0].size(key)


def test_a_child_may_not_use_objects_that_its_parent_used_and_frees_none(
    server: ObjectServer,
) -> None:
    in_new_process(fork_with_objects, server.root, server.options)


def fork_first(root: str, options: dict[str, str]) -> None:
    def read() -> None:
        assert count(root, options) == 400

    for _ in range(2):
        assert ended(read) == 0
    read()


@pytest.mark.parametrize("where", rest_but(["disk", "objects"], "objects"))
def test_a_fork_before_any_use_is_as_good_as_any(server: ObjectServer, where: str) -> None:
    root = str(server.folder) if where == "disk" else server.root
    in_new_process(fork_first, root, server.options if where == "objects" else {})


@pytest.mark.slow
def test_a_forkserver_that_imported_everything_serves(server: ObjectServer) -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.unit.read.test_forks"])
    with context.Pool(2) as pool:
        assert pool.starmap(count, [(server.root, server.options)] * 4) == [400] * 4


def fork_beside_first_windows(root: str) -> None:
    """What another thread computes or loads just then holds nothing that the child waits for."""
    log, done = seglake.open(root).topic("events"), threading.Event()

    def read() -> None:
        while not done.is_set():
            log.read_range(T, T + 50).read_all()
            log.offsets_for_times({0: T + 7})

    thread = threading.Thread(target=read)
    thread.start()
    exits = [ended(partial(count_in, log)) for _ in range(3)]
    done.set()
    thread.join()
    assert exits == [0] * 3


def count_in(log: Log) -> None:
    assert len(log.read_range(T, T + 100).read_all()) == 400


def test_a_fork_beside_a_first_window_goes_on(lake: Path) -> None:
    in_new_process(fork_beside_first_windows, str(lake))
