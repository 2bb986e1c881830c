"""Both stores behave alike: a memory store stands for the object stores."""

import contextlib
import errno
import os
import pickle
import posix
import threading
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglake.errors import ConfigError, MissingObject, StoreError
from seglake.store import Store, dry_store, local, object_store, open_store
from seglake.store.interface import Listed, store_errors
from tests.harness.counting import CountingStore
from tests.harness.object_server import Cut, ObjectServer, object_server
from tests.makers.strategies import examples

KEYS = st.sampled_from(["a", "b/c", "b/d", "b/d.x", "bb/c", "e/f/g/h"])
DATA = st.binary(max_size=50)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEYS, DATA),
        st.tuples(st.just("absent"), KEYS, DATA),
        st.tuples(st.just("write"), KEYS, DATA),
        st.tuples(st.just("broken"), KEYS, DATA),
        st.tuples(st.just("delete"), KEYS, st.just(b"")),
    ),
    max_size=12,
)


@pytest.fixture(params=["local", "memory", "counting"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "counting":
        return CountingStore(open_store(str(tmp_path / "root")))
    return open_store("memory:///" if request.param == "memory" else str(tmp_path / "root"))


class _InterruptionError(Exception):
    pass


def _write_and_fail(store: Store, key: str, data: bytes) -> None:
    with store.writer(key) as stream:
        stream.write(data)
        raise _InterruptionError


def _write_text(store: Store) -> None:
    with store.writer("k") as stream:
        stream.write(b"abc")
        with contextlib.suppress(TypeError):
            stream.write("text")  # type: ignore[arg-type]


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def _apply(store: Store, step: tuple[str, str, bytes], model: dict[str, bytes]) -> None:
    kind, key, data = step
    if kind == "put":
        store.put(key, data)
    elif kind == "absent":
        assert store.put_if_absent(key, data) == (key not in model)
        data = model.get(key, data)
    elif kind == "write":
        with store.writer(key) as stream:
            for part in (data[:7], b"", data[7:]):
                stream.write(part)
    elif kind == "broken":
        with pytest.raises(_InterruptionError):
            _write_and_fail(store, key, data)
    else:
        store.delete([key, "never/was"])
        model.pop(key, None)
    if kind in {"put", "absent", "write"}:
        model[key] = data


@pytest.mark.parametrize("kind", ["local", "memory"])
@given(steps=STEPS)
@examples(40)
def test_store__is_a_mapping_of_keys(
    kind: str, steps: list[tuple[str, str, bytes]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = str(tmp_path_factory.mktemp("store") / "root")
    store = open_store("memory:///" if kind == "memory" else root)
    model: dict[str, bytes] = {}
    for step in steps:
        _apply(store, step, model)
    assert {found.key: found.size for found in store.list()} == {
        key: len(data) for key, data in model.items()
    }
    below = {found.key for found in store.list("b")}
    assert below == {key for key in model if key.startswith("b/")}
    assert {key: bytes(store.read_all(key)) for key in model} == model


@given(data=DATA, start=st.integers(-3, 55), end=st.integers(-3, 55))
def test_read__gives_the_range_or_an_error(data: bytes, start: int, end: int) -> None:
    local = open_store(_ROOT)
    memory = open_store("memory:///")
    for store in (local, memory):
        store.put("x/y", data)
        if 0 <= start < end <= len(data):
            assert bytes(store.read("x/y", start, end)) == data[start:end]
            assert (
                np.frombuffer(memoryview(store.read("x/y", start, end)), np.uint8).tobytes()
                == data[start:end]
            )
            assert list(map(bytes, store.read_ranges("x/y", [start, 0], [end, 1]))) == [
                data[start:end],
                data[:1],
            ]
        elif start != end:
            with pytest.raises(StoreError, match="x/y"):
                store.read("x/y", start, end)
            with pytest.raises(StoreError, match="x/y"):
                store.read_ranges("x/y", [start], [end])


@pytest.fixture(scope="module", autouse=True)
def _root(tmp_path_factory: pytest.TempPathFactory) -> None:
    global _ROOT  # noqa: PLW0603  # hypothesis allows no function-scoped fixture
    _ROOT = str(tmp_path_factory.mktemp("ranges"))


_ROOT = ""


def test_read_ranges__empty_ranges_are_empty(store: Store) -> None:
    store.put("k", b"abc")
    assert list(map(bytes, store.read_ranges("k", [1, 0, 3], [1, 3, 3]))) == [b"", b"abc", b""]
    assert store.read_ranges("k", [], []) == []


def test_missing_objects__are_named(store: Store) -> None:
    for call in (
        lambda: store.size("no/such"),
        lambda: store.stat("no/such"),
        lambda: store.read("no/such", 0, 1),
        lambda: store.read_ranges("no/such", [0], [1]),
        lambda: store.read_all("no/such"),
    ):
        with pytest.raises(MissingObject, match="no/such"):
            call()
    assert list(store.list("no")) == []


@pytest.mark.parametrize("key", ["../x", "a/../../x", "a//b", "", "a/./b", "a\0b"])
def test_keys__cannot_leave_the_root(store: Store, key: str) -> None:
    with pytest.raises(StoreError):
        store.put(key, b"x")
    with pytest.raises(StoreError):
        store.read(key, 0, 1)


def test_absolute_key__is_refused_locally(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="the key"):
        open_store(str(tmp_path)).put("/etc/x", b"x")


def test_stat__changes_with_the_object(store: Store) -> None:
    store.put("k", b"abc")
    first = store.stat("k")
    assert first.size == store.size("k") == 3
    assert first.modified_ms > 1_600_000_000_000
    store.put("k", b"abcd")
    assert store.stat("k").etag != first.etag
    assert next(iter(store.list())).modified_ms == store.stat("k").modified_ms


def test_buffers__of_any_kind_can_be_written(store: Store) -> None:
    numbers = np.arange(5, dtype=">i8")
    store.put("a", numbers)
    with store.writer("b") as stream:
        stream.write(memoryview(b"xy"))
        stream.write(numbers)
    assert bytes(store.read_all("a")) == numbers.tobytes()
    assert bytes(store.read_all("b")) == b"xy" + numbers.tobytes()


def test_writer__after_a_failed_write_publishes_nothing(store: Store) -> None:
    with pytest.raises(StoreError, match="k: not published"):
        _write_text(store)
    assert list(store.list()) == []


def test_writer__is_invisible_until_it_is_closed(store: Store) -> None:
    with store.writer("k") as stream:
        stream.write(b"abc" * 1_000_000)
        with pytest.raises(MissingObject):
            store.size("k")
    assert store.size("k") == 3_000_000


def test_put_if_absent__has_one_winner(store: Store) -> None:
    won: list[int] = []
    threads = [
        threading.Thread(
            target=lambda n=n: won.append(n) if store.put_if_absent("k", b"%d" % n) else None
        )
        for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert bytes(store.read_all("k")) == b"%d" % won[0]


def test_local__replaced_object_is_read_anew(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    store.put("k", b"abc")
    assert store.read("k", 0, 3) == b"abc"
    store.put("k", b"xyz")
    assert store.read("k", 0, 3) == b"xyz"
    store.delete(["k"])
    with pytest.raises(MissingObject):
        store.read("k", 0, 3)


@pytest.mark.parametrize("call", ["stat", "open", "fstat", "pread"])
@pytest.mark.parametrize("contents", [(b"short", b"much longer"), (b"much longer", b"short")])
def test_local__read_all_is_one_content_or_the_other(
    call: str, contents: tuple[bytes, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The object is replaced just before a call that the read makes: all four have their turn."""
    store, other = (open_store(str(tmp_path / "root")) for _ in range(2))
    store.put("k", contents[0])
    real, left = getattr(os, call), [contents[1]]

    def replaced_first(*args: Any, **options: Any) -> Any:
        while left:
            other.put("k", left.pop())
        return real(*args, **options)

    monkeypatch.setattr(os, call, replaced_first)
    assert bytes(store.read_all("k")) in contents


def test_local__truncated_file_is_an_error_not_a_crash(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    store.put("k", b"x" * 100_000)
    store.read("k", 0, 10)
    os.truncate(tmp_path / "k", 5)
    with pytest.raises(StoreError, match=r"only 5 bytes for the range \[0, 10\)"):
        store.read("k", 0, 10)


@pytest.mark.parametrize("name", ["put", "put_if_absent"])
def test_local__what_is_seen_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    synced: list[tuple[str, int, bool]] = []

    def fsync(fd: int) -> None:
        posix.fsync(fd)  # os.fsync does nothing in tests
        path = Path(f"/proc/self/fd/{fd}").readlink()
        size = 0 if path.is_dir() else path.stat().st_size
        synced.append((path.name.partition(".")[0], size, Path(root, "t/k").exists()))

    monkeypatch.setattr(os, "fsync", fsync)
    root = str(tmp_path / "new/lake")
    store = open_store(root)
    getattr(store, name)("t/k", b"abc")
    folders = [(tmp_path.name, 0, False), ("new", 0, False), ("lake", 0, False)]
    assert synced == [*folders, ("k", 3, False), ("t", 0, True)]  # all bytes, then the name
    synced.clear()
    getattr(store, name)("t/l", b"abcd")
    assert synced == [("l", 4, True), ("t", 0, True)]
    synced.clear()
    getattr(open_store(root), name)("t/m", b"")  # nobody knows whether its folder was synced
    assert synced == [("lake", 0, True), ("m", 0, True), ("t", 0, True)]


def test_local__what_need_not_last_does_not_wait_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "fsync")
    with open_store(str(tmp_path)).writer("k", durable=False) as stream:
        stream.write(b"abc")
    assert (tmp_path / "k").read_bytes() == b"abc"


def test_local__open_descriptors_stay_bounded(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    for number in range(300):
        (tmp_path / str(number)).write_bytes(b"%03d" % number)
    before = _descriptors()
    assert all(store.read(str(n), 0, 3) == b"%03d" % n for n in range(300))
    assert _descriptors() - before <= 256
    del store
    assert _descriptors() <= before


def test_local__reads_after_a_fork(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    store.put("k", bytes(range(200)))
    store.read("k", 0, 1)
    child = os.fork()
    if child == 0:
        good = all(store.read("k", n, n + 1) == bytes([n]) for n in range(200))
        os._exit(0 if good else 1)
    assert all(store.read("k", n, n + 1) == bytes([n]) for n in range(200))
    assert os.waitpid(child, 0)[1] == 0


def test_local__delete_leaves_no_empty_folder_and_no_temporary_file(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    store.put("t/attempt/a", b"x")
    store.put("t/attempt/b", b"x")
    store.delete(["t/attempt/a"])
    assert [found.key for found in store.list("t")] == ["t/attempt/b"]
    store.delete(["t/attempt/b"])
    assert [path.name for path in tmp_path.rglob("*")] == ["t"]


@pytest.mark.parametrize("spelled", ["{}", "file:{}", "file://{}", "file://{}/"])
def test_open_store__spellings_of_a_local_root(tmp_path: Path, spelled: str) -> None:
    root = tmp_path / "a b"
    store = open_store(spelled.format(str(root).replace(" ", "%20") if ":" in spelled else root))
    store.put("k", b"x")
    assert (root / "k").read_bytes() == b"x"
    assert store.uri == str(root)
    assert pickle.loads(pickle.dumps(store)).read("k", 0, 1) == b"x"


@pytest.mark.parametrize("uri", ["hdfs://h/x", "ftp://x/y", "s3://k:s@bucket/x", "file:///x#y"])
def test_open_store__refuses(uri: str) -> None:
    with pytest.raises(ConfigError):
        open_store(uri)


def test_open_store__options_that_no_store_knows_are_refused() -> None:
    with pytest.raises(ConfigError, match="aws_colour"):
        open_store("s3://bucket/x", {"aws_region": "eu-1", "aws_colour": "red"}).size("k")


@pytest.mark.parametrize(
    ("uri", "normal"),
    [
        ("s3a://bucket/a/", "s3://bucket/a"),
        ("s3://bucket", "s3://bucket"),
        ("abfss://c@account.dfs.core.windows.net/x", "abfss://c@account.dfs.core.windows.net/x"),
    ],
)
def test_open_store__object_stores(uri: str, normal: str) -> None:
    assert open_store(uri).uri == normal


def test_pickle__carries_no_secret() -> None:
    options = {
        "AWS_ACCESS_KEY_ID": "hidden-1",
        "AWS_SECRET_ACCESS_KEY": "hidden-2",
        "aws_session_token": "hidden-3",
        "azure_storage_sas_token": "hidden-4",
        "google_service_account_key": "hidden-5",
        "proxy_url": "http://user:hidden-6@proxy",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9000",
        "AWS_ALLOW_HTTP": "true",
        "aws_web_identity_token_file": "/var/token",
        "aws_sse_kms_key_id": "shown",
    }
    store = open_store("s3://bucket/x", options)
    pickled = pickle.dumps(store)
    assert b"hidden" not in pickled
    assert b"hidden" not in repr(store).encode()
    assert pickle.loads(pickled).public_options == store.public_options
    assert set(store.public_options) == {
        "AWS_ENDPOINT_URL",
        "AWS_ALLOW_HTTP",
        "aws_web_identity_token_file",
        "aws_sse_kms_key_id",
    }


def test_pickle__memory_is_refused() -> None:
    with pytest.raises(StoreError, match="memory"):
        pickle.dumps(open_store("memory:///"))


def test_counting_store__counts(tmp_path: Path) -> None:
    store = CountingStore(open_store(str(tmp_path)))
    store.put("k", b"abcdef")
    with store.writer("w") as stream:
        stream.write(b"abc")
        stream.write(b"de")
    assert (store.counts.requests, store.counts.bytes_written) == (2, 11)
    store.read("k", 1, 3)
    store.read_ranges("k", [0, 4], [1, 6])
    store.read_all("k")
    assert (store.counts.requests, store.counts.bytes_read) == (6, 11)


def test_a_store_remembers_few_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_MOST_SYNCED", 3)
    store: Any = open_store(str(tmp_path))
    for number in range(10):
        store.put(f"attempts/{number}/begun", b"")
    assert len(store._synced) <= 3


@pytest.mark.parametrize(
    ("number", "remedy"),
    [(errno.EACCES, "Give this user the right"), (errno.EROFS, "Mount that file system"),
     (errno.ENOSPC, "Free some space"), (errno.EIO, None)],
)  # fmt: skip
def test_local__an_error_of_the_system_comes_with_what_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, remedy: str | None
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number), str(tmp_path / "a"))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(StoreError) as caught:
        open_store(str(tmp_path)).put("a/b", b"1")
    said, _, helps = str(caught.value).partition(". ")
    assert said.startswith(f"{tmp_path}/a/b: ")
    assert os.strerror(number) in said
    assert helps.startswith(remedy) if remedy else not helps


def test_local__a_file_in_the_place_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "lake").write_bytes(b"")
    with pytest.raises(StoreError, match="is a file, not a folder"):
        open_store(str(tmp_path / "lake")).read_all("a")


def test_local__a_place_that_takes_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As below /proc: nothing is missing there that anyone could have put."""

    def mkdir(self: Path, *_args: Any, **_named: Any) -> None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self))

    monkeypatch.setattr(Path, "mkdir", mkdir)
    for durable in (True, False):
        with (
            pytest.raises(StoreError, match=r"lake/k: cannot be written.* Name another") as caught,
            open_store(str(tmp_path / "lake")).writer("k", durable=durable),
        ):
            pass
        assert not isinstance(caught.value, MissingObject)


@pytest.mark.parametrize(
    "told",
    [
        "Generic S3 error: PUT http://169.254.169.254/latest/api/token: 403",
        "Kernel error -> while loading credentials ↳ failed to load IMDS session token",
    ],
)
def test_a_machine_without_credentials_is_told_to_set_them(told: str) -> None:
    with pytest.raises(StoreError, match=r"s3://b/k: .* Set AWS_ACCESS_KEY_ID"):
        _fail_with(told)
    for other in ("Server returned 403", "Generic MicrosoftAzure error: http://169.254.169.254/a"):
        with pytest.raises(StoreError, match=f"s3://b/k: {other}$"):
            _fail_with(other)


@pytest.mark.parametrize(
    ("facts", "remedy"),
    [
        (
            "<Code>InvalidObjectState</Code><StorageClass>GLACIER</StorageClass>",
            "Restore it.*GLACIER",
        ),
        ("<Code>RequestTimeTooSkewed</Code>", "clock of this machine"),
        ("<Code>KMS.DisabledException</Code>", "KMS key of the object.*Enable it"),
        (
            "<Code>AccessDenied</Code><Message>no kms:Decrypt on it</Message>",
            "allow this user kms:",
        ),
    ],
)
def test_a_refusal_of_s3_names_its_cause_and_the_remedy(facts: str, remedy: str) -> None:
    text = f"Server returned 403 Forbidden: <Error>{facts}</Error>"
    with pytest.raises(StoreError, match=f"s3://b/k: .*{remedy}"):
        _fail_with(text)


def _fail_with(told: str) -> None:
    with store_errors("s3://b", "k"):
        raise OSError(told)


def test_a_link_to_a_folder_above_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "deep" / "deeper").mkdir(parents=True)
    (tmp_path / "deep" / "deeper" / "up").symlink_to(tmp_path / "deep")
    with pytest.raises(StoreError, match="Remove the link that leads to a folder above it"):
        [*open_store(str(tmp_path)).list()]


@pytest.mark.parametrize(
    "uri",
    [
        "s3://bucket/lake?secret_access_key=hidden",
        "s3://bucket/lake?hidden",
        "s3://bucket/lake#hidden",
        "s3://bucket?region=x&sig=hidden",
        "gs://bucket/lake?a=hidden",
        "abfss://box@account.dfs.core.windows.net/lake?sv=1&sig=hidden",
        "s3:/bucket?secret_access_key=hidden",
        "s3:/user:hidden@bucket",
        "s3://user:hidden@bucket",
    ],
)
def test_secrets_of_a_refused_root_are_not_shown(uri: str) -> None:
    with pytest.raises(ConfigError) as refused:
        open_store(uri)
    assert "hidden" not in str(refused.value)


# A dry store reads what is there, and what was written to it; nothing reaches the storage.


def test_what_is_written_is_read_again_and_never_stored(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "lake"))
    store.put("attempts/a", b"old")
    with dry_store(store) as unwritten:
        assert not unwritten.put_if_absent("attempts/a", b"new")
        unwritten.put("attempts/a", b"new")
        with unwritten.writer("attempts/b") as stream:
            stream.write(b"0123")
        with unwritten.writer("topics/t-0/c") as stream:
            stream.write(b"a log, which nobody reads before a commit")
        assert bytes(unwritten.read_all("attempts/a")) == b"new"
        assert bytes(unwritten.read("attempts/b", 1, 3)) == b"12"
        assert (unwritten.size("attempts/b"), unwritten.stat("attempts/b").size) == (4, 4)
        with pytest.raises(MissingObject):
            unwritten.size("topics/t-0/c")
        unwritten.delete(["attempts/a", "attempts/b"])
        assert bytes(unwritten.read_all("attempts/a")) == b"old"
        assert [each.key for each in unwritten.list("attempts")] == ["attempts/a"]
    assert [each.key for each in store.list()] == ["attempts/a"]
    assert bytes(store.read_all("attempts/a")) == b"old"


# Long listings of an object store are what short ones are, and their parts run side by side.


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
