"""Convert a topic's settings to rules for its bytes: record batches, index entries, segments."""

from seglake.config import Topic
from seglake.config.topic import WEEK_MS
from seglake.format.codecs.compression import IDS, compressor
from seglake.format.encode import Encoding
from seglake.format.index import RECORD_KEYS, IndexPolicy
from seglake.format.segment import SegmentLimits
from seglake.limits import INT64_MAX


def encoding_of(topic: Topic, append_time_ms: int) -> Encoding:
    """Return how to encode the topic's records as batches, and whether to hash their keys.

    Only a topic with LogAppendTime uses `append_time_ms`.
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
    """Return the policy that decides which record batches of the topic get an index entry."""
    return IndexPolicy(*topic.index_interval, topic.index_subjects)


def limits_of(topic: Topic) -> SegmentLimits:
    """Return the limits at which the topic's segments roll.

    Retention removes whole segments. Topics with retention and no `segment.ms` roll after a week.
    """
    rolls_by_time = topic.segment_ms < INT64_MAX or topic.retention_ms < 0
    segment_ms = topic.segment_ms if rolls_by_time else WEEK_MS
    return SegmentLimits(topic.segment_bytes, segment_ms, topic.segment_index_bytes)
