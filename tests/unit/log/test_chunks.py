"""Logs outside the lake: any range of any chunks, and whatever is damaged."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from seglake.errors import CorruptData, MissingObject
from seglake.log.links import ChunkedLog, ChunkedLogs, Chunks, LakeLogs, Link
from seglake.store import open_store
from tests.makers.strategies import examples
from tests.unit.log.test_segments import MEMORY


def put(folder: Path, data: bytes, size: int) -> Chunks:
    """Write the log `data` as the object `log`; if `size` is not 0, in zstd frames of so much."""
    parts = [data[at : at + size] for at in range(0, len(data), size)] if size else [data]
    frames = [zstandard.compress(part) for part in parts] if size else parts
    (folder / "log").write_bytes(b"".join(frames))
    return Chunks(len(data), size, tuple(map(len, frames)) if size else ())


@given(st.binary(min_size=1, max_size=300), st.integers(0, 80), st.data())
@examples(200)
def test_any_ranges_are_those_of_the_log(log: bytes, size: int, data: st.DataObject) -> None:
    places = st.integers(0, len(log))
    pairs = data.draw(st.lists(st.tuples(places, places).map(sorted), min_size=1, max_size=5))
    starts, ends = [start for start, _ in pairs], [end for _, end in pairs]
    begin, stop = sorted((data.draw(places), data.draw(places)))
    with TemporaryDirectory(dir=MEMORY) as name:
        folder = Path(name)
        chunks = put(folder, log, size).check()
        logs = ChunkedLogs(open_store(name), {"log": chunks})
        assert logs.size("log") == len(log)
        assert bytes(logs.read_all("log")) == log
        found = [bytes(part) for part in logs.read_ranges("log", starts, ends)]
        assert found == [log[start:end] for start, end in pairs]

        link = Link(name, "log", begin, stop - begin, chunks)
        assert Link.load(link.dump(), "a.link") == link
        lake = open_store(f"{name}/lake")
        lake.put("a.link", link.dump())
        own = LakeLogs(lake)
        assert own.size("a.link") == stop - begin
        assert bytes(own.read_all("a.link")) == log[begin:stop]
        middle = (stop - begin) // 2
        assert bytes(own.read("a.link", middle, stop - begin)) == log[begin + middle : stop]
        with pytest.raises(CorruptData):
            own.read("a.link", 0, stop - begin + 1)


@given(st.binary(min_size=1, max_size=100), st.integers(1, 40), st.data())
@examples(200)
def test_a_damaged_chunk_is_never_taken_for_another(
    log: bytes, size: int, data: st.DataObject
) -> None:
    """A frame has no checksum of its own here, but never gives more or fewer bytes."""
    with TemporaryDirectory(dir=MEMORY) as name:
        folder = Path(name)
        chunks = put(folder, log, size)
        stored = bytearray((folder / "log").read_bytes())
        at = data.draw(st.integers(0, len(stored) - 1))
        stored[at] ^= data.draw(st.integers(1, 255))
        (folder / "log").write_bytes(stored)
        try:
            found = ChunkedLog(open_store(name), "log", chunks).read_ranges([0], [len(log)])[0]
            assert len(bytes(found)) == len(log)
        except CorruptData as damage:
            place = (damage.file, damage.position <= at)
            assert place == (f"{name}/log", True)  # or nothing was seen


def test_an_object_of_another_size_is_damage(tmp_path: Path) -> None:
    chunks = put(tmp_path, b"log" * 100, 64)
    log = ChunkedLog(open_store(str(tmp_path)), "log", chunks)
    with (tmp_path / "log").open("ab") as file:
        file.write(b"more")
    with pytest.raises(CorruptData, match="bytes, not"):
        log.size()
    (tmp_path / "log").unlink()
    with pytest.raises(MissingObject):
        log.size()


@given(st.data())
@examples(200)
def test_a_damaged_link_is_named(data: st.DataObject) -> None:
    link = Link("s3://bucket/tiered", "t-id/0/0.log", 5, 10, Chunks(100, 60, (30, 20)))
    stored = bytearray(link.dump())
    at = data.draw(st.integers(0, len(stored) - 1))
    stored[at] ^= data.draw(st.integers(1, 255))
    try:
        found = Link.load(stored, "topics/t-0/a.link")
        assert found.is_sound
    except CorruptData as damage:
        assert damage.file == "topics/t-0/a.link"  # noqa: PT017  # or the link is another one


@pytest.mark.parametrize(
    "chunks",
    [
        Chunks(-1),
        Chunks(10, 5, (3,)),
        Chunks(10, 0, (3,)),
        Chunks(10, 5, (3, 0)),
        Chunks(4, 5, (1, 2)),
    ],
)
def test_impossible_chunks(chunks: Chunks) -> None:
    with pytest.raises(ValueError, match="cannot hold"):
        chunks.check()
