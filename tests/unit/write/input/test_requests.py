"""What reading a bucket's input files costs: requests, and how many are under way at once."""

import gzip
import io
import random
import tarfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from seglake.config import Input
from seglake.errors import InputError, StoreError
from seglake.store.interface import Listed, Stat
from seglake.write.driver.run_input import plan_splits
from seglake.write.input import content, streams
from seglake.write.input.content import InputStore
from seglake.write.input.files import FileVersion, SourceFile
from seglake.write.input.listing import find_inputs
from tests.makers.raw_events import pipeline_of

ROOT = "s3://bucket"
PLAIN = b'{"n":1}\n' * 5000


class Bucket:
    """Objects by key; each request takes a while, and is counted."""

    remote = True

    def __init__(self, objects: dict[str, bytes], *, fails_at: int = -1) -> None:
        self.objects, self.fails_at = objects, fails_at
        self.requests, self.at_once, self._running = Counter[str](), 0, 0
        self._lock = threading.Lock()

    def read(self, key: str, start: int, end: int) -> bytes:
        with self._lock:
            self.requests["read"] += 1
            self._running += 1
            self.at_once = max(self.at_once, self._running)
        time.sleep(0.01)
        with self._lock:
            self._running -= 1
        if start == self.fails_at:
            raise StoreError(f"{key}: the connection was reset")
        return self.objects[key][start:end]

    def stat(self, key: str) -> Stat:
        self.requests["stat"] += 1
        if key not in self.objects:
            raise StoreError(key)
        return Stat(len(self.objects[key]), 7000, f'"tag of {key}"')

    def list(self, _prefix: str = "") -> Iterator[Listed]:
        self.requests["list"] += 1
        for key, data in self.objects.items():
            yield Listed(key, len(data), 7123, f"tag of {key}")


def opened(bucket: Any, monkeypatch: pytest.MonkeyPatch) -> InputStore:
    monkeypatch.setattr(content, "open_store", lambda *_: bucket)
    return InputStore({})


def file_of(bucket: Bucket, key: str) -> SourceFile:
    return SourceFile(f"{ROOT}/{key}", len(bucket.objects[key]), 7000, None)


def test_a_listing_asks_for_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = Bucket({f"{number:04}.jsonl": PLAIN for number in range(500)})
    store = opened(bucket, monkeypatch)
    listed = find_inputs(Input(format="jsonl", paths=(f"{ROOT}/*.jsonl",)), store)
    assert len(listed.files) == 500
    assert bucket.requests == {"list": 1, "stat": 1}  # is there an object of the glob's own name?
    file = listed.files[0]
    assert file.version.is_same(FileVersion(len(PLAIN), 7000, '"tag of 0000.jsonl"'))
    assert not file.version.is_same(FileVersion(len(PLAIN), 7123, '"another"'))
    store.require_unchanged(file)


def test_large_files_are_asked_once_each_and_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = Bucket({f"{number:02}.jsonl": PLAIN for number in range(40)} | {"a.gz": PLAIN})
    bucket.objects["a.gz"] = gzip.compress(random.Random(1).randbytes(30_000))
    store = opened(bucket, monkeypatch)
    pipeline = pipeline_of("lake", "s3://bucket", task={"split_bytes": 10_000})
    splits = plan_splits([file_of(bucket, key) for key in bucket.objects], store, pipeline)
    assert len(splits) == 40 * 4 + 1
    assert bucket.requests == {"read": 41}
    assert bucket.at_once > 4


def archived(data: bytes) -> bytes:
    """A tar archive with one file."""
    member = tarfile.TarInfo("a.csv")
    member.size = len(data)
    with io.BytesIO() as file:
        with tarfile.open(fileobj=file, mode="w") as archive:
            archive.addfile(member, io.BytesIO(data))
        return file.getvalue()


@pytest.mark.parametrize("pack", [bytes, gzip.compress, archived])
def test_small_csv_files_are_asked_once_each(
    monkeypatch: pytest.MonkeyPatch, pack: Callable[[bytes], bytes]
) -> None:
    """What a file is packed with, and its header, are in the same first bytes."""
    data = pack(b"ts,k\n" + b"1790000000000,a\n" * 1000)
    bucket = Bucket({f"{number:02}": data for number in range(100)})
    store = opened(bucket, monkeypatch)
    pipeline = pipeline_of(
        "lake", ROOT, input={"format": "csv", "paths": [ROOT]},
        key={"fields": ["k"]}, timestamp={"field": "ts", "format": "epoch_ms"},
    )  # fmt: skip
    assert (
        len(plan_splits([file_of(bucket, key) for key in bucket.objects], store, pipeline)) == 100
    )
    assert bucket.requests == {"read": 100}
    assert bucket.at_once > 4


@pytest.mark.parametrize("size", [streams.FIRST_BYTES, streams.FIRST_BYTES + 100_000])
def test_no_byte_of_a_plain_file_is_asked_twice(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    data = random.Random(4).randbytes(size)
    bucket = Bucket({"a.csv": b"ts," + data[3:]})
    store = opened(bucket, monkeypatch)
    ((_, found),) = store.contents(file_of(bucket, "a.csv"))
    read = b"".join(iter(lambda: found.read(50_000), b""))
    assert read == bucket.objects["a.csv"]
    assert bucket.requests == {"read": 1 + (size - streams.FIRST_BYTES) // 50_000}


def test_a_compressed_file_is_read_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    data = random.Random(2).randbytes(9 * 2**20)
    bucket = Bucket({"a.gz": gzip.compress(data, 1)})
    store = opened(bucket, monkeypatch)
    ((_, found),) = store.contents(file_of(bucket, "a.gz"))
    assert bucket.requests == {"read": 1}  # to find out what it is
    read = b"".join(iter(lambda: found.read(100_000), b""))
    assert read == data
    left = len(bucket.objects["a.gz"]) - streams.FIRST_BYTES
    assert bucket.requests == {"read": 1 + -(-left // streams.PART_BYTES)}
    assert 1 < bucket.at_once <= streams.AHEAD


def test_a_part_that_cannot_be_read_is_an_error_of_the_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = gzip.compress(random.Random(3).randbytes(4 * 2**20), 1)
    bucket = Bucket({"a.gz": data}, fails_at=streams.FIRST_BYTES + streams.PART_BYTES)
    store = opened(bucket, monkeypatch)
    ((_, found),) = store.contents(file_of(bucket, "a.gz"))
    with pytest.raises(InputError, match=r"s3://bucket/a.gz cannot be read: .*reset"):
        b"".join(iter(lambda: found.read(100_000), b""))
