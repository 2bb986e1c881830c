"""A topic's settings as rules for its bytes: record batches, index entries, segments."""

from seglake.config import Topic
from seglake.format.codecs.compression import IDS, compressor
from seglake.format.encode import Encoding
from seglake.format.index import RECORD_KEYS, IndexPolicy
from seglake.format.segment import SegmentLimits


def encoding_of(topic: Topic, append_time_ms: int) -> Encoding:
    """How the topic's records become record batches, with hashes of keys for its key indexes.

    Only LogAppendTime uses `append_time_ms`.
    """
    levels = {"zstd": topic.compression_zstd_level, "gzip": topic.compression_gzip_level}
    stamped = topic.message_timestamp_type == "LogAppendTime"
    return Encoding(
        compressor(topic.compression_type, levels.get(topic.compression_type)),
        IDS[topic.compression_type],
        topic.batch_size,
        append_time_ms if stamped else None,
        hash_keys=topic.index_subjects == (RECORD_KEYS,),
    )


def policy_of(topic: Topic) -> IndexPolicy:
    """When a record batch of the topic gets an index entry."""
    return IndexPolicy(*topic.index_interval, topic.index_subjects)


def limits_of(topic: Topic) -> SegmentLimits:
    """When the topic's segments roll."""
    return SegmentLimits(topic.segment_bytes, topic.segment_ms, topic.segment_index_bytes)
