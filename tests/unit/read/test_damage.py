"""Bad bytes: found and named in a log, survived in a zone map."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import seglake
from seglake.errors import CorruptData
from seglake.format.decode import scan_batches
from seglake.format.index import IndexPolicy
from seglake.format.zonemap import SMALL_BYTES
from seglake.limits import REQUESTS
from seglake.read.lake import Lake
from seglake.store import Store, open_store
from tests.judges.oracle import as_written
from tests.makers.lakes import Event, LakeMaker, Shape

T = 1_700_000_000_000


@pytest.fixture(scope="module", params=["none", "zstd"])
def maker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LakeMaker:
    made = LakeMaker(tmp_path_factory.mktemp("lake"))
    rows = [
        Event(T + (i * 37) % 101, b"key", b"value %d" % i, (("h", b"x"),) if i % 5 == 0 else ())
        for i in range(120)
    ]
    made.run({0: rows}, Shape(request.param, batch_bytes=300, policy=IndexPolicy("bytes", 400)))
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
    maker.run({0: rows}, Shape(batch_bytes=60, policy=IndexPolicy("bytes", 0)))
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
