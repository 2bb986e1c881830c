"""Choose partitions like Kafka's producer, by the murmur2 hash of the key (`Utils.murmur2`)."""

import numpy as np

from seglake.format import encode_kernels
from seglake.format.records import Int32s, Spans


def partition_of(keys: Spans, partition_count: int, *, first_null: int = 0) -> Int32s:
    """Return the partition of each key like Kafka's producer: (hash & 0x7fffffff) % count.

    Kafka chooses a random partition for a null key. Here, the i-th null key of the call gets
    partition (first_null + i) % count, so a repeated task makes the same choice.
    """
    partitions = np.empty(len(keys), np.int32)
    encode_kernels.partition_keys(*keys.fixed(), partition_count, first_null, partitions)
    return partitions
