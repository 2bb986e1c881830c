"""Hashes against Kafka's: the partition of a key, and CRC-32C."""

import crc32c
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from seglake.format.partitioner import partition_of
from seglake.format.records import Spans
from tests.judges.kafka_judge import Kafka
from tests.makers.strategies import examples

keys = st.lists(
    st.one_of(st.binary(max_size=9), st.binary(max_size=200), st.text(max_size=20).map(str.encode)),
    max_size=200,
)


@given(keys, st.integers(1, 100_000))
@examples(50)
def test_partitions_are_kafkas(kafka: Kafka, given_keys: list[bytes], count: int) -> None:
    spans = Spans.from_list([*given_keys])
    backwards = spans.take(np.arange(len(spans))[::-1].copy())  # keys stand anywhere in a buffer
    hashes = kafka.murmur2(given_keys)
    for partitions in (count, 2**31 - 1):
        want = [(found & 0x7FFFFFFF) % partitions for found in hashes]
        assert partition_of(spans, partitions).tolist() == want
        assert partition_of(backwards, partitions).tolist() == want[::-1]


def test_the_producers_own_partitioner(kafka: Kafka) -> None:
    producer = kafka._gateway.jvm.org.apache.kafka.clients.producer.internals.BuiltInPartitioner
    some = [b"user-%d" % number for number in range(200)]
    for count in (1, 3, 64):
        theirs = [producer.partitionForKey(bytearray(key), count) for key in some]
        assert partition_of(Spans.from_list([*some]), count).tolist() == theirs


@given(st.lists(st.binary(max_size=2000), min_size=1, max_size=4))
@examples(50)
def test_checksums_are_kafkas(kafka: Kafka, parts: list[bytes]) -> None:
    found = 0
    for part in parts:  # as a log is written: piece by piece
        found = crc32c.crc32c(part, found)
    assert found == kafka.crc32c(b"".join(parts))
