"""Makes the golden files: segments written by Kafka, with what Kafka reads back from them.

`python -m tests.kafka.make_golden` writes `tests/golden/kafka-<version>/`: a folder per segment,
`MANIFEST.json` (what each segment is, its files' checksums, and what Kafka decodes and looks up in
it) and `vectors.json` (single batches in hex, hashes). Tests without a JVM read those; tests
with one check that Kafka still agrees.

The bytes of a compressed batch depend on the compressor's version: compare decoded records there.
"""

import hashlib
import json
import shutil
import tempfile
from base64 import b64encode
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.judges.kafka_jars import KAFKA_VERSION
from tests.judges.kafka_judge import Batch, Header, Kafka, Record, StoredBatch, batch_to_json

PROJECT = Path(__file__).resolve().parents[2]
GOLDEN = PROJECT / "tests" / "golden" / f"kafka-{KAFKA_VERSION}"
EPOCH_MS = 1_700_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
LARGE = b"a block of a codec is smaller than this value; " * 3000  # 141,000 bytes


@dataclass(frozen=True)
class Segment:
    """A segment to be made: what it shows, and the batches in it."""

    what: str
    batches: tuple[Batch, ...]
    base_offset: int = 1000
    index_interval_bytes: int = 300
    supported: bool = True  # False: an old format that Seglake refuses


def segments() -> dict[str, Segment]:
    """Every golden segment by the name of its folder."""
    mixed = mixed_batches()
    named = {
        f"codec-{codec}": Segment(
            f"{codec}: headers, null and empty keys and values, bytes that are not UTF-8, "
            "timestamps out of order, a batch that does not compress",
            tuple(replace(batch, codec=codec) for batch in mixed),
        )
        for codec in CODECS
    }
    for codec in CODECS[1:]:
        large = Record(1000, EPOCH_MS, b"large", LARGE)
        what = f"{codec}: one value of {len(LARGE)} bytes, more than a block of any codec"
        named[f"large-{codec}"] = Segment(what, (Batch((large,), codec=codec),))
    named["reference"] = reference_segment()
    named["log-append-time"] = log_append_time()
    named["transactions"] = transactions()
    named["compacted"] = compacted()
    named["no-timestamps"] = no_timestamps()
    named["magic-0"] = legacy(0, "none", "NoTimestampType")
    named["magic-1"] = legacy(1, "gzip", "CreateTime")
    return named


# -------------------------------------------------------------------- what is in the segments


def mixed_batches() -> list[Batch]:
    """Nine batches: eight of five mixed records, one of a single record that does not compress."""
    batches = [
        Batch(tuple(mixed_record(number) for number in range(first, first + 5)))
        for first in range(0, 40, 5)
    ]
    noise = b"".join(hashlib.sha256(bytes([n])).digest() for n in range(8))
    return [*batches, Batch((Record(1040, EPOCH_MS + 39_000, None, noise),))]


def mixed_record(number: int) -> Record:
    """Record `number` of the mix; each rule has a period of its own, so that they combine."""
    key: bytes | None = f"user-{number % 6}".encode()
    if number % 7 == 3:
        key = None
    elif number % 11 == 5:
        key = b""
    elif number % 13 == 6:
        key = b"\xff\x00\xfe"
    value: bytes | None = f'{{"event":{number},"page":"/p/{number % 3}"}}'.encode()
    if number % 9 == 4:
        value = None
    elif number % 10 == 8:
        value = b""
    lateness = number * 37 % 11 * 700 + (9_000 if 20 <= number < 25 else 0)
    return Record(
        1000 + number, EPOCH_MS + 1000 * number - lateness, key, value, mixed_headers(number)
    )


def mixed_headers(number: int) -> tuple[Header, ...]:
    """No header, two (one of them null), or a repeated key beside one that is not ASCII."""
    if number % 4 == 0:
        return (("trace", bytes([number, 255])), ("null", None))
    if number % 10 == 7:
        return (("k", b"1"), ("k", b"2"), ("größe", b""))
    return ()


def reference_segment() -> Segment:
    """Ten 72-byte batches with known index bytes."""
    times = [50, 40, 60, 55, 30, 70, 65, 80, 80, 90]
    batches = [Batch((Record(1000 + n, time, None, b"test"),)) for n, time in enumerate(times)]
    return Segment("ten batches of one record, 72 bytes each", tuple(batches), 1000, 100)


def log_append_time() -> Segment:
    """Append times that stand still, under producers' timestamps that mean nothing."""
    batches = [
        Batch(
            tuple(
                Record(offset, EPOCH_MS + offset * 997 % 50, b"k", b"v%d" % offset)
                for offset in range(first, first + 3)
            ),
            timestamp_type="LogAppendTime",
            append_time=EPOCH_MS + 60_000 + (first - 500) // 6 * 1000,
        )
        for first in range(500, 518, 3)
    ]
    return Segment("LogAppendTime: a record's time is its batch's", tuple(batches), 500, 150)


def transactions() -> Segment:
    """A committed and an aborted transaction, interleaved, and a plain batch."""
    first = Batch(
        (Record(0, EPOCH_MS, b"a", b"committed"), Record(1, EPOCH_MS + 1, b"b", b"committed")),
        producer_id=42, producer_epoch=3, base_sequence=10, transactional=True,
    )  # fmt: skip
    second = Batch(
        (Record(2, EPOCH_MS + 2, b"a", b"aborted"),),
        producer_id=43, producer_epoch=0, base_sequence=0, transactional=True,
    )  # fmt: skip
    commit = Batch(
        base_offset=3, control="COMMIT", coordinator_epoch=5, max_timestamp=EPOCH_MS + 3,
        producer_id=42, producer_epoch=3, transactional=True,
    )  # fmt: skip
    abort = Batch(
        base_offset=4, control="ABORT", coordinator_epoch=5, max_timestamp=EPOCH_MS + 4,
        producer_id=43, producer_epoch=0, transactional=True,
    )  # fmt: skip
    last = Batch((Record(5, EPOCH_MS + 5, b"c", b"plain"),))
    what = "control batches: a commit marker at 3, an abort marker at 4"
    return Segment(what, (first, second, commit, abort, last), 0, 100)


def compacted() -> Segment:
    """Batches as the log cleaner leaves them: offsets kept, records gone, one batch emptied."""
    batches = (
        Batch((Record(12, EPOCH_MS, b"a", b"1"),), base_offset=10, last_offset=14),
        Batch(
            (Record(15, EPOCH_MS + 9, b"b", b"2"), Record(17, EPOCH_MS + 4, b"c", None)),
            last_offset=19,
            codec="zstd",
        ),
        Batch(
            (Record(30, EPOCH_MS + 5, b"d", None), Record(31, EPOCH_MS + 3, b"e", b"3")),
            delete_horizon_ms=EPOCH_MS + 86_400_000,
        ),
        Batch(
            base_offset=32, last_offset=37, max_timestamp=EPOCH_MS + 20,
            producer_id=42, producer_epoch=3, base_sequence=10,
        ),
        Batch((Record(38, EPOCH_MS + 15, b"f", b"4"),)),
    )  # fmt: skip
    what = (
        "gaps within, at the ends of and between batches; the batch of 30 has a delete horizon "
        "in place of its base timestamp; the batch 32 to 37 is empty"
    )
    return Segment(what, batches, 5, 60)


def no_timestamps() -> Segment:
    """Records without a timestamp: the time index stays empty."""
    batches = tuple(Batch((Record(n, -1, None, b"untimed"),)) for n in range(4))
    return Segment("no record has a timestamp", batches, 0, 0)


def legacy(magic: int, codec: str, timestamp_type: str) -> Segment:
    """A log of before Kafka 0.10 (magic 0) or 0.11 (magic 1)."""
    records = tuple(
        Record(n, EPOCH_MS + n if magic else -1, b"k%d" % n, b"legacy") for n in range(4)
    )
    batch = Batch(records, codec=codec, timestamp_type=timestamp_type, magic=magic)
    return Segment(f"magic {magic}, {codec}", (batch,), 0, 4096, supported=False)


# -------------------------------------------------------------------- single batches, hashes


def vector_batches() -> dict[str, Batch]:
    """Batches whose bytes stand in vectors.json."""
    three = Batch(
        (
            Record(100, EPOCH_MS, b"k1", b"v1"),
            Record(101, EPOCH_MS + 5, None, b"v2"),
            Record(102, EPOCH_MS - 10, b"k3", None, (("h", b"\1\2"), ("n", None))),
        ),
        leader_epoch=7,
    )
    owned = Batch(leader_epoch=7, producer_id=42, producer_epoch=3, max_timestamp=EPOCH_MS)
    appended = (Record(0, EPOCH_MS, b"a", b"b"), Record(1, EPOCH_MS + 1, b"a", b"c"))
    return {f"three-records-{codec}": replace(three, codec=codec) for codec in CODECS} | {
        "commit-marker": replace(
            owned, base_offset=200, control="COMMIT", transactional=True, coordinator_epoch=5
        ),
        "single-record": Batch((Record(0, 1234, None, b"test"),), leader_epoch=-1),
        "empty-batch": replace(owned, base_offset=15, last_offset=37, base_sequence=10),
        "log-append-time": Batch(
            appended, timestamp_type="LogAppendTime", append_time=EPOCH_MS + 9999
        ),
    }


KEYS = (
    b"", b"a", b"ab", b"abc", b"abcd", b"21", b"foobar", b"user-42", "été".encode(),
    b"\xff\x80\x01\xfe\xff", b"a-little-bit-long-string", b"a-little-bit-longer-string",
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8",
)  # fmt: skip
CHECKED = (b"", b"123456789", b"Some String")


def vectors(kafka: Kafka) -> dict[str, Any]:
    """Batches in hex by name; [key in hex, murmur2]; [bytes in hex, CRC-32C]."""
    made = {name: kafka.encode_batch(batch).hex() for name, batch in vector_batches().items()}
    hashes = zip(KEYS, kafka.murmur2(KEYS), strict=True)
    return {
        "kafka": KAFKA_VERSION,
        "batches": made,
        "murmur2": [[key.hex(), value] for key, value in hashes],
        "crc32c": [[data.hex(), kafka.crc32c(data)] for data in CHECKED],
    }


# -------------------------------------------------------------------- making and describing


def make(kafka: Kafka, folder: Path) -> None:
    """Writes every golden file, MANIFEST.json and vectors.json into `folder`."""
    described = {}
    for name, segment in segments().items():
        place = folder / name
        place.mkdir(parents=True)
        kafka.write_segment(
            place,
            segment.base_offset,
            segment.batches,
            index_interval_bytes=segment.index_interval_bytes,
        )
        described[name] = describe(kafka, place, segment)
    (folder / "MANIFEST.json").write_text(manifest_text(described))
    (folder / "vectors.json").write_text(json.dumps(vectors(kafka), indent=1) + "\n")


def describe(kafka: Kafka, place: Path, segment: Segment) -> dict[str, Any]:
    """What the manifest says of a segment; all of it but the first lines is Kafka's answer."""
    base = segment.base_offset
    log, index, time_index = (
        place / f"{base:020}{suffix}" for suffix in (".log", ".index", ".timeindex")
    )
    batches = kafka.read_batches(log)
    times, offsets = probes(batches)
    found_times = kafka.find_by_timestamp(place, base, times)
    found_offsets = kafka.find_by_offset(place, base, offsets)
    return {
        "what": segment.what,
        "supported": segment.supported,
        "base_offset": base,
        "index_interval_bytes": segment.index_interval_bytes,
        "files": {path.name: checksum(path) for path in (log, index, time_index)},
        "offset_index": kafka.index_entries(index, base),
        "time_index": kafka.index_entries(time_index, base),
        "find_by_timestamp": list(zip(times, found_times, strict=True)),
        "find_by_offset": list(zip(offsets, found_offsets, strict=True)),
        "batches": [shortened(batch) for batch in batches],
    }


def probes(batches: Iterable[StoredBatch]) -> tuple[list[int], list[int]]:
    """Timestamps and offsets worth asking for: each that occurs, and its neighbours."""
    times, offsets = {0}, set()
    for batch in batches:
        offsets |= {batch.base_offset, batch.last_offset, batch.last_offset + 1}
        for time in [batch.max_timestamp, *(record.timestamp for record in batch.records)]:
            times |= {max(time, 0), time + 1}
    return sorted(times), sorted(offsets)


def checksum(path: Path) -> dict[str, Any]:
    """Size and SHA-256 of a file."""
    data = path.read_bytes()
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def shortened(batch: StoredBatch) -> dict[str, Any]:
    """The batch as JSON values, the one large value written as a repetition."""
    plain = batch_to_json(batch)
    for record, stored in zip(plain["records"], batch.records, strict=True):
        if stored.value == LARGE:
            record[3] = {"repeat": b64encode(LARGE[:47]).decode(), "times": 3000}
    return plain


def manifest_text(described: dict[str, dict[str, Any]]) -> str:
    """The manifest with a line for each fact and each batch, to be read and compared."""
    head = {
        "kafka": KAFKA_VERSION,
        "made_by": "tests/kafka/make_golden.py",
        "record": "[offset, timestamp, key, value, [[header key, header value], ...]]",
        "bytes": 'null, base64, or {"repeat": base64, "times": n}',
    }
    lines = [f" {json.dumps(name)}: {json.dumps(value)}," for name, value in head.items()]
    entries = [f"  {json.dumps(name)}: {entry_text(entry)}" for name, entry in described.items()]
    return "\n".join(["{", *lines, ' "segments": {', ",\n".join(entries), " }", "}"]) + "\n"


def entry_text(entry: dict[str, Any]) -> str:
    """One segment of the manifest."""
    facts = [f"   {json.dumps(key)}: {json.dumps(entry[key])}" for key in entry if key != "batches"]
    batches = ",\n".join(f"    {json.dumps(batch)}" for batch in entry["batches"])
    return "{\n" + ",\n".join([*facts, f'   "batches": [\n{batches}\n   ]']) + "\n  }"


def main() -> None:
    """Replaces the golden folder."""
    with tempfile.TemporaryDirectory(dir=GOLDEN.parent) as scratch, Kafka() as kafka:
        made = Path(scratch) / "made"
        make(kafka, made)
        shutil.rmtree(GOLDEN, ignore_errors=True)
        made.rename(GOLDEN)
    print(f"golden files of Kafka {KAFKA_VERSION} in {GOLDEN.relative_to(PROJECT)}")


if __name__ == "__main__":
    main()
