"""Every byte of a small lake is damaged in turn, and every file cut at every length.

Whatever is asked then is answered as if nothing had happened, or with an error that names the file
and the damaged batch. Two batches whose offsets overlap do not tell which is wrong, since base
offsets are outside the checksum: then it may be the next one.
"""

import logging
import shutil
from bisect import bisect_right
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import seglake
from seglake.errors import CorruptData, StoreError
from seglake.format.decode import scan_batches
from seglake.format.index import IndexPolicy
from seglake.format.zonemap import SMALL_BYTES
from seglake.limits import REQUESTS
from seglake.read.lake import Lake
from seglake.store import Store, open_store
from tests.harness.damaged import DamagedStore, flipped
from tests.judges.oracle import as_written
from tests.makers.lakes import Event, LakeMaker, Shape, T

COUNT = 24
EVENTS = [
    Event(T + (i * 37) % 23, b"k", b"v%d" % i, (("h", b"x"),) if i % 5 == 0 else ())
    for i in range(COUNT)
]
SHAPES = {
    "none": Shape("none", batch_bytes=140, policy=IndexPolicy(200), segment_bytes=600),
    "dense": Shape("none", batch_bytes=140, policy=IndexPolicy(0), segment_bytes=600),
    "zstd": Shape("zstd", batch_bytes=200, policy=IndexPolicy(150)),
}
SMALL = 11  # in the short form, one byte in so many


class Damaged:
    """The lake, and what it answers when it is sound."""

    def __init__(self, maker: LakeMaker) -> None:
        damaged: Any = DamagedStore(maker.store, "")
        self.store: DamagedStore = damaged
        self.lake: Any = Lake(damaged, cache_bytes=0)  # so that every question reads anew
        self.truth = [ask(self.lake.topic("events")) for ask in QUESTIONS]

    def check(self, key: str, changed: bytes | None, at: int) -> int:
        """Ask everything; how many questions were answered."""
        self.store.replaced = {key: changed}
        answered = 0
        log = self.lake.topic("events")
        for ask, truth in zip(QUESTIONS, self.truth, strict=True):
            answer, error = _outcome(ask, log)
            answered += error is None
            if error is None:
                assert answer == truth, (key, at)
            elif isinstance(error, CorruptData):
                assert error.file == key
                assert error.position in self._batches_at(key, at), at
            else:
                assert key in str(error)
        self.store.replaced = {}
        return answered

    def _batches_at(self, key: str, at: int) -> list[int]:
        """Where the batch begins that has this byte, and also the next if it is a base offset's."""
        starts: list[int] = scan_batches(self.store.sound[key])["position"].tolist()
        number = bisect_right(starts, at) - 1
        return starts[number : number + 1 + (at < starts[number] + 8)]


def _outcome(ask: Callable[[Any], Any], log: Any) -> tuple[Any, CorruptData | StoreError | None]:
    try:
        return ask(log), None
    except (CorruptData, StoreError) as error:
        return None, error


def _times(*times: int) -> Callable[[Any], Any]:
    return lambda log: [log.offsets_for_times({0: T + time}) for time in times]


QUESTIONS: list[Callable[[Any], Any]] = [
    _times(0, 11),
    _times(22, 23),
    *(lambda log, at=at: log.record_at(0, at) for at in (0, 5, 12, COUNT - 1)),
    lambda log: as_written(log.read(0, 9, max_records=4)),
    lambda log: as_written(log.read_range(T + 5, T + 8).read_all()),
    lambda log: as_written(log.read_range(0, T + 100, order="time").read_all()),
    lambda log: as_written(log.find("k", start=T + 5, end=T + 8).read_all()),
    lambda log: log.max_timestamps(),
]


@pytest.fixture(scope="module", params=SHAPES)
def damaged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Damaged:
    maker = LakeMaker(tmp_path_factory.mktemp("lake"))
    maker.run({0: EVENTS}, SHAPES[request.param])
    return Damaged(maker)


def flip(damaged: Damaged, suffix: str, step: int, bits: Iterable[int]) -> list[int]:
    """How many questions were answered at each byte of the files."""
    return [
        damaged.check(key, changed, at)
        for key in damaged.store.keys(suffix)
        for at in range(0, len(damaged.store.sound[key]), step)
        for changed in flipped(damaged.store.sound[key], [at], bits)
    ]


def cut(damaged: Damaged, suffix: str, step: int) -> list[int]:
    """How many questions were answered at each length that a file may be cut to."""
    return [
        damaged.check(key, damaged.store.sound[key][:length], length)
        for key in damaged.store.keys(suffix)
        for length in range(0, len(damaged.store.sound[key]), step)
    ]


@pytest.mark.rest
def test_every_byte_of_a_log(damaged: Damaged) -> None:
    answered = flip(damaged, "log", 1, [0, 3, 7])
    assert min(answered) < len(QUESTIONS)


def test_some_bits_of_a_log(damaged: Damaged) -> None:
    flip(damaged, "log", SMALL, [0])


@pytest.mark.rest
def test_every_length_of_a_log(damaged: Damaged) -> None:
    assert max(cut(damaged, "log", 1)) < len(QUESTIONS)


def test_some_lengths_of_a_log(damaged: Damaged) -> None:
    assert max(cut(damaged, "log", SMALL)) < len(QUESTIONS)


@pytest.mark.rest
@pytest.mark.parametrize("suffix", ["zonemap", "index", "timeindex"])
def test_every_byte_and_length_of_an_index(damaged: Damaged, suffix: str) -> None:
    """An index never changes an answer."""
    assert set(flip(damaged, suffix, 1, [0, 5]) + cut(damaged, suffix, 1)) == {len(QUESTIONS)}


def test_some_bits_and_lengths_of_a_zone_map(
    damaged: Damaged, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        found = flip(damaged, "zonemap", SMALL, [0]) + cut(damaged, "zonemap", SMALL)
    assert set(found) == {len(QUESTIONS)}
    assert "built from the log" in caplog.text


def test_lost_indexes_change_no_answer(damaged: Damaged, caplog: pytest.LogCaptureFixture) -> None:
    for suffix in ("zonemap", "index", "timeindex"):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            for key in damaged.store.keys(suffix):
                assert damaged.check(key, None, 0) == len(QUESTIONS)
        assert (key in caplog.text) == (suffix == "zonemap"), "readers need no other index"


# Bad bytes: found and named in a log, survived in a zone map.


@pytest.fixture(scope="module", params=["none", "zstd"])
def maker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LakeMaker:
    made = LakeMaker(tmp_path_factory.mktemp("lake"))
    rows = [
        Event(T + (i * 37) % 101, b"key", b"value %d" % i, (("h", b"x"),) if i % 5 == 0 else ())
        for i in range(120)
    ]
    made.run({0: rows}, Shape(request.param, batch_bytes=300, policy=IndexPolicy(400)))
    return made


def answers(root: Path) -> list[object]:
    """Everything that can be asked, in a lake that nothing is cached of."""
    log = seglake.open(str(root)).topic("events")
    return [
        [log.offsets_for_times({0: T + at})[0] for at in range(0, 103, 3)],
        [column.tolist() for column in log.offsets_for_times_array(0, [T, T + 50, T + 100])],
        [log.record_at(0, offset) for offset in range(0, 120, 7)],
        as_written(log.read_range(T + 10, T + 20).read_all()),
        as_written(log.read_range(0, T + 1000, order="time").read_all()),
        as_written(log.read(0, 30, max_records=20)),
        log.max_timestamps(),
    ]


@pytest.fixture
def lake(maker: LakeMaker, tmp_path: Path) -> Path:
    return shutil.copytree(maker.root, tmp_path / "lake")


def only(root: Path, suffix: str) -> Path:
    (file,) = root.glob(f"topics/*/*/*.{suffix}")
    return file


def test_a_truncated_zone_map_of_many_pages_is_made_again(tmp_path: Path) -> None:
    maker = LakeMaker(tmp_path)
    rows = [Event(T + i, b"k", b"v") for i in range(5000)]
    maker.run({0: rows}, Shape(batch_bytes=60, policy=IndexPolicy(0)))
    file = only(tmp_path, "zonemap")
    assert file.stat().st_size > SMALL_BYTES
    file.write_bytes(file.read_bytes()[:-100])
    log = seglake.open(str(tmp_path)).topic("events")
    assert log.offsets_for_times({0: T + 4990})[0] == (4990, T + 4990)
    assert log.record_at(0, 4991).timestamp == T + 4991


def test_many_zone_maps_at_once_are_made_again_on_an_object_store(tmp_path: Path) -> None:
    """Their logs are read by the threads that were to read the zone maps."""
    maker = LakeMaker(tmp_path, partitions=REQUESTS + 4)
    maker.run({p: [Event(T + i) for i in range(20)] for p in range(REQUESTS + 4)})
    for file in maker.files("zonemap"):
        file.unlink()
    with ThreadPoolExecutor(1) as threads:
        read = Lake(Remote(open_store(str(tmp_path)))).topic("events").read_range
        found = threads.submit(lambda: read(T + 10, T + 15).read_all().num_rows)
        assert found.result(timeout=300) == 5 * (REQUESTS + 4)


class Remote:
    """A store that says it is far away."""

    remote, public_options = True, dict[str, str]()

    def __init__(self, store: Store) -> None:
        self._store, self.uri = store, store.uri

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def test_the_zone_map_of_another_log_is_made_again(
    maker: LakeMaker, lake: Path, tmp_path: Path
) -> None:
    other = LakeMaker(tmp_path / "other")
    other.run({0: [Event(T)]})
    file = only(lake, "zonemap")
    size = file.stat().st_size
    file.write_bytes(only(other.root, "zonemap").read_bytes().ljust(size, b"\0"))
    assert answers(lake) == answers(maker.root)


def test_of_batches_that_claim_the_same_offsets_the_second_is_named(
    maker: LakeMaker, tmp_path: Path
) -> None:
    lake = shutil.copytree(maker.root, tmp_path / "lake")
    file = only(lake, "log")
    starts, content = positions(file), bytearray(file.read_bytes())
    content[7] ^= 1  # the first batch, which begins at offset 0
    file.write_bytes(content)
    with pytest.raises(CorruptData) as damage:
        seglake.open(str(lake)).topic("events").read_range(0, T + 1000).read_all()
    assert damage.value.position == starts[1]


def positions(log: Path) -> list[int]:
    """Where the record batches of a sound log begin, and where it ends."""
    data = log.read_bytes()
    return [*scan_batches(data)["position"].tolist(), len(data)]
