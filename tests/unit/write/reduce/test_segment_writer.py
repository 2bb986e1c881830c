"""Batches and segments on the reduce side: nothing depends on how records were buffered."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglake.catalog.schema import SegmentId
from seglake.format.codecs.compression import IDS, NAMES, compressor
from seglake.format.encode import Encoding, encode_batches, encode_bodies
from seglake.format.records import Records, Spans
from seglake.layout import new_attempt
from seglake.log.writer import SegmentWriter
from seglake.store import open_store
from seglake.write.reduce.tasks import consecutive, encode
from seglake.write.spool.sorted_records import SortedRecords
from seglake.write.spool.spool import pack_batches, unpack_batches
from tests.makers.strategies import T, topic_of


def whole_run(values: list[bytes], times: list[int]) -> SortedRecords:
    records = Records(
        np.array(times, np.int64), Spans.nulls(len(values)), Spans.from_list([*values])
    )
    bodies = encode_bodies(records, np.arange(len(values)))
    return SortedRecords(records.timestamps, None, records.timestamps, bodies)


records_lists = st.lists(
    st.tuples(st.binary(max_size=60), st.integers(T, T + 5000)), min_size=1, max_size=60
)


@given(records_lists, st.lists(st.integers(0, 60), max_size=8), st.sampled_from(NAMES),
       st.sampled_from([1, 100, 250, 10**5]))  # fmt: skip
def test_batches_do_not_depend_on_the_buffer(
    given_records: list[tuple[bytes, int]], cuts: list[int], codec: str, batch_bytes: int
) -> None:
    values, times = zip(*given_records, strict=True)
    run = whole_run([*values], [*times])
    encoding = Encoding(compressor(codec), IDS[codec], batch_bytes)
    whole = encode_batches(run.timestamps, run.bodies, encoding, base_offset=5)
    edges = [0, *sorted(min(cut, len(run)) for cut in cuts), len(run)]
    parts = (run.part(start, end) for start, end in itertools.pairwise(edges))
    found = list(encode(parts, encoding, 5))
    assert b"".join(part.data.tobytes() for part in found) == whole.data.tobytes()
    tables = np.concatenate([part.table for part in found])
    for name in set(whole.table.dtype.names or ()) - {"position"}:
        assert tables[name].tolist() == whole.table[name].tolist()


@given(
    records_lists, st.sampled_from(NAMES), st.integers(1, 9), st.sampled_from([1, 150, 10**5]),
    st.booleans(),
)  # fmt: skip
def test_finished_batches_travel_and_follow_each_other(
    given_records: list[tuple[bytes, int]], codec: str, size: int, batch_bytes: int, hashed: bool
) -> None:
    encoding = Encoding(compressor(codec), IDS[codec], batch_bytes, hash_keys=hashed)
    parts, expected, base = [], b"", 1000
    for at in range(0, len(given_records), size):
        some = given_records[at : at + size]
        values, times = zip(*some, strict=True)
        run = whole_run([*values], [*times])
        parts.append(encode_batches(run.timestamps, run.bodies, encoding))
        expected += encode_batches(
            run.timestamps, run.bodies, encoding, base_offset=base
        ).data.tobytes()
        base += len(some)
    arrived = (unpack_batches(pack_batches(part)) for part in parts)
    found = list(consecutive(arrived, 1000))
    assert b"".join(part.data.tobytes() for part in found) == expected
    offsets = [row for part in found for row in part.table[["base_offset", "last_offset"]].tolist()]
    assert offsets[0][0] == 1000
    for sent, part in zip(parts, found, strict=True):
        assert (part.keys is not None) is hashed
        if sent.keys and part.keys:
            assert [column.tolist() for column in part.keys] == [
                column.tolist() for column in sent.keys
            ]
    assert all(a[1] + 1 == b[0] for a, b in itertools.pairwise(offsets))


def test_after_an_error_no_file_is_published(tmp_path: Path) -> None:
    run = whole_run([b"v" * 50] * 40, [T] * 40)
    batches = encode_batches(run.timestamps, run.bodies, Encoding(None, 0, 200))
    attempt = new_attempt()
    first = SegmentId("events", 0, 0, attempt, attempt)

    def fail() -> None:
        with SegmentWriter(open_store(str(tmp_path)), first, topic_of(), T) as writer:
            writer.append(batches)
            raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        fail()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
