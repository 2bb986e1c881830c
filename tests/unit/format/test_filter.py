"""Filtered record batches against a model that writes them byte by byte."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglake.errors import UsageError
from seglake.format.batch import OVERHEAD
from seglake.format.codecs.compression import IDS, compressor
from seglake.format.codecs.payload import payload_of
from seglake.format.decode import decode_batches, scan_batches, with_record_times
from seglake.format.encode import EncodedBatches, Encoding, encode_batches, encode_bodies
from seglake.format.filter import NO_HORIZON, blank, copied, emptied, filter_batches
from seglake.format.records import read_only
from tests.judges.described import describe
from tests.judges.kafka_model import CODECS, batch_bytes, decompress, read_log, record_bytes
from tests.judges.kafka_model import Record as ModelRecord
from tests.makers.lakes import Event, records_of
from tests.makers.strategies import T, event_lists, examples

HORIZON = 0x40


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    """Logs as producers leave them: batches with producers, epochs, both timestamp types."""
    codec = draw(st.sampled_from(CODECS))
    events = draw(event_lists(max_size=25))
    batch_bytes_ = draw(st.sampled_from([1, 150, 700]))
    append_time = draw(st.sampled_from([None, T + 5]))
    encoding = Encoding(compressor(codec), IDS[codec], batch_bytes_, append_time)
    made = encoded(events, encoding, draw(st.sampled_from([0, 1000, 2**40])))
    producer = draw(st.sampled_from([(-1, -1, -1), (4711, 3, 17)]))
    return stamped(made, producer, draw(st.sampled_from([0, 9])))


def encoded(events: list[Event], encoding: Encoding, base_offset: int) -> EncodedBatches:
    records = records_of(events)
    bodies = encode_bodies(records, np.arange(len(events)))
    return encode_batches(records.timestamps, bodies, encoding, base_offset=base_offset)


def stamped(made: EncodedBatches, producer: tuple[int, int, int], leader_epoch: int) -> bytes:
    """The same batches of a producer and a leader epoch; the model computes their checksums."""
    log = b""
    for row in made.table:
        at, size = int(row["position"]), int(row["size"])
        log += rebuilt(made.data[at : at + size].tobytes(), producer, leader_epoch)
    return log


def rebuilt(batch: bytes, producer: tuple[int, int, int], leader_epoch: int) -> bytes:
    base, last_delta, attributes, first, highest, count = header(batch)
    return batch_bytes(
        base, batch[OVERHEAD:], last_delta=last_delta, base_timestamp=first,
        max_timestamp=highest, count=count, attributes=attributes, epoch=leader_epoch,
        producer=producer,
    )  # fmt: skip


def header(batch: bytes) -> tuple[int, int, int, int, int, int]:
    """Base offset, last offset delta, attributes, both timestamps, count."""
    base, attributes, last_delta, first, highest = struct.unpack(">q13xhiqq", batch[:43])
    (count,) = struct.unpack(">i", batch[57:61])
    return base, last_delta, attributes, first, highest, count


def cut(log: bytes) -> list[bytes]:
    batches = []
    while log:
        size = 12 + struct.unpack(">i", log[8:12])[0]
        batches.append(log[:size])
        log = log[size:]
    return batches


def model_filter(batch: bytes, keep: set[int], horizon: int) -> bytes:
    """`MemoryRecords.filterTo` for one batch, its records uncompressed; nothing if none stays."""
    found = read_log(batch)
    some = [each for each in found if each.offset in keep]
    base, last_delta, attributes, first, highest, count = header(batch)
    new = horizon >= 0 and not attributes & HORIZON
    if not some or (len(some) == count and not new):
        return batch if some else b""
    if new:
        attributes, first = attributes | HORIZON, horizon
    elif not attributes & HORIZON:
        first = some[0].record.timestamp
    if not attributes & 8:
        highest = max(-1, *(each.record.timestamp for each in some))
    payload = b"".join(record_bytes(e.record, first, e.offset - base) for e in some)
    (epoch,) = struct.unpack(">i", batch[12:16])
    return batch_bytes(
        base, payload, last_delta=last_delta, base_timestamp=first, max_timestamp=highest,
        count=len(some), attributes=attributes, epoch=epoch,
        producer=struct.unpack(">qhi", batch[43:57]),
    )  # fmt: skip


def uncompressed(log: bytes) -> list[bytes]:
    """The same batches as a producer without compression would write them."""
    return [
        batch_bytes(
            base, decompress(attributes & 7, batch[OVERHEAD:]), last_delta=last_delta,
            base_timestamp=first, max_timestamp=highest, count=count, attributes=attributes & ~7,
            epoch=struct.unpack(">i", batch[12:16])[0],
            producer=struct.unpack(">qhi", batch[43:57]),
        )
        for batch in cut(log)
        for base, last_delta, attributes, first, highest, count in [header(batch)]
    ]  # fmt: skip


def filtered(log: bytes, keep: set[int], horizons: dict[int, int]) -> EncodedBatches:
    """What the product makes; `horizons` by base offset."""
    table = scan_batches(log)
    decoded = decode_batches(log, table, control=True)
    stays = np.isin(decoded.offsets, np.array(sorted(keep), np.int64))
    wanted = [horizons.get(base, NO_HORIZON) for base in table["base_offset"].tolist()]
    return filter_batches(log, table, decoded, stays, np.array(wanted, np.int64))


@given(logs(), st.data())
@examples(100)
def test_filtered_batches_are_kafkas(log: bytes, data: st.DataObject) -> None:
    """Twice, so that batches with gaps and horizons are filtered too."""
    for _ in range(2):
        offsets = [found.offset for found in read_log(log)]
        keep = set(data.draw(st.lists(st.sampled_from(offsets or [0]))))
        keep |= set(offsets[data.draw(st.integers(0, 30)) :])
        bases = [header(batch)[0] for batch in cut(log)]
        some = data.draw(st.dictionaries(st.sampled_from(bases or [0]), st.integers(0, T)))
        made = filtered(log, keep, some)
        after = made.data.tobytes()
        expected = [model_filter(b, keep, some.get(header(b)[0], -1)) for b in uncompressed(log)]
        assert uncompressed(after) == [batch for batch in expected if batch]
        for old, plain, new in zip(cut(log), uncompressed(log), expected, strict=True):
            assert plain != new or old in cut(after)  # what loses nothing is copied
        assert made.table.tolist() == describe(after).tolist()
        log = after


@given(logs(), st.data())
@examples(50)
def test_record_times_complete_a_table(log: bytes, data: st.DataObject) -> None:
    offsets = [found.offset for found in read_log(log)]
    keep = set(data.draw(st.lists(st.sampled_from(offsets), min_size=1)))
    made = filtered(log, keep, {}).data.tobytes()
    table = scan_batches(made)
    payload = payload_of(read_only(made), table)
    assert with_record_times(table, payload).tolist() == describe(made).tolist()


@given(logs(), st.data())
@examples(50)
def test_copied_batches(log: bytes, data: st.DataObject) -> None:
    table = describe(log)
    chosen = data.draw(st.lists(st.booleans(), min_size=len(table), max_size=len(table)))
    made = copied(log, table[np.array(chosen, bool)])
    expected = [batch for batch, taken in zip(cut(log), chosen, strict=True) if taken]
    assert made.data.tobytes() == b"".join(expected)
    assert made.table.tolist() == describe(made.data).tolist()


@given(logs())
@examples(30)
def test_emptied_batch(log: bytes) -> None:
    for batch in cut(log):
        base, last_delta, attributes, *_ = header(batch)
        (epoch,) = struct.unpack(">i", batch[12:16])
        expected = batch_bytes(
            base, b"", last_delta=last_delta, base_timestamp=-1, max_timestamp=-1, count=0,
            attributes=attributes & ~0x47, epoch=epoch,
            producer=struct.unpack(">qhi", batch[43:57]),
        )  # fmt: skip
        made = emptied(batch[:OVERHEAD])
        assert made.data.tobytes() == expected
        assert made.table.tolist() == describe(expected).tolist()


@pytest.mark.parametrize(("base", "last"), [(0, 0), (7, 2**31 + 6), (2**40, 2**40 + 5)])
def test_blank_batch(base: int, last: int) -> None:
    made = blank(base, last)
    expected = batch_bytes(
        base, b"", last_delta=last - base, base_timestamp=-1, max_timestamp=-1, count=0
    )
    assert made.data.tobytes() == expected
    assert made.table.tolist() == describe(expected).tolist()


@pytest.mark.parametrize(("base", "last"), [(0, 2**31), (5, 4)])
def test_blank_batch_of_impossible_offsets(base: int, last: int) -> None:
    with pytest.raises(UsageError, match=r"2\^31"):
        blank(base, last)


def test_the_first_record_that_stays_gives_the_base_timestamp() -> None:
    events = [Event(T + 5, b"a"), Event(T + 90, b"b"), Event(T, b"c")]
    made = encoded(events, Encoding(None, 0), 10)
    after = filtered(made.data.tobytes(), {11, 12}, {}).data.tobytes()
    assert header(after) == (10, 2, 0, T + 90, T + 90, 2)
    records = [ModelRecord(T + 90, b"b", b""), ModelRecord(T, b"c", b"")]
    assert [found.record for found in read_log(after)] == records
