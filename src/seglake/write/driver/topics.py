"""The topic of a run: the row that creates or changes it, and the append time of its records."""

import json

from seglake.catalog.rows import TopicRow
from seglake.catalog.version.snapshot import Snapshot
from seglake.config import Pipeline, Topic
from seglake.errors import ConfigError, UnknownTopic

IDENTITY = {"name", "partitions", "partitioner", "partition_field", "message_timestamp_type"}


def topic_row(snapshot: Snapshot, pipeline: Pipeline) -> list[TopicRow]:
    """The row that the run adds for its topic; empty if the catalog has these settings already.

    Raises ConfigError if the partition count shrinks, or partitioner or timestamp type change.
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
    """The append time of a run: now, or the topic's largest timestamp if that is later."""
    try:
        views = snapshot.partitions(topic)
    except UnknownTopic:
        return now_ms
    return max(now_ms, *(view.largest_timestamp for view in views))
