"""Joined record batches hold the same records, in as few batches as the limit allows."""

import itertools
import struct

from hypothesis import given
from hypothesis import strategies as st

from seglake.format.codecs.payload import payload_of
from seglake.format.decode import scan_batches
from seglake.format.encode import EncodedBatches, Encoding
from seglake.format.records import read_only
from seglake.log.rewrite.segments import rebatch
from tests.judges.described import describe
from tests.judges.kafka_model import read_log
from tests.makers.lakes import Event
from tests.makers.strategies import T, examples
from tests.unit.format.test_filter import (
    cut,
    encoded,
    filtered,
    header,
    logs,
    rebuilt,
    uncompressed,
)


def rebatched(log: bytes, limit: int) -> EncodedBatches:
    table = scan_batches(log)
    return rebatch(log, table, payload_of(read_only(log), table), limit)


@given(logs(), st.sampled_from([1, 200, 700, 16_384]), st.data())
@examples(100)
def test_the_same_records_in_fewer_batches(log: bytes, limit: int, data: st.DataObject) -> None:
    offsets = [found.offset for found in read_log(log)]
    gone = set(data.draw(st.lists(st.sampled_from(offsets), max_size=3)))
    log = filtered(log, set(offsets) - gone, {}).data.tobytes()  # with gaps
    made = rebatched(log, limit)
    after = made.data.tobytes()
    assert read_log(after) == read_log(log)
    assert made.table.tolist() == describe(after).tolist()
    before = cut(log)
    for batch in cut(after):
        base, last_delta, *_ = header(batch)
        if batch in before:
            continue
        (plain,) = uncompressed(batch)
        assert struct.unpack(">q", batch[43:51])[0] == -1  # batches of producers stay
        parts = [old for old in before if base <= header(old)[0] <= base + last_delta]
        assert len(parts) > 1
        old_bytes = sum(len(each) - 61 for part in parts for each in uncompressed(part))
        assert old_bytes + 61 <= limit
        assert len(plain) <= limit + 5 * header(batch)[5]  # deltas take a few bytes more
    sizes = [len(uncompressed(batch)[0]) - 61 for batch in cut(after)]
    if scan_batches(log)["attributes"].max(initial=0) < 8 and not producers(log):
        for first, second in itertools.pairwise(sizes):
            assert first + second + 61 > limit  # none could be joined


def producers(log: bytes) -> bool:
    return any(struct.unpack(">q", batch[43:51])[0] >= 0 for batch in cut(log))


def test_batches_that_must_stay() -> None:
    """Of a producer, with a delete horizon, with another append time or codec."""
    plain = encoded([Event(T, b"k"), Event(T, b"k")], Encoding(None, 0, 1), 0).data.tobytes()
    joined = rebatched(plain, 16_384).data.tobytes()
    assert len(cut(joined)) == 1
    of_producer = b"".join(rebuilt(batch, (5, 0, n), 0) for n, batch in enumerate(cut(plain)))
    with_horizon = filtered(plain, {0, 1}, {0: T, 1: T}).data.tobytes()
    stamps = [encoded([Event(T)], Encoding(None, 0, 1, T + n), n).data.tobytes() for n in (0, 1)]
    for log in (of_producer, with_horizon, b"".join(stamps)):
        assert rebatched(log, 16_384).data.tobytes() == log
