"""Combine the topic settings of a pipeline and the catalog, and compute the append time."""

import json
import logging
from collections.abc import Callable, Mapping
from shlex import quote
from typing import Any

from pydantic import ValidationError

from seglake.advice.finding import Finding
from seglake.catalog.schema import TopicRow
from seglake.catalog.version.snapshot import Snapshot
from seglake.config import Pipeline, Topic, combined_topic
from seglake.config.topic import DEFAULTS, LIFECYCLE, VALUE_SETTINGS
from seglake.errors import ConfigError

logger = logging.getLogger(__name__)

Seed = Callable[[], Mapping[str, Any]]  # returns settings `value.*`; may read the input


def current_topic(snapshot: Snapshot, pipeline: Pipeline, seed: Seed = dict) -> Topic:
    """Return the pipeline's topic, with the catalog's settings where the pipeline has none.

    If the topic never had a record, and neither the pipeline nor the catalog has `value.*`
    settings, `seed()` returns these settings. Raises ConfigError if the pipeline's partitioner,
    timestamp type or lifecycle settings differ from the topic's, or if it has fewer partitions.
    """
    row, settings = snapshot.find_topic(pipeline.topic.name), pipeline.topic.overrides()
    stored = {} if row is None else stored_settings(row)
    views = snapshot.find_partitions(pipeline.topic.name)
    is_new = not any(view.end_offset for view in views)
    if is_new and not any(key in VALUE_SETTINGS for key in {**stored, **settings}):
        stored = {**_allowed(seed()), **stored}
    if not stored:
        return pipeline.topic
    topic = combined_topic(stored, settings)
    if row is not None:
        _require_same(row, topic, settings, pipeline.root)
    return topic


def _allowed(seed: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return `seed`, or {} with a logged warning if it is not valid for a topic."""
    try:
        Topic.model_validate({"name": "any", **seed})
    except ValidationError as refused:
        logger.warning("the value.* settings of the topic keep their defaults: %s", refused)
        return {}
    return seed


def topic_rows(snapshot: Snapshot, pipeline: Pipeline, seed: Seed = dict) -> list[TopicRow]:
    """Return the topic row that the run adds, or [] if the catalog already has these settings.

    See `current_topic` for `seed` and for the reasons of a ConfigError.
    """
    topic = current_topic(snapshot, pipeline, seed)
    row = snapshot.find_topic(topic.name)
    stored = {} if row is None else json.loads(row.settings)
    new = TopicRow(
        topic=topic.name,
        sequence=1 if row is None else row.sequence + 1,
        partitions=topic.partitions,
        partitioner=_partitioner(topic),
        timestamp_type=topic.message_timestamp_type,
        settings=settings_json(topic, stored),
    )
    known = row is not None and row.partitions == new.partitions
    return [] if known and stored == json.loads(new.settings) else [new]


def partition_growth_finding(snapshot: Snapshot, topic: Topic) -> list[Finding]:
    """Return a finding if a run, even without records, raises the topic's partition count."""
    row = snapshot.find_topic(topic.name)
    if row is None or row.partitions >= topic.partitions:
        return []
    facts = {"now": topic.partitions, "before": row.partitions}
    return [Finding("more-partitions", "topic.partitions", facts)]


def value_settings_finding(topic: Topic, value_settings: Mapping[str, Any]) -> list[Finding]:
    """Return a finding if the topic's value format differs from the value format of the input.

    `value_settings` are the settings `value.*` that the input would give a new topic.
    """
    if not value_settings or topic.value_format == "json":
        return []
    has, own = {**DEFAULTS, **topic.settings}, {**DEFAULTS, **value_settings}
    for key in VALUE_SETTINGS:
        if has[key] != own[key]:
            return [Finding("other-value-format", key, {"has": has[key], "own": own[key]})]
    return []


def stored_settings(row: TopicRow) -> dict[str, Any]:
    """Return the settings in a topic's row, without the partitioner, by their keys in `[topic]`."""
    columns = {"partitions": row.partitions, "message.timestamp.type": row.timestamp_type}
    return {**json.loads(row.settings), **columns}


def topic_from_row(row: TopicRow) -> Topic:
    """Return all settings of a topic, with defaults where the row has none. Raises ConfigError."""
    return combined_topic(stored_settings(row), {"name": row.topic})


def _require_same(row: TopicRow, topic: Topic, settings: Mapping[str, Any], root: str) -> None:
    has = f"topic {row.topic!r} has"
    for name, expected, key in (
        (row.partitioner, _partitioner(topic), "partitioner"),
        (row.timestamp_type, topic.message_timestamp_type, "message.timestamp.type"),
    ):
        if name != expected:
            raise ConfigError(
                f"{has} {key} = {name!r}, but the pipeline has {expected!r}. Correct the "
                f"pipeline or choose another topic"
            )
    if topic.partitions < row.partitions:
        raise ConfigError(
            f"{has} {row.partitions} partitions, which cannot be lowered to {topic.partitions}. "
            f"Raise topic.partitions"
        )
    stored = json.loads(row.settings)
    stored_id, new_id = stored.get("kafka.topic.id"), settings.get("kafka.topic.id")
    if None not in (stored_id, new_id) and stored_id != new_id:
        raise ConfigError(
            f"topic {row.topic!r} has the offsets of the Kafka topic with id {stored_id}, and "
            f"that topic now has id {new_id}. It was deleted and created again, so the same "
            f"offsets have other records. Ingest it into another topic"
        )
    for key in (key for key in LIFECYCLE if key in settings):
        value = stored.get(key, DEFAULTS[key])
        if value != settings[key]:
            raise ConfigError(
                f"{has} {key} = {value!r}, but the pipeline has {settings[key]!r}. Remove it from "
                f"the pipeline, or change the topic with `seglake alter {quote(root)} {row.topic} "
                f"{key}={settings[key]}`"
            )


def settings_json(topic: Topic, stored: Mapping[str, Any]) -> str:
    """Return the settings for a topic's row as JSON.

    Settings in `stored` that only another version of Seglake has are kept.
    """
    others = {key: value for key, value in stored.items() if key not in DEFAULTS}
    return json.dumps({**topic.settings, **others})


def _partitioner(topic: Topic) -> str:
    field, offsets = topic.partition_field, topic.offset_field
    if field is None:
        return "murmur2"
    return f"field:{field}" if offsets is None else f"field:{field} offset:{offsets}"


def append_time(snapshot: Snapshot, topic: str, now_ms: int) -> int:
    """Return the larger of `now_ms` and the topic's largest timestamp, as append time in ms."""
    return max([now_ms, *(view.largest_timestamp for view in snapshot.find_partitions(topic))])
