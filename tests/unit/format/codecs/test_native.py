"""Libraries by address: one that gives wrong answers, or is not here, is called through Python."""

import ctypes
import logging
import multiprocessing
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import zstandard

import seglake
from seglake.errors import CorruptData
from seglake.format.batch import CRC_START
from seglake.format.codecs import codec_kernels, native, self_test
from seglake.format.codecs.compression import IDS, compressor
from seglake.format.decode import check_crcs, decode_batches, scan_batches
from seglake.format.encode import Encoding, encode_batches, encode_bodies
from tests.makers.lakes import Event, LakeMaker, Shape, T, records_of

WORD = ctypes.c_int64
CODECS = ["none", "lz4", "zstd"]
EVENTS = [Event(T + i, b"k%d" % (i % 7), b"value %d" % i * 5) for i in range(400)]

LIBRARIES = {
    "_crc32c": ("crc32c", {codec_kernels.CRC32C}),
    "_zstd": (
        "zstandard",
        {codec_kernels.ZSTD_BOUND, codec_kernels.ZSTD_DECOMPRESS, codec_kernels.ZSTD_CONTEXT},
    ),
    "_zstd_writer": (
        "zstandard",
        {codec_kernels.ZSTD_COMPRESS, codec_kernels.ZSTD_COMPRESS_CONTEXT},
    ),
    "_lz4": ("lz4", {codec_kernels.LZ4_DECOMPRESS, codec_kernels.LZ4_CONTEXT}),
}

USE = """
import sys
import seglake.format.decode
from seglake.format.codecs import codec_kernels, native
modules = set(sys.modules)
assert all(native.addresses()), native.addresses()
print(sorted(set(sys.modules) - modules))
print([name for name, each in vars(codec_kernels).items() if getattr(each, "signatures", None)])
"""


class Wrong(NamedTuple):
    """A function that stands in for another one, whose words it takes, and is wrong."""

    library: str
    function: str
    words: int
    answer: Callable[..., int]


def refilled(_context: int, out: int, room: int, _source: int, size: int) -> int:
    """The right size, and other bytes."""
    ctypes.memset(out, 0x2E, room)
    return room


def without_tables(crc: int, data: int, size: int) -> int:
    """Right up to 24 KiB."""
    library: Any = native._load("crc32c._crc32c", "_crc32c_hw_adler")
    return 7 if size >= 3 * 2**13 else library._crc32c_hw_adler(*map(WORD, (crc, data, size)))


def credulous(context: int, out: int, room: int, source: int, size: int) -> int:
    """All is well, whatever the function says; right where it is well."""
    library: Any = native._load("zstandard._cffi", "ZSTD_decompressDCtx")
    library.ZSTD_decompressDCtx(*map(WORD, (context, out, room, source, size)))
    return room


def stored(_context: int, out: int, _room: int, source: int, size: int, _level: int) -> int:
    """What is no frame."""
    ctypes.memmove(out, source, size)
    return size


def nothing_left(_context: int, _out: int, _size: int, _source: int, _read: int, _more: int) -> int:
    """The end of a frame, of which no byte was written."""
    return 0


def another_frame(_context: int, out: int, _room: int, source: int, size: int, _level: int) -> int:
    """A sound frame, but of something else."""
    frame = zstandard.ZstdCompressor().compress(b"else" * 9)
    ctypes.memmove(out, frame, len(frame))
    return len(frame)


WRONG = {
    "checksum": Wrong("_crc32c", "_crc32c_hw_adler", 3, lambda *_: 7),
    "checksum, long": Wrong("_crc32c", "_crc32c_hw_adler", 3, without_tables),
    "bound": Wrong("_zstd", "ZSTD_decompressBound", 2, lambda *_: 1),
    "bound, error": Wrong("_zstd", "ZSTD_decompressBound", 2, lambda *_: -2),
    "zstd, other bytes": Wrong("_zstd", "ZSTD_decompressDCtx", 5, refilled),
    "zstd, no error": Wrong("_zstd", "ZSTD_decompressDCtx", 5, credulous),
    "zstd, error": Wrong("_zstd", "ZSTD_decompressDCtx", 5, lambda *_: -20),
    "writer, no frame": Wrong("_zstd_writer", "ZSTD_compressCCtx", 6, stored),
    "writer, another frame": Wrong("_zstd_writer", "ZSTD_compressCCtx", 6, another_frame),
    "writer, error": Wrong("_zstd_writer", "ZSTD_compressCCtx", 6, lambda *_: -64),
    "lz4, other bytes": Wrong("_lz4", "LZ4F_decompress", 6, nothing_left),
    "lz4, error": Wrong("_lz4", "LZ4F_decompress", 6, lambda *_: -11),
}


@pytest.fixture
def patch() -> Iterator[pytest.MonkeyPatch]:
    """Patches of this module; each thread gets the addresses anew, before and after."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "_THREAD", threading.local())
        native._libraries.cache_clear()
        yield patch
    native._libraries.cache_clear()


def stand_in(patch: pytest.MonkeyPatch, wrong: Wrong) -> object:
    """Have a wrong function at an address. Returns what must stay in memory."""
    callback = ctypes.CFUNCTYPE(WORD, *[WORD] * wrong.words)(wrong.answer)
    address = native._address

    def other(function: Any) -> int:
        return address(callback if function.__name__ == wrong.function else function)

    patch.setattr(native, "_address", other)
    return callback


def missing() -> set[int]:
    """What has no address."""
    return set(np.flatnonzero(native.addresses() == 0).tolist())


class Answers(NamedTuple):
    """What a lake of one codec says, and what is written of its records."""

    tables: list[Any]
    times: list[Any]
    records: list[Any]
    batches: bytes


def answers(root: Path, codec: str) -> Answers:
    """From every way to read: windows short and long, lookups of both kinds; and to write."""
    log = seglake.open(str(root)).topic("events")
    windows = [(T + 30, T + 50), (T + 30, T + 50), (T + 30, T + 50), (0, T + 10_000)]
    tables = [log.read_range(*window).read_all() for window in windows]
    tables += [log.plan_range(T, T + 90, columns=["key", "offset"]).execute().read_all()]
    times = [log.offsets_for_times({0: T + at}) for at in (0, 111, 399, 400)]
    records = [log.record_at(0, offset) for offset in (0, 222, 399)]
    made = records_of(EVENTS)
    encoding = Encoding(compressor(codec), IDS[codec], 900)
    batches = encode_batches(made.timestamps, encode_bodies(made, np.arange(400)), encoding)
    data = batches.data.tobytes()
    decoded = decode_batches(data, scan_batches(data))
    assert decoded.records.values.data is not None
    assert len(decoded.offsets) == 400
    damaged = bytearray(data)
    damaged[CRC_START + 30] ^= 1
    with pytest.raises(CorruptData, match="CRC"):
        check_crcs(bytes(damaged), scan_batches(bytes(damaged)))
    return Answers(tables, times, records, data)


@pytest.fixture(scope="module", params=CODECS)
def lake(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A lake of a codec, the codec, and its answers by the libraries."""
    root = tmp_path_factory.mktemp("lake")
    LakeMaker(root).run({0: EVENTS}, Shape(request.param, batch_bytes=900))
    return root, request.param, answers(root, request.param)


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_a_library_that_is_wrong_is_left_out(
    wrong: Wrong, patch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    package, numbers = LIBRARIES[wrong.library]
    callback = stand_in(patch, wrong)
    with caplog.at_level(logging.WARNING, "seglake"):
        assert missing() == numbers
        with ThreadPoolExecutor(2) as threads:
            assert list(threads.map(lambda _: missing(), range(4))) == [numbers] * 4
    (warning,) = caplog.messages
    assert f"package {package} " in warning
    assert "slower" in warning
    del callback


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_a_library_that_is_wrong_changes_no_answer(
    wrong: Wrong, patch: pytest.MonkeyPatch, lake: Any
) -> None:
    root, codec, expected = lake
    callback = stand_in(patch, wrong)
    assert answers(root, codec) == expected
    assert missing() == LIBRARIES[wrong.library][1]
    del callback


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_library_that_is_not_here_changes_no_answer(
    name: str, patch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, lake: Any
) -> None:
    root, codec, expected = lake
    patch.setattr(native, name, lambda: None)
    assert answers(root, codec) == expected
    assert missing() == LIBRARIES[name][1]
    assert not caplog.messages  # as on processors without an instruction for checksums


def test_without_a_context_a_library_is_left_out(
    patch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    context = native._context
    patch.setattr(native, "_context", lambda *of: context(*of)._replace(create=lambda: None))
    assert missing() == LIBRARIES["_zstd"][1] | LIBRARIES["_zstd_writer"][1]
    assert len(caplog.messages) == 2


def test_libraries_are_tested_once(patch: pytest.MonkeyPatch) -> None:
    """Though many threads ask at the same time."""
    calls, start, right = list[int](), threading.Barrier(8), self_test.checksum_is_right

    def slow(addresses: Any) -> bool:
        calls.append(threading.get_ident())
        time.sleep(0.05)
        return right(addresses)

    def ask(_: int) -> set[int]:
        start.wait()
        return missing()

    patch.setattr(self_test, "checksum_is_right", slow)
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(ask, range(8))) == [set[int]()] * 8
    native.renew()
    assert len(calls) == 1


def test_a_fork_amid_the_tests_has_tests_of_its_own(patch: pytest.MonkeyPatch) -> None:
    begun, go_on, right = threading.Event(), threading.Event(), self_test.checksum_is_right

    def slow(addresses: Any) -> bool:
        begun.set()
        go_on.wait(20)
        return right(addresses)

    patch.setattr(self_test, "checksum_is_right", slow)
    thread = threading.Thread(target=native.addresses)
    thread.start()
    assert begun.wait(20)
    patch.setattr(self_test, "checksum_is_right", right)
    child = multiprocessing.get_context("fork").Process(target=native.addresses)
    child.start()
    child.join(20)
    go_on.set()
    thread.join()
    code = child.exitcode
    child.kill()
    assert code == 0


def test_a_test_needs_no_kernel_and_no_module() -> None:
    """Or the first lookup of a process would wait for it."""
    done = subprocess.run([sys.executable, "-c", USE], text=True, capture_output=True, check=True)
    assert done.stdout.splitlines() == ["[]", "[]"]


def test_the_text_of_the_kernels_is_tested() -> None:
    """So that a word of theirs that is in the wrong place shows."""
    names = self_test._as_python()
    for name in ("checksum", "payload_bound", "put_payload", "put_compressed"):
        assert names[name].__code__ is getattr(codec_kernels, name).py_func.__code__
