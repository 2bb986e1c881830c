"""Manifests of tiered storage, and which of several copies of a log count."""

import base64
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import assume, given
from hypothesis import strategies as st

from seglake.errors import CorruptData, InputError
from seglake.kafka.importing import import_logs
from seglake.kafka.sources import RemoteLog, choose_logs, is_manifest, parse_manifest
from seglake.log.links import Chunks
from tests.makers.strategies import examples
from tests.makers.tiered_bucket import (
    GOLDEN,
    GOLDEN_CHUNK,
    GOLDEN_LOG,
    GOLDEN_TOPIC,
    TOPIC_ID,
    Tiering,
    packed_sizes,
    tier,
)
from tests.unit.kafka.test_importing import read

PLACE = ("events", TOPIC_ID, 0)
TIERINGS = {
    "plain": Tiering("tiered/", GOLDEN_CHUNK),
    "zstd": Tiering("kafka-", GOLDEN_CHUNK, compressed=True),
}


def manifest(**changes: Any) -> bytes:
    """A manifest of the plugin's own, with other values."""
    (path, *_) = sorted((GOLDEN / "plain").rglob("*.rsm-manifest"))
    return json.dumps({**json.loads(path.read_bytes()), **changes}).encode()


@pytest.mark.parametrize("name", TIERINGS)
def test_what_the_plugin_wrote_comes_in(name: str, tmp_path: Path) -> None:
    """Objects that Aiven's plugin wrote, version 1.2.0-SNAPSHOT; by name of the topic, or all."""
    for topic in (None, GOLDEN_TOPIC):
        root = tmp_path / f"lake-{topic}"
        (report,) = import_logs(str(root), [str(GOLDEN / name)], topic=topic)
        assert (report.topic, report.segments, report.notes) == (GOLDEN_TOPIC, 3, [])
        assert [each._replace(partition=0) for each in read(root, GOLDEN_TOPIC)] == (
            GOLDEN_LOG.committed()[0]
        )
    (again,) = import_logs(str(root), [str(next((GOLDEN / name).rglob("3")).parent)])
    assert (again.segments, again.version) == (0, -1)


@pytest.mark.parametrize("name", TIERINGS)
def test_the_tests_bucket_is_the_plugins(name: str, tmp_path: Path) -> None:
    folder = GOLDEN_LOG.write(tmp_path / "events-3")
    tier(
        folder, tmp_path / "bucket", TIERINGS[name], topic=GOLDEN_TOPIC, partition=3,
        epochs={0: 0, 2: 46},
    )  # fmt: skip
    ours, theirs = (
        {str(path.relative_to(home)): path.read_bytes() for path in _files(home)}
        for home in (tmp_path / "bucket", GOLDEN / name)
    )
    assert sorted(ours) == sorted(theirs)
    for key, data in ours.items():
        if is_manifest(key):
            assert parse_manifest(data, key, key)[:5] == parse_manifest(theirs[key], key, key)[:5]
            assert json.loads(data).keys() == json.loads(theirs[key]).keys()
        elif name == "plain":
            assert data == theirs[key]


def _files(home: Path) -> list[Path]:
    return [path for path in home.rglob("*") if path.is_file()]


def test_encryption_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"-manifest is encrypted.*Kafka Connect"):
        import_logs(str(tmp_path / "lake"), [str(GOLDEN / "encrypted")])
    assert not (tmp_path / "lake").exists()


@given(st.lists(st.integers(1, 2**31 - 1), min_size=1, max_size=40))
@examples(100)
def test_sizes_of_chunks(sizes: list[int]) -> None:
    text = base64.b64encode(zstandard.compress(packed_sizes(sizes))).decode()
    total = 100 * len(sizes) - 50
    index = {"type": "variable", "originalChunkSize": 100, "originalFileSize": total,
             "transformedChunks": text}  # fmt: skip
    log = parse_manifest(manifest(compression=True, chunkIndex=index), "0.rsm-manifest", "m")
    assert log.chunks == Chunks(total, 100, tuple(sizes))


@given(st.data())
@examples(300)
def test_a_damaged_manifest_is_named(data: st.DataObject) -> None:
    (path, *_) = sorted((GOLDEN / "zstd").rglob("*.rsm-manifest"))
    stored = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(stored) - 1))
    stored[at] ^= data.draw(st.integers(1, 255))
    stop = data.draw(st.sampled_from([len(stored), at]))
    try:
        parse_manifest(bytes(stored[:stop]), "0.rsm-manifest", "m").chunks.check()
    except (CorruptData, InputError) as error:
        assert getattr(error, "file", "m") == "m"  # noqa: PT017  # what is read may be sound


def test_what_else_is_refused() -> None:
    with pytest.raises(InputError, match="version 2, but Seglake reads only version 1"):
        parse_manifest(manifest(version="2"), "k", "m")
    index = {"type": "fixed", "originalChunkSize": 2**30, "originalFileSize": 2**29,
             "transformedChunkSize": 5, "finalTransformedChunkSize": 5}  # fmt: skip
    with pytest.raises(InputError, match="Seglake reads at most"):
        parse_manifest(manifest(compression=True, chunkIndex=index), "k", "m")


# ---------------------------------------------------------------- leader epochs


@st.composite
def leaders(draw: st.DrawFn) -> tuple[list[RemoteLog], list[int]]:
    """What leaders copied of their logs, and the epoch at each offset of the newest one's log.

    Each leader begins with a part of the newest log, and so loses what was behind; it copies its
    log in segments of its own, from some offset on below which it knows copies of each record.
    """
    histories: list[list[int]] = [[]]
    logs: list[RemoteLog] = []
    for epoch in range(draw(st.integers(1, 4))):
        before = histories[-1]
        keep = len(before) if draw(st.booleans()) else draw(st.integers(0, len(before)))
        history = [*before[:keep], *([epoch] * draw(st.integers(1, 5)))]
        histories.append(history)
        cuts = {0, len(history), *draw(st.lists(st.integers(0, len(history)), max_size=4))}
        known = _known(logs, history)
        first = draw(st.sampled_from(sorted(cut for cut in cuts if cut <= known)))
        edges = [cut for cut in sorted(cuts) if cut >= first]
        for base, end in pairwise(edges):
            own = {each: base + history[base:end].index(each) for each in {*history[base:end]}}
            key = f"{epoch}/{base}"
            logs.append(RemoteLog(PLACE, key, base, end, tuple(sorted(own.items())), Chunks(1)))
    return logs, histories[-1]


def _known(logs: list[RemoteLog], history: list[int]) -> int:
    """Up to where there are copies of this log."""
    for offset, epoch in enumerate(history):
        if not any(
            log.base_offset <= offset < log.end_offset and _epoch(log, offset) == epoch
            for log in logs
        ):
            return offset
    return len(history)


def _epoch(log: RemoteLog, offset: int) -> int:
    return max(epoch for epoch, at in log.epochs if at <= offset)


@given(leaders())
@examples(500)
def test_the_newest_leaders_log_is_chosen(made: tuple[list[RemoteLog], list[int]]) -> None:
    logs, newest = made
    assume(any(log.end_offset == len(newest) and log.epochs[-1][0] == newest[-1] for log in logs))
    chosen = choose_logs(logs)
    bases = [log.base_offset for log in chosen]
    assert bases == sorted({*bases})
    assert chosen[-1].end_offset == len(newest)
    for log, end in zip(chosen, [*bases[1:], len(newest)], strict=True):
        assert end <= log.end_offset
        epochs = [_epoch(log, offset) for offset in range(log.base_offset, end)]
        assert epochs == newest[log.base_offset : end]


def test_a_hole_is_refused() -> None:
    logs = [RemoteLog(PLACE, f"{base}.log", base, base + 10, ((0, base),), Chunks(1))
            for base in (0, 20)]  # fmt: skip
    with pytest.raises(InputError, match=r"offsets 10 to 20 of events-0 are missing between"):
        choose_logs(logs)
    assert choose_logs(logs[1:]) == logs[1:]
