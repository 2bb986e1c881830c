"""Read and check the options of the format. Their names are not case-sensitive.

Options of Spark's Kafka source have its names, values, defaults and rules (`KafkaSourceProvider`,
`KafkaOffsetRangeLimit`, `JsonUtils` in Spark's connector/kafka-0-10-sql). The others are Seglake's.
"""

from __future__ import annotations

import difflib
import json
import logging
import re
import warnings
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from seglake.errors import UsageError
from seglake.limits import INT64_MAX, INT64_MIN
from seglake.times.instants import Time, to_epoch_ms
from seglake.times.intervals import duration_ms

if TYPE_CHECKING:
    from seglake.read.fields import Fields
    from seglake.read.window.find import Criteria

EARLIEST, LATEST = -2, -1  # Kafka's numbers for the two ends of a log

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")

_log = logging.getLogger(__name__)


class TopicPartition(NamedTuple):
    """A log partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TopicChoice(NamedTuple):
    """The partitions to read. Exactly one field is set; the other fields are None."""

    assigned: frozenset[TopicPartition] | None = None
    named: frozenset[str] | None = None
    pattern: re.Pattern[str] | None = None


class Bound(NamedTuple):
    """The start or end of a query, from the option `name`.

    `value` is an offset or, if `is_time`, a time in epoch ms, for all partitions or by partition. A
    time selects the first record, in offset order, at that time or later. An offset may be EARLIEST
    or LATEST.
    """

    name: str
    value: int | Mapping[TopicPartition, int]
    is_time: bool = False

    @property
    def by_partition(self) -> Mapping[TopicPartition, int]:
        """Return the values by partition, or {} if all partitions have the same value."""
        return {} if isinstance(self.value, int) else self.value


_SEARCH = ("key", "keys", "where", "headers")
_BOTH = (
    "path", "assign", "subscribe", "subscribePattern", "columns", "includeHeaders", "fields",
    *_SEARCH, "startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets",
    "startingOffsetsByTimestampStrategy", "failOnDataLoss", "minPartitions",
    "maxRecordsPerPartition", "bytesPerPartition",
)  # fmt: skip
_BATCH = (
    "endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets", "startTime", "endTime",
    "version",
)  # fmt: skip
_STREAM = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
# Options of a Kafka consumer: accepted, without effect.
_WITHOUT_MEANING = (
    "groupIdPrefix", "kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
)  # fmt: skip
_NAMES = {name.lower(): name for name in (*_BOTH, *_BATCH, *_STREAM, *_WITHOUT_MEANING)}
_STORAGE = "storage."
_ANY = ("kafka.", _STORAGE)  # prefixes of names that are accepted unchecked
_REFUSED = {
    "kafka.auto.offset.reset": "set startingOffsets instead",
    "kafka.key.deserializer": "key is binary. Cast or decode the column",
    "kafka.value.deserializer": "value is binary. Cast or decode the column",
    "kafka.enable.auto.commit": "Spark's checkpoint holds the offsets",
    "kafka.interceptor.classes": "transform the DataFrame instead",
    # Spark adds this option to the options of CREATE TABLE, and later reads the table without any.
    "provider": "use CREATE TEMPORARY VIEW … USING seglake, because Spark loses a table's options",
}


class Options:
    """All options, after the checks that need neither a lake nor the kind of query.

    Raises UsageError, which names the option and the remedy.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        values = {name.lower(): value for name, value in options.items()}
        for name in sorted(values, key=lambda name: name not in _REFUSED):
            _require_known(name)
        read = _Values(values)
        self.root = read.root()
        self.storage = {  # may be credentials
            name.removeprefix(_STORAGE): value
            for name, value in values.items()
            if name.startswith(_STORAGE)
        }
        self.topics = read.topics()
        self.columns = read.columns()
        self.fields = read.fields(self.columns)
        self.criteria = read.criteria()  # keys may be personal data
        self.starting, self.ending = read.bound("starting"), read.bound("ending")
        self.start_time_ms, self.end_time_ms = read.time("startTime"), read.time("endTime")
        self.version = read.version()
        self.no_match = read.no_match()
        self.fail_on_data_loss = read.flag("failOnDataLoss", otherwise=True)
        self.min_partitions = read.integer("minPartitions", 1)
        self.max_records_per_partition = read.integer("maxRecordsPerPartition", 1)
        self.bytes_per_partition = read.integer("bytesPerPartition", 1)
        self.max_offsets_per_trigger = read.integer("maxOffsetsPerTrigger", 1)
        self.min_offsets_per_trigger = read.integer("minOffsetsPerTrigger", 1)
        self.max_trigger_delay_ms = read.delay("maxTriggerDelay", "15m")
        self._only_in_streams = [name for name in _STREAM if name in read]
        self._only_in_batches = [name for name in _BATCH if name in read]
        start, end = self.start_time_ms, self.end_time_ms
        if start is not None and end is not None and start > end:
            raise UsageError("startTime is after endTime. Swap the two options")
        least, most = self.min_offsets_per_trigger, self.max_offsets_per_trigger
        if least is not None and most is not None and least > most:
            raise UsageError("minOffsetsPerTrigger is above maxOffsetsPerTrigger. Lower the first")

    def batch_bounds(self) -> tuple[Bound, Bound]:
        """Return start and end of a batch query. Raises UsageError where Kafka's source does."""
        for name in self._only_in_streams:
            _log.warning("option %s is ignored in a batch query", name)
        starting = self.starting or Bound("startingOffsets", EARLIEST)
        ending = self.ending or Bound("endingOffsets", LATEST)
        _forbid(starting, LATEST, "startingOffsets cannot be latest (-1) in a batch query")
        _forbid(ending, EARLIEST, "endingOffsets cannot be earliest (-2) in a batch query")
        _require_order(starting, ending)
        return starting, ending

    def stream_start(self) -> Bound:
        """Return the start of a new streaming query. Raises UsageError for options of batches."""
        if self._only_in_batches:
            raise UsageError(
                f"option {self._only_in_batches[0]} is only valid in a batch query. A streaming "
                "query has no end and follows the newest version"
            )
        return self.starting or Bound("startingOffsets", LATEST)


class _Values:
    """The values of options, by option name. Each method reads one kind of value."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._values

    def text(self, name: str) -> str | None:
        value = self._values.get(name.lower())
        return None if value is None else value.strip()

    def root(self) -> str:
        root = self.text("path")
        if not root:
            raise UsageError(
                "the path is missing. Pass the root of the lake as option path, or to load(…)"
            )
        return root

    def integer(self, name: str, least: int) -> int | None:
        value = self.text(name)
        if value is None:
            return None
        number = _whole(value)
        if number is None or number < least:
            raise UsageError(
                f"option {name} must be a whole number of at least {least}, not {value!r}"
            )
        return number

    def version(self) -> int | str | None:
        """Return the number of a version, the name of a tag, or None."""
        value = self.text("version")
        is_name = value is not None and value[:1].isalpha()
        return value if is_name else self.integer("version", 0)

    def flag(self, name: str, *, otherwise: bool) -> bool:
        value = self.text(name)
        if value is not None and value.lower() not in ("true", "false"):
            raise UsageError(f"option {name} must be true or false, not {value!r}")
        return otherwise if value is None else value.lower() == "true"

    def time(self, name: str) -> int | None:
        value = self.text(name)
        return None if value is None else _time(name, value)

    def delay(self, name: str, otherwise: str) -> int:
        value = self.text(name) or otherwise
        ms = int(value) if re.fullmatch(r"[0-9]{1,18}", value) else duration_ms(value)
        if ms is None:
            raise UsageError(
                f"option {name} must be a duration such as 500ms, 10s or 15m, not {value!r}"
            )
        return ms

    def no_match(self) -> Literal["error", "latest"]:
        name = "startingOffsetsByTimestampStrategy"
        match (self.text(name) or "error").lower():
            case "error":
                return "error"
            case "latest":
                return "latest"
        raise UsageError(f"option {name} must be error or latest, not {self.text(name)!r}")

    def columns(self) -> tuple[str, ...]:
        listed = self.text("columns")
        headers = self.flag("includeHeaders", otherwise=False)
        if listed is None and "fields" in self:
            return ("partition", "offset", "timestamp", *("headers",) * headers)
        if listed is None:
            return COLUMNS if headers else COLUMNS[:-1]
        columns = tuple(_split(listed))
        for column in columns:
            if column not in COLUMNS:
                raise UsageError(f"option columns: {_unknown('column', column, COLUMNS)}")
        if not columns or len(set(columns)) < len(columns):
            raise UsageError(f"option columns must name each column once, not {listed!r}")
        if "includeHeaders" in self and headers != ("headers" in columns):
            raise UsageError("option columns contradicts option includeHeaders. Keep one")
        return columns

    def fields(self, columns: Iterable[str]) -> Fields | None:
        text = self.text("fields")
        if text is None:
            return None
        from seglake.read.fields import Fields  # noqa: PLC0415  # every session imports this one

        fields = Fields.parse(text)
        if twice := fields.kinds.keys() & {*columns}:
            raise UsageError(
                f"{min(twice)!r} would be both a field and a column of the log. Leave it out of "
                f"option columns, or out of option fields"
            )
        return fields

    def criteria(self) -> Criteria | None:
        texts = {name: self._values[name] for name in _SEARCH if name in self._values}
        if not texts:
            return None
        from seglake.datasource.search import parse_criteria  # noqa: PLC0415  # as above

        return parse_criteria(texts)

    def topics(self) -> TopicChoice:
        names = [name for name in ("assign", "subscribe", "subscribePattern") if name in self]
        if len(names) != 1:
            raise UsageError(
                "exactly one of the options assign, subscribe and subscribePattern must be set, "
                f"not {' and '.join(names) or 'none'}"
            )
        name, value = names[0], self.text(names[0]) or ""
        if name == "assign":
            topics = TopicChoice(assigned=_partitions(value))
        elif name == "subscribe":
            topics = TopicChoice(named=frozenset(_split(value)))
        else:
            topics = TopicChoice(pattern=_pattern(value) if value else None)
        if not any(topics):
            raise UsageError(f"option {name} is {value!r}, which has no topic. Name one")
        return topics

    def bound(self, side: Literal["starting", "ending"]) -> Bound | None:
        """Return a bound from the first option that is set: time, times by partition, offsets."""
        time, times, offsets = f"{side}Timestamp", f"{side}OffsetsByTimestamp", f"{side}Offsets"
        if time in self:
            ms = self.integer(time, 0)  # Kafka's source accepts only integers for this option
            return Bound(time, _time(time, ms or 0), is_time=True)
        if (value := self.text(times)) is not None:
            by_partition = _by_partition(times, value, 0)
            return Bound(
                times, {p: _time(times, ms) for p, ms in by_partition.items()}, is_time=True
            )
        match (self.text(offsets) or "").lower():
            case "earliest":
                return Bound(offsets, EARLIEST)
            case "latest":
                return Bound(offsets, LATEST)
        if (value := self.text(offsets)) is None:
            return None
        return Bound(offsets, _by_partition(offsets, value, EARLIEST))


def _time(name: str, value: Time) -> int:
    try:
        return to_epoch_ms(value)
    except UsageError as error:
        raise UsageError(f"option {name}: {error}") from error


def _require_known(name: str) -> None:
    if name in _REFUSED:
        raise UsageError(f"option {name} is not supported: {_REFUSED[name]}")
    if name not in _NAMES and not name.startswith(_ANY):
        raise UsageError(_unknown("option", name, _NAMES.values()))


def _unknown(kind: str, name: str, names: Iterable[str]) -> str:
    by_name = {item.lower(): item for item in names}
    near = difflib.get_close_matches(name.lower(), by_name, 1, 0)
    return f"unknown {kind} {name!r}. Did you mean {by_name[near[0]]}?"


def _forbid(bound: Bound, offset: int, sentence: str) -> None:
    if bound.value == offset:
        raise UsageError(sentence)
    for partition, number in bound.by_partition.items():
        if number == offset:
            raise UsageError(f"{sentence}. Correct the offset of {partition}")


def _require_order(starting: Bound, ending: Bound) -> None:
    """Raise UsageError if two maps, both of offsets or both of times, contradict each other."""
    start, end = starting.by_partition, ending.by_partition
    if not start or not end or starting.is_time != ending.is_time:
        return
    if start.keys() != end.keys():
        differing = ", ".join(sorted(map(str, start.keys() ^ end.keys())))
        raise UsageError(f"only one of {starting.name} and {ending.name} names {differing}")
    for partition in start:
        if 0 <= end[partition] < start[partition]:
            raise UsageError(
                f"{ending.name} {end[partition]} of {partition} is before {starting.name}"
                f" {start[partition]}. Swap them"
            )


# The values that are JSON.


def _partitions(text: str) -> frozenset[TopicPartition]:
    return frozenset(
        TopicPartition(topic, number)
        for topic, numbers in _read_json("assign", text, list, '{"topicA":[0,1],"topicB":[2]}')
        for number in numbers
    )


def _by_partition(name: str, text: str, least: int) -> dict[TopicPartition, int]:
    entries = _read_json(name, text, dict, '{"topicA":{"0":23,"1":5},"topicB":{"0":7}}')
    numbers_of = {TopicPartition(t, p): n for t, numbers in entries for p, n in numbers.items()}
    for partition, number in numbers_of.items():
        if number < least:
            raise UsageError(f"option {name}: {number} of {partition} is less than {least}")
    return numbers_of


def _read_json(name: str, text: str, kind: type, example: str) -> list[tuple[str, Any]]:
    """Return pairs of a topic and its list of numbers, or its map from numbers to numbers."""
    try:
        entries = json.loads(text).items()
        return [(topic, _numbers(entry, kind)) for topic, entry in entries]
    except (ValueError, TypeError, AttributeError):
        raise UsageError(f"option {name} must be JSON such as {example}, not {text!r}") from None


def _numbers(entry: Any, kind: type) -> Any:
    if kind is list and isinstance(entry, list):
        return [_number(item) for item in entry]
    if kind is dict and isinstance(entry, dict):
        return {_number(key): _number(value) for key, value in entry.items()}
    raise TypeError(kind)


def _number(value: object) -> int:
    number = _whole(str(value))
    if number is None:
        raise ValueError(value)
    return number


def _whole(text: str) -> int | None:
    """Parse an integer of 64 bits as Java does. Return None for other texts."""
    number = int(text) if re.fullmatch(r"[+-]?[0-9]{1,19}", text) else None
    return number if number is None or INT64_MIN <= number <= INT64_MAX else None


def _pattern(text: str) -> re.Pattern[str]:
    """Compile `subscribePattern`, a pattern to search for in topic names."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)  # `[a&&b]` is not an intersection here
        try:
            return re.compile(text, re.ASCII)
        except (re.error, FutureWarning) as error:
            raise UsageError(
                f"subscribePattern {text!r} is not a pattern of Python's `re`: {error}. Java's \\p,"
                " \\Q and && are not supported. Write the pattern without them, or list the topics"
                " with subscribe"
            ) from error


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
