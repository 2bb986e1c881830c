"""The topic of a run: its settings, which the catalog owns, and the append time of its records."""

import json
from collections.abc import Mapping
from typing import Any

from seglake.catalog.schema import TopicRow
from seglake.catalog.version.snapshot import Snapshot
from seglake.config import Pipeline, Topic, combined_topic
from seglake.config.topic import DEFAULTS, LIFECYCLE
from seglake.errors import ConfigError


def topic_in_force(snapshot: Snapshot, pipeline: Pipeline) -> Topic:
    """The pipeline's topic; settings that the pipeline does not give are those of the catalog.

    Raises ConfigError if it gives another partitioner, timestamp type or lifecycle setting than the
    topic has, or fewer partitions.
    """
    row = snapshot.find_topic(pipeline.topic.name)
    if row is None:
        return pipeline.topic
    settings = pipeline.topic.said()
    topic = combined_topic(stored_settings(row), settings)
    _require_same(row, topic, settings)
    return topic


def topic_rows(snapshot: Snapshot, pipeline: Pipeline) -> list[TopicRow]:
    """The row that the run adds for its topic; empty if the catalog has these settings already.

    Raises ConfigError as `topic_in_force` does.
    """
    topic = topic_in_force(snapshot, pipeline)
    row = snapshot.find_topic(topic.name)
    if row is None:
        return [_row(topic, 1, {})]
    stored = json.loads(row.settings)
    new = _row(topic, row.sequence + 1, stored)
    if (row.partitions, stored) == (new.partitions, json.loads(new.settings)):
        return []
    return [new]


def stored_settings(row: TopicRow) -> dict[str, Any]:
    """The settings in a topic's row, by the keys of `[topic]`, except the partitioner."""
    return {
        **json.loads(row.settings),
        "partitions": row.partitions,
        "message.timestamp.type": row.timestamp_type,
    }


def _require_same(row: TopicRow, topic: Topic, settings: Mapping[str, Any]) -> None:
    has = f"topic {row.topic!r} has"
    for name, expected, key in (
        (row.partitioner, _partitioner(topic), "partitioner"),
        (row.timestamp_type, topic.message_timestamp_type, "message.timestamp.type"),
    ):
        if name != expected:
            raise ConfigError(
                f"{has} {key} = {name!r}, the pipeline says {expected!r}: correct the pipeline or "
                "choose another topic"
            )
    if topic.partitions < row.partitions:
        raise ConfigError(
            f"{has} {row.partitions} partitions and cannot shrink to {topic.partitions}: raise "
            "topic.partitions"
        )
    stored = json.loads(row.settings)
    _require_same_source(row, stored, settings)
    for key in (key for key in LIFECYCLE if key in settings):
        value = stored.get(key, DEFAULTS[key])
        if value != settings[key]:
            raise ConfigError(
                f"{has} {key} = {value!r}, the pipeline says {settings[key]!r}: remove it from the "
                f"pipeline, or change the topic with `seglake alter ROOT {row.topic} "
                f"{key}={settings[key]}`"
            )


def _require_same_source(
    row: TopicRow, stored: Mapping[str, Any], settings: Mapping[str, Any]
) -> None:
    """Raise ConfigError for another Kafka topic than the one whose offsets the records keep."""
    stored_id, given_id = stored.get("kafka.topic.id"), settings.get("kafka.topic.id")
    if None not in (stored_id, given_id) and stored_id != given_id:
        raise ConfigError(
            f"topic {row.topic!r} has the offsets of the Kafka topic with id {stored_id}, and "
            f"that topic has id {given_id} now: it was deleted and made again, so its offsets are "
            "those of other records; archive it as another topic"
        )


def settings_json(topic: Topic, stored: Mapping[str, Any]) -> str:
    """The settings for a topic's row; those that another version of Seglake stored stay."""
    others = {key: value for key, value in stored.items() if key not in DEFAULTS}
    return json.dumps({**topic.settings, **others})


def _row(topic: Topic, sequence: int, stored: Mapping[str, Any]) -> TopicRow:
    return TopicRow(
        topic=topic.name,
        sequence=sequence,
        partitions=topic.partitions,
        partitioner=_partitioner(topic),
        timestamp_type=topic.message_timestamp_type,
        settings=settings_json(topic, stored),
    )


def _partitioner(topic: Topic) -> str:
    field, offsets = topic.partition_field, topic.offset_field
    if field is None:
        return topic.partitioner
    return f"field:{field}" if offsets is None else f"field:{field} offset:{offsets}"


def append_time(snapshot: Snapshot, topic: str, now_ms: int) -> int:
    """The append time of a run: now, or the topic's largest timestamp if that is later."""
    return max([now_ms, *(view.largest_timestamp for view in snapshot.find_partitions(topic))])
