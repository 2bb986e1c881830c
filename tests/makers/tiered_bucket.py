"""Partition folders as objects in a bucket of tiered storage, as Aiven's plugin lays them out.

The layout follows the plugin's manifests of version 1; `tests/golden/tiered-storage` holds what the
plugin itself made of `GOLDEN_LOG`, and a test compares the two.
"""

import base64
import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import zstandard

from seglake.format.decode import scan_batches
from tests.makers.broker_folders import BrokerLog, Step
from tests.makers.lakes import Event
from tests.makers.strategies import T

TOPIC_ID = "A08NuvyWRgee6k9bdjakQQ"
GOLDEN = Path(__file__).parents[1] / "golden" / "tiered-storage"
GOLDEN_CHUNK = 100
GOLDEN_TOPIC = "web.events-1"
GOLDEN_LOG = BrokerLog(
    [
        Step(-1, tuple(Event(T + 10 * at, b"key-%d" % at, b"value" * at) for at in range(6))),
        Step(-1, (Event(T + 5, None, b"late"),)),
        Step(-1, (Event(T + 70, b"a", None, (("h", b"1"), ("h", None))),), rolls=True),
        Step(-1, tuple(Event(T + 80 + at, b"b", bytes([at]) * 40) for at in range(5))),
        Step(-1, (Event(T + 90, b"c", b"end"),), rolls=True),
    ],
    start=40,
)


class Tiering(NamedTuple):
    """How a plugin is set up: its prefix, the bytes of a chunk, and whether it compresses them."""

    prefix: str = "tiered/"
    chunk_bytes: int = 100
    compressed: bool = False


TIERED = Tiering()


def tier(
    folder: Path,
    bucket: Path,
    tiering: Tiering = TIERED,
    *,
    topic: str = "events",
    partition: int = 0,
    topic_id: str = TOPIC_ID,
    epochs: Mapping[int, int] | None = None,
    number: int = 0,
) -> list[Path]:
    """Copy the logs of a partition folder into a bucket; returns the manifests, in order.

    `epochs` are the leader epochs of the log and where each begins. `number` tells copies apart.
    """
    manifests = []
    for log in sorted(folder.glob("*.log")):
        data = log.read_bytes()
        if not data:  # the active segment
            continue
        base = int(log.stem)
        last = int(scan_batches(data)["last_offset"][-1])
        segment_id = _uuid(partition, base, number)
        name = f"{tiering.prefix}{topic}-{topic_id}/{partition}/{base:020d}-{segment_id}"
        own = {
            epoch: max(at, base)
            for epoch, at, end in _spans(epochs or {0: 0})
            if at <= last and end > base
        }
        about = {
            "remoteLogSegmentId": {
                "topicIdPartition": {
                    "topicId": topic_id,
                    "topicPartition": {"topic": topic, "partition": partition},
                },
                "id": segment_id,
            },
            "startOffset": base,
            "endOffset": last,
            "maxTimestampMs": 0,
            "brokerId": 1,
            "eventTimestampMs": 0,
            "segmentLeaderEpochs": {str(epoch): at for epoch, at in own.items()},
            "txnIdxEmpty": True,
        }
        manifests.append(_put(bucket, name, data, tiering, about))
    return manifests


def _spans(epochs: Mapping[int, int]) -> Sequence[tuple[int, int, int]]:
    """Each epoch with its first offset, and that of the next one."""
    rows = sorted(epochs.items())
    ends = [*(at for _, at in rows[1:]), 2**63]
    return [(epoch, at, end) for (epoch, at), end in zip(rows, ends, strict=True)]


def _put(bucket: Path, name: str, data: bytes, tiering: Tiering, about: Mapping[str, Any]) -> Path:
    """Write the three objects of a segment; returns the manifest's path."""
    size, at = tiering.chunk_bytes, range(0, len(data), tiering.chunk_bytes)
    chunks = [data[start : start + size] for start in at]
    index: dict[str, Any] = {"originalChunkSize": size, "originalFileSize": len(data)}
    if tiering.compressed:
        chunks = [zstandard.compress(chunk) for chunk in chunks]
        packed = base64.b64encode(zstandard.compress(packed_sizes([*map(len, chunks)])))
        index = {"type": "variable", **index, "transformedChunks": packed.decode()}
    else:
        ends = {"transformedChunkSize": size, "finalTransformedChunkSize": len(chunks[-1])}
        index = {"type": "fixed", **index, **ends}
    places = {"offset": (0, 24), "timestamp": (24, 24), "producerSnapshot": (48, 24),
              "leaderEpoch": (72, 8)}  # fmt: skip
    indexes: dict[str, Any] = {
        kind: {"position": position, "size": length} for kind, (position, length) in places.items()
    }
    manifest = {
        "version": "1", "chunkIndex": index, "segmentIndexes": {**indexes, "transaction": None},
        "compression": tiering.compressed, "remoteLogSegmentMetadata": about,
    }  # fmt: skip
    path = bucket / f"{name}.rsm-manifest"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".log").write_bytes(b"".join(chunks))
    path.with_suffix(".indexes").write_bytes(bytes(80))
    path.write_text(json.dumps(manifest, separators=(",", ":")))
    return path


def packed_sizes(sizes: Sequence[int]) -> bytes:
    """Sizes of chunks as the plugin packs them: what is above the smallest, in few bytes each."""
    count = struct.pack(">i", len(sizes))
    if len(sizes) < 2:
        return count + b"".join(struct.pack(">i", size) for size in sizes)
    smallest = min(sizes[:-1])
    above = [size - smallest for size in sizes[:-1]]
    width = max(1, (max(above).bit_length() + 7) // 8)
    body = b"".join(each.to_bytes(width, "big") for each in above)
    return count + struct.pack(">ib", smallest, width) + body + struct.pack(">i", sizes[-1])


def _uuid(partition: int, base: int, number: int) -> str:
    """The id of a segment, of 22 characters of base64."""
    return base64.urlsafe_b64encode(struct.pack(">iqi", partition, base, number)).decode()[:22]
