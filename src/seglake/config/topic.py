"""Define the section `[topic]`, and combine its settings with the settings in the catalog.

The settings of a topic are stored in the catalog. The pipeline that creates the topic sets them. A
later pipeline may change *layout* settings, which then apply to the topic. Only `seglake alter`
changes *lifecycle* settings. A setting that a pipeline leaves out keeps its value in the catalog.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import ConfigDict, Field, model_validator

from seglake.config import rules
from seglake.config.sections import Section
from seglake.format.index import Subjects, subjects_of
from seglake.format.value_format import OWN_SETTINGS, value_format_of
from seglake.limits import ALL_TIMES, INT32_MAX, INT64_MAX, INT64_MIN

WEEK_MS = 7 * 24 * 3_600_000  # Kafka's segment.ms
_OUR_KEYS = {"partition_field", "offset_field"}


def _key(name: str) -> str:
    """Return the key in the pipeline file for a Python field, with dots instead of underscores.

    If a key does not exist in Kafka, its underscores are kept.
    """
    return name if name in _OUR_KEYS else name.replace("_", ".")


class Topic(Section):
    """The settings of the topic. Kafka's keys have the same meaning as in Kafka.

    The catalog stores these settings, too. A key that the pipeline leaves out keeps the value that
    the topic has. A time in ms may be written as `"90s"`, `"12h"`, `"7d"` or `"2w"`; the catalog
    stores milliseconds. A size in bytes may be written as `"64KiB"`, `"512MiB"` or `"1GiB"`.
    `"1GB"` is refused, because some read it as 10^9 bytes and others as 2^30.
    """

    model_config = ConfigDict(alias_generator=_key)

    name: rules.TopicName = Field(description="a name that Kafka allows")
    partitions: int = Field(
        default=1, ge=1, le=100_000, description="number of partitions; can only grow"
    )
    partition_field: rules.FieldName | None = Field(
        default=None,
        description="the field that has the partition number; default: a hash of the key",
    )
    offset_field: rules.FieldName | None = Field(
        default=None,
        description="the field that has the offset: records keep their offsets, including gaps, "
        "and rows below the end of their log partition are skipped. Needs `partition_field` and "
        '`pipeline.order = "arrival"`',
    )
    message_timestamp_type: Literal["CreateTime", "LogAppendTime"] = Field(
        default="CreateTime", description="timestamps are event times, or the start of the run"
    )
    segment_bytes: rules.Size = Field(
        default=2**30, ge=14, le=INT32_MAX, description="largest size of a `.log` file"
    )
    segment_ms: rules.Ms = Field(
        default=INT64_MAX,
        ge=1,
        description="a batch that is later than the first batch of its segment by more than this "
        "begins the next segment; default: no limit, or a week (Kafka's) if `retention.ms` is set",
    )
    index_interval_bytes: rules.Size = Field(
        default=4096,
        ge=0,
        le=INT32_MAX,
        description="add an index entry after more than this number of bytes; 0: for every batch",
    )
    index_keys: bool = Field(
        default=False,
        description="new segments get a key index, so that `seglake find` reads few blocks. "
        "`seglake reindex` adds it to older segments",
    )
    index_fields: rules.IndexNames = Field(
        default=(), description="fields of values that the key index covers, for `find --where`"
    )
    index_headers: rules.IndexNames = Field(
        default=(), description="headers that the key index covers, for `find --header`"
    )
    value_format: Literal["json", "csv", "text"] = Field(
        default="json",
        description="format of the values' fields, for searches, indexes and columns: JSON "
        "objects, CSV records or lines of text. An ingest sets it if it creates a topic of raw "
        "CSV lines, or of text with a pattern",
    )
    value_columns: rules.ColumnNames = Field(
        default=(), description="csv: names of the columns, in order; an empty name skips a column"
    )
    value_delimiter: rules.OneByte = Field(default=",", description="csv: separator of fields")
    value_quote: rules.OneByte = Field(default='"', description="csv: quote around a field")
    value_escape: rules.Escape | None = Field(
        default=None, description="csv: character that escapes a quote or itself inside quotes"
    )
    value_pattern: rules.Pattern | None = Field(
        default=None,
        description="text: RE2 pattern that matches from a value's start; named groups are fields",
    )
    segment_index_bytes: rules.Size = Field(
        default=10_485_760, ge=24, le=INT32_MAX, description="largest size of an index file"
    )
    compression_type: Literal["none", "gzip", "snappy", "lz4", "zstd"] = Field(
        default="zstd", description="codec of record batches"
    )
    compression_zstd_level: int = Field(
        default=1, ge=-131072, le=22, description="level of zstd; Kafka's default is 3"
    )
    compression_gzip_level: int = Field(
        default=-1, ge=-1, le=9, description="level of gzip; -1: zlib's default"
    )
    max_message_bytes: rules.Size = Field(
        default=1_048_588,
        ge=100,
        le=INT32_MAX,
        description="largest record; larger ones are quarantined. The size is 82 bytes for batch "
        "and record, the key, the value, and each header, with 5 bytes for each length",
    )
    batch_size: rules.Size = Field(
        default=16_384, ge=1, le=INT32_MAX, description="size of a record batch before compression"
    )

    retention_ms: rules.Ms = Field(
        default=-1,
        ge=-1,
        description="`seglake retain` removes segments whose records are all older; -1: never",
    )
    retention_bytes: rules.Size = Field(
        default=-1,
        ge=-1,
        le=INT64_MAX,
        description="`seglake retain` removes the oldest segments of a log partition while at "
        "least this number of bytes remains; -1: never",
    )
    cleanup_policy: rules.CleanupPolicy = Field(
        default="delete",
        description="`delete` for retention, `compact` for compaction, or both: `compact,delete`",
    )
    delete_retention_ms: rules.Ms = Field(
        default=86_400_000, ge=0, description="how long compaction keeps a tombstone"
    )
    min_compaction_lag_ms: rules.Ms = Field(
        default=0, ge=0, description="records younger than this are not compacted"
    )
    max_compaction_lag_ms: rules.Ms = Field(
        default=INT64_MAX, ge=1, description="compaction must run for records older than this"
    )
    min_cleanable_dirty_ratio: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="compaction must run if at least this part of a log was never compacted",
    )
    message_timestamp_before_max_ms: rules.Ms = Field(
        default=INT64_MAX,
        ge=0,
        description="rows whose time is more than this before the end of the run's interval (or, "
        "if the run has no interval, before its start) are quarantined; default: no limit",
    )
    message_timestamp_after_max_ms: rules.Ms = Field(
        default=INT64_MAX,
        ge=0,
        description="like `message.timestamp.before.max.ms`, for times after that end or start; "
        "default: no limit (in Kafka: an hour)",
    )
    kafka_topic_id: rules.TopicId | None = Field(
        default=None,
        description="id of the Kafka topic whose offsets the records have; a run with another id "
        "is refused",
    )
    quarantine_retention_ms: rules.Ms = Field(
        default=-1,
        ge=-1,
        description="`seglake maintain` removes rejects of runs that ended longer ago; -1: never",
    )

    @model_validator(mode="before")
    @classmethod
    def _dotted(cls, table: object) -> object:
        """Convert nested tables to dotted keys. TOML reads `segment.bytes = 1` as nested tables."""
        return dict(rules.flat(table)) if isinstance(table, Mapping) else table

    @property
    def index_subjects(self) -> Subjects:
        """Return the subjects that new key indexes cover, from the `index.*` settings."""
        return subjects_of(self.settings)

    def event_times(self, clock_ms: int) -> tuple[int, int]:
        """Return the smallest and the largest allowed event time in ms, both inclusive.

        The limits are relative to `clock_ms`. As in Kafka's
        `LogValidator.recordHasInvalidTimestamp`, there are limits only for CreateTime.
        """
        if self.message_timestamp_type != "CreateTime":
            return ALL_TIMES
        before, after = self.message_timestamp_before_max_ms, self.message_timestamp_after_max_ms
        first = INT64_MIN if before == INT64_MAX else max(clock_ms - before, INT64_MIN)
        return first, min(clock_ms + after, INT64_MAX)

    @property
    def settings(self) -> dict[str, Any]:
        """Return key → value of the settings that the catalog stores as JSON, without `IDENTITY`.

        A lifecycle setting is left out if it has its default value, because lakes of earlier
        versions do not have these settings.
        """
        settings = self.model_dump(mode="json", by_alias=True, exclude=IDENTITY)
        return {k: v for k, v in settings.items() if k not in LIFECYCLE or v != DEFAULTS[k]}

    def overrides(self) -> dict[str, Any]:
        """Return the settings that the pipeline file contains, by key."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)

    def _contradictions(self) -> Iterator[str]:
        if self.offset_field is not None and self.partition_field is None:
            yield "topic.offset_field needs topic.partition_field. Add it"
        for codec in ("zstd", "gzip"):
            is_set = f"compression_{codec}_level" in self.model_fields_set
            if is_set and self.compression_type != codec:
                yield (
                    f"topic.compression.{codec}.level contradicts topic.compression.type = "
                    f"{self.compression_type!r}. Remove one"
                )
        yield from self._value_problems()
        if self.batch_size > self.max_message_bytes:
            yield "topic.batch.size is above topic.max.message.bytes. Lower batch.size"
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            yield (
                "topic.min.compaction.lag.ms is above topic.max.compaction.lag.ms. Lower the first"
            )
        if len(f"{self.name}-{self.partitions - 1}") > 255:
            yield "topic.name is too long for a file name with '-<partition>'. Shorten it"

    def _value_problems(self) -> Iterator[str]:
        others = [own for name, own in OWN_SETTINGS.items() if name != self.value_format]
        for key, default in (pair for own in others for pair in own.items()):
            if getattr(self, key.replace(".", "_")) != default:
                yield f"topic.{key} contradicts value.format = {self.value_format!r}. Remove it"
        if self.value_format == "csv" and not any(self.value_columns):
            yield "topic.value.columns is missing. List the columns of the CSV, in order"
        if self.value_format == "text" and self.value_pattern is None:
            yield "topic.value.pattern is missing. Write an expression with (?P<name>...) groups"
        marks = (self.value_delimiter, self.value_quote, self.value_escape or "")
        if len({*marks}) < len(marks):
            yield (
                "two of topic.value.delimiter, topic.value.quote and topic.value.escape are the "
                "same character. Change one"
            )
        if len(value_format_of(self.settings)) > _FORMAT_BYTES:
            yield f"topic.value.columns is longer than {_FORMAT_BYTES} bytes. Shorten the names"


IDENTITY = {"name", "partitions", "partition_field", "offset_field", "message_timestamp_type"}
DEFAULTS: Mapping[str, Any] = {
    info.alias or name: [*info.default] if isinstance(info.default, tuple) else info.default
    for name, info in Topic.model_fields.items()
    if not info.is_required()
}
VALUE_SETTINGS = ("value.format", *(key for keys in OWN_SETTINGS.values() for key in keys))
_FORMAT_BYTES = 60_000  # a key index stores this length in two bytes
LIFECYCLE = (
    "retention.ms",
    "retention.bytes",
    "cleanup.policy",
    "delete.retention.ms",
    "min.compaction.lag.ms",
    "max.compaction.lag.ms",
    "min.cleanable.dirty.ratio",
    "message.timestamp.before.max.ms",
    "message.timestamp.after.max.ms",
    "quarantine.retention.ms",
    "kafka.topic.id",
    "index.keys",
    "index.fields",
    "index.headers",
    *VALUE_SETTINGS,
)
LIFECYCLE_FIELDS = {key.replace(".", "_") for key in LIFECYCLE}


def combined(stored: Mapping[str, Any], overrides: Mapping[str, Any]) -> Topic:
    """Return a topic with the settings `overrides`, and with `stored` values for all others.

    Both map keys to values, and `overrides` contains the topic's name. A stored setting is left out
    if this version of Seglake does not have it, or if it contradicts `overrides`, such as the level
    of another codec, or a setting of another value format. Raises ValidationError.
    """
    rest = {k: v for k, v in stored.items() if k not in overrides and v != DEFAULTS.get(k, v)}
    default = rest.get("compression.type", DEFAULTS["compression.type"])
    codec = overrides.get("compression.type", default)
    for other in {"zstd", "gzip"} - {codec}:
        rest.pop(f"compression.{other}.level", None)
    values = overrides.get("value.format", rest.get("value.format", "json"))
    for key in (key for name, keys in OWN_SETTINGS.items() for key in keys if name != values):
        rest.pop(key, None)
    return Topic.model_validate({**rest, **overrides})
