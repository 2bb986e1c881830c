"""The topic that a run writes to: created, grown, or contradicted."""

from __future__ import annotations

import json

from seglake.catalog.rows import TopicRow
from seglake.catalog.version.snapshot import Snapshot
from seglake.config import Pipeline, Topic
from seglake.errors import ConfigError, UnknownTopic

IDENTITY = {"name", "partitions", "partitioner", "partition_field", "message_timestamp_type"}


def topic_row(snapshot: Snapshot, pipeline: Pipeline) -> list[TopicRow]:
    """The row that the run has to add for its topic; none where the catalog says the same already.

    The partition count may only grow; partitioner and timestamp type never change. Raises
    ConfigError.
    """
    wanted = _wanted(pipeline.topic)
    try:
        known = snapshot.topic(wanted.topic)
    except UnknownTopic:
        return [wanted]
    for name, key in (("partitioner", "partitioner"), ("timestamp_type", "message.timestamp.type")):
        if getattr(known, name) != getattr(wanted, name):
            raise ConfigError(
                f"topic {wanted.topic!r} has {key} = {getattr(known, name)!r}, the pipeline says "
                f"{getattr(wanted, name)!r}: correct the pipeline or choose another topic"
            )
    if wanted.partitions < known.partitions:
        raise ConfigError(
            f"topic {wanted.topic!r} has {known.partitions} partitions and cannot shrink to "
            f"{wanted.partitions}: raise topic.partitions"
        )
    if (known.partitions, known.settings) == (wanted.partitions, wanted.settings):
        return []
    return [_wanted(pipeline.topic, known.sequence + 1)]


def _wanted(topic: Topic, sequence: int = 1) -> TopicRow:
    field = topic.partition_field
    return TopicRow(
        topic=topic.name,
        sequence=sequence,
        partitions=topic.partitions,
        partitioner=topic.partitioner if field is None else f"field:{field}",
        timestamp_type=topic.message_timestamp_type,
        settings=json.dumps(topic.model_dump(mode="json", by_alias=True, exclude=IDENTITY)),
    )


def append_time(snapshot: Snapshot, topic: str, now_ms: int) -> int:
    """The time that LogAppendTime records of a run get: now, but never before the topic's last."""
    try:
        views = snapshot.partitions(topic)
    except UnknownTopic:
        return now_ms
    return max(now_ms, *(view.largest_timestamp for view in views))
