"""Targets: everything that is read back from a lake, and what crosses from map to reduce."""

import json
import struct
import uuid
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import crc32c
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from seglake.catalog.attempts import read_manifest
from seglake.catalog.delta.actions import WrittenFile, add_action, remove_action
from seglake.catalog.delta.commit_log import CHECKPOINT_INTERVAL, DeltaLog
from seglake.catalog.delta.data_files import read_parquet
from seglake.catalog.failed_run import failed_runs
from seglake.catalog.schema import FILE_SCHEMAS, SourceRow
from seglake.catalog.table import CONTRACT
from seglake.catalog.version.segments import segments_by_partition
from seglake.catalog.version.snapshot_files import files_after
from seglake.errors import CorruptData
from seglake.format import zonemap
from seglake.format.batch import HEADER, LEAST_RECORD_BYTES, OVERHEAD, BatchTable
from seglake.format.codecs.compression import NAMES, compressor, decompress
from seglake.format.codecs.payload import payload_of
from seglake.format.decode import (
    Decoded,
    check_crcs,
    decode_batches,
    scan,
    scan_batches,
    with_extremes,
)
from seglake.format.encode import Encoding, encode_batches, encode_bodies
from seglake.format.index import OffsetIndex, TimeIndex
from seglake.format.key_hashes import KeyHashes
from seglake.format.records import Spans, end_to_end, read_only
from seglake.format.reference import read_batch
from seglake.format.segment import choose_indexed, seal
from seglake.format.sought_kernels import EVERY_KEY
from seglake.layout import parse_attempt_key, parse_segment_key, segment_key
from seglake.log.column_kernels import DecodeRoom
from seglake.log.execute import SCHEMA, Columns
from seglake.log.segment import ALL_RECORDS, LogSegment, Window, window_limits
from seglake.log.zone_maps import ZoneSearch
from seglake.store import Listed
from seglake.write.spool.sorted_records import SortedRecords
from seglake.write.spool.spool import (
    compress_records,
    decompress_records,
    pack_batches,
    pack_records,
    unpack_batches,
    unpack_records,
)
from tests.fuzz.bounds import guarded
from tests.fuzz.targets import target
from tests.makers.lakes import Event, Shape, _encode
from tests.makers.zones import ZoneBytes

BATCH_BYTES = 2**20  # that a reader is willing to hold
_EVERYTHING = np.array([window_limits(ALL_RECORDS)])
ATTEMPT = "00000000-0000-4000-8000-000000000000"
EVENTS = [
    Event(1000 + (i * 37) % 50, None if i % 4 == 0 else b"key", b"value %d" % i, headers)
    for i in range(12)
    for headers in [(("h", b"x"), ("i", None)) if i % 3 == 0 else ()]
]

# ------------------------------------------------------------------ record batches


def _logs() -> list[bytes]:
    shapes = [Shape(codec, batch_bytes=200) for codec in NAMES]
    shapes += [Shape(append_time_ms=2000), Shape(batch_bytes=61)]
    return [b"".join(part.data.tobytes() for part in _encode(EVENTS, 7, s)) for s in shapes]


@target(CorruptData, seeds=_logs)
def logs(data: bytes) -> None:
    """A log: batch headers, checksums, records, Arrow."""
    log = guarded(data)
    table = scan_batches(log) if len(data) % 2 else scan(log)[0]
    assert table["size"].sum() <= len(data)
    with suppress(CorruptData):
        check_crcs(log, table)
    decoded = decode_batches(log, table, check_crc=False, control=True, max_batch_bytes=BATCH_BYTES)
    _check(decoded, table)


def _framed() -> list[bytes]:
    found = []
    for log in _logs():
        for row in scan_batches(log):
            batch = log[int(row["position"]) :][: int(row["size"])]
            header = np.frombuffer(batch[:OVERHEAD], HEADER)[0]
            shape = struct.pack(
                ">hiqqi", header["attributes"], header["last_offset_delta"],
                header["base_timestamp"], header["max_timestamp"], header["count"],
            )  # fmt: skip
            found.append(shape + batch[OVERHEAD:])
    return found


@target(CorruptData, seeds=_framed)
def records(data: bytes) -> None:
    """One batch whose header and checksum are right, as far as they can be."""
    if len(data) < 26:
        return
    header = np.zeros(1, HEADER)
    names = ("attributes", "last_offset_delta", "base_timestamp", "max_timestamp", "count")
    for name, value in zip(names, struct.unpack_from(">hiqqi", data), strict=True):
        header[name] = value
    header["magic"], header["length"] = 2, len(data) - 26 + OVERHEAD - 12
    batch = bytearray(header.tobytes() + data[26:])
    batch[17:21] = crc32c.crc32c(memoryview(batch)[21:]).to_bytes(4, "big")
    log = guarded(batch)
    table = scan_batches(log)
    try:
        expected = read_batch(bytes(batch), BATCH_BYTES)
    except CorruptData:
        with suppress(CorruptData):
            decode_batches(log, table, control=True, max_batch_bytes=BATCH_BYTES)
            raise AssertionError("the reference decoder refuses this batch") from None
        raise
    decoded = decode_batches(log, table, control=True, max_batch_bytes=BATCH_BYTES)
    _check(decoded, table)
    assert decoded.offsets.tolist() == [record.offset for record in expected]
    payload = payload_of(read_only(log), table, max_bytes=BATCH_BYTES)
    size_bytes = int(payload.ends[-1])
    columns = Columns(SCHEMA, size_bytes // LEAST_RECORD_BYTES + 1, size_bytes)
    segment = LogSegment("t", 0, "log", "zonemap", 0, 2**62, 2**31 - 1, 100)
    owner_of, room = np.zeros(len(table), np.int32), DecodeRoom.new()
    columns.fill(table, payload, False, 0, _EVERYTHING, owner_of, EVERY_KEY, size_bytes, room)
    found = columns.take([segment.whole()], owner_of)
    assert found["offset"].to_pylist() == decoded.offsets.tolist()


def _check(decoded: Decoded, table: BatchTable) -> None:
    """Nothing leaves its buffer, everything can be given on, and be written and read again."""
    records, n = decoded.records, len(decoded.offsets)
    assert n == int(table["count"].sum())
    spans = [records.keys, records.values]
    if records.headers is not None:
        spans += [records.headers.keys, records.headers.values]
        assert len(records.headers.firsts) == n + 1
        assert records.headers.firsts[-1] == len(records.headers.keys)
        assert records.headers.keys.lengths.min(initial=0) >= 0
    for span in spans:
        _within(span)
    rows = table[decoded.batch]
    assert np.all(
        (rows["base_offset"] <= decoded.offsets) & (decoded.offsets <= rows["last_offset"])
    )
    if n == 0 or records.timestamps.min() < -1:
        return
    known = with_extremes(table, decoded)
    assert np.all(known["min_timestamp"][known["count"] > 0] >= -1)
    bodies = encode_bodies(records, np.arange(n))
    again = encode_batches(records.timestamps, bodies, Encoding(None, 0, 200))
    copy = decode_batches(again.data, scan_batches(again.data)).records
    assert copy.timestamps.tolist() == records.timestamps.tolist()
    assert copy.keys.tolist() == records.keys.tolist()
    assert copy.values.tolist() == records.values.tolist()
    if records.headers is not None and len(records.headers.keys):
        assert copy.headers is not None
        assert copy.headers.keys.tolist() == records.headers.keys.tolist()
        assert copy.headers.values.tolist() == records.headers.values.tolist()


def _within(span: Spans) -> None:
    lengths = np.maximum(span.lengths, 0)
    assert np.all(span.lengths >= -1)
    assert np.all(span.starts >= 0)
    assert np.all((span.starts + lengths <= len(span.data)) | (lengths == 0))


def _compressed() -> list[bytes]:
    text, found = b"some content " * 9, []
    for codec, name in enumerate(NAMES):
        compress = compressor(name)
        if compress is not None:
            found += [bytes([codec, 20]) + compress(text), bytes([codec, 20]) + compress(b"a") * 2]
    unsized = zstandard.ZstdCompressor(write_content_size=False).compress(text)
    return [*found, b"\x04\x0a" + unsized]


@target(CorruptData, seeds=_compressed)
def codecs(data: bytes) -> None:
    """A compressed payload, and how many bytes it may become."""
    if len(data) < 2:
        return
    codec, limit = data[0] % 6, 1 << data[1] % 24
    found = decompress(codec, guarded(data[2:]).data, limit)
    assert len(found) <= limit
    compress = compressor(NAMES[codec])
    assert compress is not None
    assert decompress(codec, compress(found), limit) == found


# ------------------------------------------------------------------ index files


def _table() -> BatchTable:
    log = _logs()[-1]
    table = scan_batches(log)
    return with_extremes(table, decode_batches(log, table))


def _indexes() -> list[bytes]:
    table = _table()
    sealed = seal(7, table, choose_indexed(table, policy)) if (policy := Shape().policy) else None
    assert sealed is not None
    return [sealed.files["index"], sealed.files["timeindex"], b"", b"\0" * 48]


@target(CorruptData, seeds=_indexes)
def indexes(data: bytes) -> None:
    """An offset index and a time index: Kafka's rules decide what is refused."""
    file = guarded(data)
    for made in (OffsetIndex.decode(7, file.data), TimeIndex.decode(7, file.data)):
        made.check(file.data)


def _zone_maps() -> list[bytes]:
    table = _table()
    whole = zonemap.encode(zonemap.build(7, table, np.ones(len(table), bool)))
    large = np.repeat(table, 50)
    large["base_offset"] = large["last_offset"] = 7 + np.arange(len(large))
    end_to_end(large)
    two = zonemap.encode(zonemap.build(7, large, np.ones(len(large), bool)))
    empty = zonemap.encode(zonemap.build(7, table[:0], np.ones(0, bool)))
    return [mode + data for data in (whole, empty, two) for mode in (b"\0", b"\1")]


@target(CorruptData, seeds=_zone_maps, max_bytes=20_000)
def zone_maps(data: bytes) -> None:
    """A zone map, as it is or with checksums made right, and every question to it."""
    content = bytearray(data[1:])
    if data[:1] > b"\0":
        _sum_up(content)
    file = guarded(content).data
    with suppress(CorruptData):
        zonemap.decode(file)
    log_bytes = int.from_bytes(content[16:24], "little")
    segment = LogSegment("t", 0, "log", "zonemap", 7, 7 + 2**31, log_bytes, len(content))
    zones = ZoneSearch(segment, ZoneBytes(file))
    edges = np.array([-(2**63), -1, 0, 7, 8, 1020, 2**31, 2**62], np.int64)
    for edge in edges.tolist():
        block = zones.block_at(edge) or zones.next_reaching(edge)
        for _ in range(5):
            assert block is None or 0 <= block.position < block.end <= log_bytes
            if block:
                assert len(zones.min_timestamps_after(block.end)) >= 0
                assert np.all(zones.min_timestamps_after(block.end, dated=True) >= 0)
            block = block and zones.next_reaching(edge, block.end)
    piece = zones.within(Window(0, 2000, 0, 2**40))
    assert piece.records_at_most >= 0
    found = [zones.reaching(edges)[0], zones.holding(edges)[0], piece[2:]]
    for blocks in found:
        assert np.all((blocks[0] >= 0) & (blocks[0] < blocks[1]) & (blocks[1] <= log_bytes))


def _sum_up(content: bytearray) -> None:
    """Put right every checksum that has a place."""
    head, fence, entry = (
        dtype.itemsize for dtype in (zonemap.HEADER, zonemap.FENCE, zonemap.ENTRY)
    )
    if len(content) < head:
        return
    content[:6] = zonemap.MAGIC + zonemap.VERSION.to_bytes(2, "little")
    span = int.from_bytes(content[6:8], "little")
    fences = int.from_bytes(content[12:16], "little")
    end = head + fence * fences
    if end > len(content):
        return
    for number in range(fences):
        at = end + number * span * entry
        crc = crc32c.crc32c(bytes(content[at : at + span * entry]))
        place = head + number * fence + 32
        content[place : place + 4] = crc.to_bytes(4, "little")
    crc = crc32c.crc32c(bytes(content[head:end]), crc32c.crc32c(bytes(content[:24])))
    content[24:28] = crc.to_bytes(4, "little")


# ------------------------------------------------------------------ blobs of an ingest


def _blobs() -> list[bytes]:
    (batches,) = _encode(EVENTS, 0, Shape())
    (packed,) = _encode(EVENTS, 0, Shape("zstd"))
    from tests.makers.lakes import records_of  # noqa: PLC0415

    made = records_of(EVENTS)
    bodies = encode_bodies(made, np.arange(len(made)))
    keys = np.sort(made.timestamps)
    runs = [
        SortedRecords(made.timestamps, None, made.timestamps, bodies),
        SortedRecords(keys, keys.copy(), made.timestamps, bodies),
    ]
    wholes = [b"".join(pack_records(run)) for run in runs]
    squeezed = [compress_records(run) for run in runs]
    hashed = packed._replace(keys=KeyHashes.from_bodies(*bodies.fixed()[:3]))
    finished = [pack_batches(each) for each in (batches, packed, hashed)]
    return [
        *(b"\0" + x for x in squeezed),
        *(b"\1" + x for x in wholes),
        *(b"\2" + x for x in finished),
    ]


@target(CorruptData, seeds=_blobs)
def blobs(data: bytes) -> None:
    """A blob of records, compressed or not yet, or of finished batches."""
    kind, rest = data[:1], data[1:]
    if kind == b"\2":
        batches = unpack_batches(guarded(rest).data)
        assert batches.table.dtype.names
        return
    run = (unpack_records if kind == b"\1" else decompress_records)(guarded(rest).data)
    assert len(run.sort_keys) == len(run.timestamps) == len(run.bodies)
    assert np.all(run.bodies.sizes >= 0)
    assert run.bodies.sizes.sum() <= len(run.bodies.data)


# ------------------------------------------------------------------ names and lists


class _OneObject:
    """A store whose every object has the same bytes."""

    uri = "memory:"

    def __init__(self, data: bytes) -> None:
        self.data = data

    def read_all(self, _key: str) -> bytes:
        return self.data

    def list(self, prefix: str) -> list[Listed]:
        return [Listed(f"{prefix}/{ATTEMPT}", len(self.data), 0)]


def _texts() -> list[bytes]:
    source = SourceRow(
        topic="t", path="/a", size_bytes=1, modified_ms=2, etag=None, rows=3, attempt_id=ATTEMPT
    )
    manifest = {"format": 1, "rows": [{"kind": "source", **asdict(source)}], "replaced": []}
    replaced = {
        "topic": "t",
        "partition": 0,
        "base_offset": 0,
        "attempt_id": ATTEMPT,
        "index_attempt_id": ATTEMPT,
    }
    run = {"topic": "t", "pipeline": "p", "run_id": "1", "attempt_id": ATTEMPT}
    failed = {"format": 1, **run, "error": "e", "exit_code": 3, "failed_at_ms": 1, "rejects": [{}]}
    keys = [f"topics/a-b-0/{ATTEMPT}/{7:020}.log", f"attempts/{ATTEMPT}/success"]
    made = [manifest, {**manifest, "replaced": [replaced]}, failed]
    return [json.dumps(each).encode() for each in made] + [key.encode() for key in keys]


@target(CorruptData, seeds=_texts)
def texts(data: bytes) -> None:
    """What is known of a failed run, an attempt's manifest, and the keys of objects."""
    store: Any = _OneObject(data)
    for read in (_failed, _manifest, _keys):
        with suppress(CorruptData):
            read(store)


def _failed(store: Any) -> None:
    for failed in failed_runs(store, "t", "1"):
        assert isinstance(failed.error, str)
        assert isinstance(failed.exit_code, int)


def _manifest(store: Any) -> None:
    manifest = read_manifest(store, ATTEMPT)
    assert {row.KIND for row in manifest.rows} <= set(FILE_SCHEMAS)


def _keys(store: Any) -> None:
    key = store.data.decode("latin-1")
    with suppress(CorruptData):
        assert uuid.UUID(parse_attempt_key(key)[0])
    assert segment_key(parse_segment_key(key)) == key


def _commits() -> list[bytes]:
    stats = json.dumps({"numRecords": 3, "minValues": {"partition": 0}})
    values = {"kind": "segment", "topic": "t"}
    actions = [
        {"commitInfo": {"timestamp": 1, "txnId": ATTEMPT, "engineInfo": "Seglake"}},
        {"txn": {"appId": "seglake/t", "version": 3, "lastUpdated": 1}},
        add_action(WrittenFile("kind=segment/topic=t/x.parquet", 100, values, stats)),
        remove_action("kind=segment/topic=t/y.parquet", 90, values, changes=False),
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}, "metaData": {"id": ATTEMPT}},
    ]
    whole = "\n".join(map(json.dumps, actions)).encode()
    return [whole, *whole.splitlines(), b'{"version":4,"size":12,"parts":null}']


@target(CorruptData, seeds=_commits, max_bytes=1500)
def commits(data: bytes) -> None:
    """A commit of a Delta table, and what names its last checkpoint."""
    store: Any = _OneObject(data)
    log = DeltaLog(store, "table", CONTRACT)
    with suppress(CorruptData):
        assert isinstance(log.needs_checkpoint(CHECKPOINT_INTERVAL), bool)
    (entry,) = log.since(7, 1)
    assert entry.version == 8
    assert {*map(type, [*entry.removed, *entry.applications])} <= {str}
    assert entry.conflicts_with(entry) in {True, False}
    for file in files_after(frozenset(), [entry]):
        assert {type(each) for each in (file.path, file.kind, file.topic)} == {str}
        assert {type(each) for each in (file.size_bytes, file.rows)} == {int}


def _files() -> list[bytes]:
    made = []
    for kind, schema in FILE_SCHEMAS.items():
        table = pa.table([pa.array([_cell(f)], f.type) for f in schema], schema=schema)
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="none", write_statistics=False)
        made.append(sink.getvalue().to_pybytes())
        del kind
    return made


def _cell(field: Any) -> Any:
    texts = {"codec": "zstd", "timestamp_type": "CreateTime"}
    return texts.get(field.name, ATTEMPT) if pa.types.is_string(field.type) else 1


@target(CorruptData, seeds=_files, max_bytes=8_000, share=1)
def catalog_files(data: bytes) -> None:
    """A Parquet file of the catalog."""
    store: Any = _OneObject(data)
    for schema in FILE_SCHEMAS.values():
        with suppress(CorruptData):
            table = read_parquet(store, "file", schema)
            if "base_offset" in schema.names:
                segments_by_partition([table])
