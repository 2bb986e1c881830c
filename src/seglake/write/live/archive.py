"""Archive live topics: each run ingests the records that the broker has and the lake does not have.

The lake is the checkpoint. A run reads from the end of the archive to the broker's last stable
offset, the records keep their offsets, and one commit makes them visible. So whatever dies, the
next run continues where the last commit ended, and every log partition ends where the broker's did.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial, reduce
from itertools import chain, islice, zip_longest
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from seglake.catalog.groups import GroupInTopic, GroupOffset, store_offsets
from seglake.catalog.table import CatalogTable
from seglake.catalog.transaction import write_recent_markers
from seglake.config import Pipeline
from seglake.config.client_settings import UNREACHABLE
from seglake.engine import SparkEngine
from seglake.errors import (
    ConfigError,
    InputError,
    QuarantineLimit,
    SeglakeError,
    StoreError,
    UsageError,
)
from seglake.extras import extra
from seglake.format.batch import MAX_BATCH_BYTES
from seglake.store import open_store
from seglake.terminal.tables import Column, ShowsTable, Table, prose
from seglake.terminal.wording import counted
from seglake.write.api import declare_run
from seglake.write.driver.attempt import DeclaredRun, end_offsets
from seglake.write.driver.report import Progress, Report, error_text, silent
from seglake.write.driver.run import ingest_frame
from seglake.write.driver.topics import current_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PIPELINE = "archive"  # the pipeline name of these runs
GAP_EXIT_CODE = 4
_HEADERS = "array<struct<key: string, value: binary>>"
_COLUMNS = {
    "key": "binary", "value": "binary", "partition": "int", "offset": "bigint",
    "timestamp": "timestamp", "timestampType": "int", "headers": _HEADERS,
}  # fmt: skip

TIME_HEADER = "seglake.timestamp"  # has a timestamp that Spark cannot hold
_REMEDY = "--quarantine writes such records to the quarantine and archives the others"

_SCHEMA = ", ".join(f"{name} {kind}" for name, kind in _COLUMNS.items())

_log = logging.getLogger(__name__)

Ranges = dict[int, tuple[int, int]]  # offsets [start, end) by partition


@dataclass
class TopicArchive:
    """The result of one call for one topic.

    `topic` is its name in the lake. `offsets` are the offsets [start, end) that were new on the
    broker. `gaps` are offsets [start, end) that the broker had deleted before they were archived.
    `run` is the report of the run; None if nothing was new, or it failed. `groups` has, for each
    requested consumer group, the offsets from which it continues in the lake, by partition.
    """

    kafka_topic: str
    topic: str
    topic_id: str = ""
    status: Literal["archived", "nothing new", "failed"] = "nothing new"
    offsets: Ranges = field(default_factory=dict)
    gaps: Ranges = field(default_factory=dict)
    run: dict[str, Any] | None = None
    groups: dict[str, dict[int, int]] = field(default_factory=dict)
    error: str | None = None
    exit_code: int = 0

    @property
    def summary(self) -> str:
        """Return the result in a few words."""
        if self.error is not None:
            return f"failed: {self.error}"
        text = counted(self.run["records"], "record") if self.run else "nothing new"
        for partition, (start, end) in self.gaps.items():
            text += (
                f"; the broker had already deleted offsets {start} to {end - 1} of partition "
                f"{partition}"
            )
        for group in (name for name, offsets in self.groups.items() if not offsets):
            text += f"; group {group!r} has no committed offsets in this topic"
        return text


ARCHIVED = [
    Column("kafka_topic", "kafka topic"),
    Column("topic", "topic"),
    prose("summary", "result"),
]


@dataclass(repr=False)
class ArchiveResult(ShowsTable):
    """The archives of all topics, in the order of the call."""

    topics: list[TopicArchive] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """Return the first error's code; otherwise 4 if the broker had deleted records, or 0."""
        codes = [each.exit_code for each in self.topics]
        errors = [code for code in codes if code not in {0, GAP_EXIT_CODE}]
        return errors[0] if errors else max(codes, default=0)

    def as_dict(self) -> dict[str, Any]:
        """Return the result as plain values."""
        return {"topics": [{**asdict(each), "summary": each.summary} for each in self.topics]}

    def as_json(self) -> str:
        """Return the result as one JSON object."""
        return json.dumps(self.as_dict(), ensure_ascii=False)

    def _table(self) -> Table:
        rows = [(each.kafka_topic, each.topic, each.summary) for each in self.topics]
        return Table("archive", ARCHIVED, rows, len(rows))


def archive(  # noqa: PLR0913  # each has a default
    root: str,
    topics: Sequence[str],
    options: Mapping[str, str],
    *,
    groups: Sequence[str] = (),
    run_id: str | None = None,
    quarantine: bool = False,
    storage_options: Mapping[str, str] | None = None,
    spark: SparkSession | None = None,
    master: str | None = None,
    progress: Progress = silent,
) -> ArchiveResult:
    """Archive the new records of topics of a broker. Each topic has its own commit.

    An error of one topic is in its report, and the other topics are still archived.

    Args:
        root: The root of the lake.
        topics: NAME, or NAME:TOPIC for another name in the lake.
        options: Options of Kafka's clients, including `bootstrap.servers`.
        groups: Consumer groups whose committed offsets are stored with the lake, after the records
            are committed. A `seglake serve` begins there.
        run_id: The name of the run, by default the time.
        quarantine: Quarantine a record that cannot be archived. Otherwise it is an error.
        storage_options: Options of the storage of the lake.
        spark: A session with Spark's Kafka source. Without it, a session starts on `master`.
        master: The Spark master, by default this machine.
        progress: Called with the name of each step.

    Raises:
        UsageError: Names are empty, or occur twice.
        ConfigError: The session does not have the source.
        StoreError: No client can be created.

    Example:
        >>> seglake.archive("lake", ["orders"],
        ...     {"bootstrap.servers": "broker:9092"})  # doctest: +SKIP
    """
    from seglake.session import spark_session  # noqa: PLC0415  # Spark may be missing

    parts = [(name, second or name) for name, _, second in (each.partition(":") for each in topics)]
    if not parts or len({topic for _, topic in parts}) < len(parts):
        raise UsageError(
            "name each topic to archive once: NAME, or NAME:TOPIC for another name in the lake"
        )
    if not all(groups) or len(set(groups)) < len(groups):
        raise UsageError("name each consumer group once, by its full name")
    run = declare_run(run_id, (None, None))
    spark = spark or spark_session("seglake archive", master=master, delta=False, kafka=True)
    setup = _Setup(root, dict(storage_options or {}), options, spark, progress, quarantine, groups)
    with Broker(spark, options) as broker:
        return ArchiveResult(
            [_archived(setup, broker, TopicArchive(name, topic), run) for name, topic in parts]
        )


class _Setup(NamedTuple):
    """The settings that the archives of all topics share."""

    root: str
    storage: dict[str, str]
    options: Mapping[str, str]
    spark: SparkSession
    progress: Progress
    quarantine: bool
    groups: Sequence[str]


def _archived(
    setup: _Setup, broker: Broker, report: TopicArchive, run: DeclaredRun
) -> TopicArchive:
    """Archive a topic, and return its report. An error is in the report, too."""
    setup.progress(f"archive {report.kafka_topic}")
    try:
        done = _archive_topic(setup, broker, report, run)
        if done is not None:
            report.status, report.run = "archived", done.as_dict()
        _keep_groups(setup, broker, report)
        report.exit_code = GAP_EXIT_CODE if report.gaps else 0
    except SeglakeError as error:
        report.status, report.error, report.exit_code = "failed", str(error), error.exit_code
    except Exception as error:
        _log.exception("the archive of %s failed", report.kafka_topic)
        report.status, report.exit_code = "failed", 1
        report.error = error_text(error)
    return report


def _archive_topic(
    setup: _Setup, broker: Broker, report: TopicArchive, run: DeclaredRun
) -> Report | None:
    """Archive the new records of a topic. Return None if nothing is new.

    Another archive may commit at any moment. So the broker lost records if its log is shorter than
    the lake's log was before the broker was queried. Offsets are a gap if the broker has deleted
    them and the lake does not have them after that query.
    """
    broker.topic_id(report.kafka_topic)  # raises for an unknown topic before a lake is created
    table = CatalogTable.create(open_store(setup.root, setup.storage))
    before = end_offsets(table.snapshot(), report.topic)
    live = broker.topic(report.kafka_topic)
    report.topic_id = live.topic_id
    base = table.snapshot()
    row = base.find_topic(report.topic)
    kind = broker.timestamp_type(live.name) if row is None else row.timestamp_type
    pipeline = _pipeline(setup, report, live, kind)
    current_topic(base, pipeline)  # raises for a wrong topic before anything is read
    for partition, (_, end) in live.offsets.items():
        if end < (ours := before.get(partition, 0)):
            raise InputError(
                f"partition {partition} of {live.name!r} ends at {end} on the broker, but at "
                f"{ours} in the lake. The broker lost records and will use their offsets again. "
                f"Archive the topic under another name"
            )
    ends = end_offsets(base, report.topic)
    report.gaps = {
        partition: (ends.get(partition, 0), start)
        for partition, (start, _) in live.offsets.items()
        if row is not None and start > ends.get(partition, 0)
    }
    covered = {p: (max(start, ends.get(p, 0)), end) for p, (start, end) in live.offsets.items()}
    report.offsets = {p: (start, end) for p, (start, end) in covered.items() if start < end}
    if row is not None and not report.offsets and not report.gaps:
        write_recent_markers(table, base.files, report.topic, "run")
        return None

    ingested = partial(
        ingest_frame,
        order_column="offset",
        pipeline=pipeline,
        run=run._replace(offsets=covered),
        progress=setup.progress,
        check=partial(_require_id, broker, live.name, live.topic_id),
    )
    try:
        return ingested(_frame(setup, live.name, report.offsets))
    except QuarantineLimit as error:
        raise QuarantineLimit(f"{error} (a line is an offset). {_REMEDY}") from None
    except Exception as error:
        if not is_overflow(error):
            raise
    return ingested(_without_far_times(setup, broker, live.name, report.offsets))


def _require_id(broker: Broker, name: str, topic_id: str) -> None:
    if broker.topic_id(name) != topic_id:
        raise InputError(
            f"topic {name!r} was deleted and created again during the archive. Run again"
        )


def _keep_groups(setup: _Setup, broker: Broker, report: TopicArchive) -> None:
    """Store the committed offsets of the groups, but none above the end of the archive.

    A group may be ahead of the archive. Then it continues at the archive's end, and reads some
    records again. The topic's id is queried last, so that offsets of a topic that was deleted and
    created again are not stored.
    """
    if not setup.groups:
        return
    table = CatalogTable.open(open_store(setup.root, setup.storage))
    ends = end_offsets(table.snapshot(), report.topic)
    committed = {group: broker.committed(group, report.kafka_topic) for group in setup.groups}
    _require_id(broker, report.kafka_topic, report.topic_id)
    for group, commits in committed.items():
        offsets = {
            partition: each._replace(offset=min(each.offset, ends[partition]))
            for partition, each in sorted(commits.items())
            if partition in ends
        }
        report.groups[group] = {partition: each.offset for partition, each in offsets.items()}
        if offsets:
            store_offsets(table.store, GroupInTopic(table.lake, report.topic, group, offsets))


def _pipeline(setup: _Setup, report: TopicArchive, live: LiveTopic, kind: str) -> Pipeline:
    """Return the settings of a run over the columns of Spark's Kafka source.

    `kind` is the timestamp type.
    """
    topic = {
        "name": report.topic,
        "partitions": len(live.offsets),
        "partition_field": "partition",
        "offset_field": "offset",
        "message.timestamp.type": kind,
        "max.message.bytes": MAX_BATCH_BYTES,  # the broker has accepted the records
        "kafka.topic.id": live.topic_id,
    }
    return Pipeline.model_validate(
        {
            "name": PIPELINE,
            "root": setup.root,
            "storage": setup.storage,
            "order": "arrival",
            "max_quarantine_ratio": float(setup.quarantine),
            "input": {"format": "dataframe"},
            "timestamp": {"field": "timestamp", "type_field": "timestampType"},
            "key": {"fields": ["key"]},
            "value": {"from": "field", "field": "value"},
            "headers": {"array_field": "headers"},
            "topic": topic,
        }
    )


def _frame(setup: _Setup, topic: str, offsets: Ranges) -> DataFrame:
    """Return the committed records at these offsets."""
    from pyspark.sql.functions import expr  # noqa: PLC0415  # Spark may be missing

    spark = setup.spark
    if not offsets:
        return spark.createDataFrame([], _SCHEMA)
    first, last = ({topic: {str(p): ends[at] for p, ends in offsets.items()}} for at in (0, 1))
    options = {f"kafka.{key}": value for key, value in setup.options.items()}
    options |= {
        "kafka.isolation.level": "read_committed",
        "assign": json.dumps({topic: list(offsets)}),
        "startingOffsets": json.dumps(first),
        "endingOffsets": json.dumps(last),
        "includeHeaders": "true",
        "failOnDataLoss": "true",
        "minPartitions": str(max(len(offsets), SparkEngine(spark).cores)),
    }
    frame = spark.read.format("kafka").options(**options).load()
    # Passing null lists to Python is slow, see `short_batches`.
    filled = frame.withColumn("headers", expr(f"coalesce(headers, cast(array() as {_HEADERS}))"))
    return filled.select(*_COLUMNS)


def _without_far_times(setup: _Setup, broker: Broker, topic: str, offsets: Ranges) -> DataFrame:
    """Return the records at these offsets, without the times that Spark cannot hold.

    Raises InputError for the first such record, unless such records are quarantined.
    """
    setup.progress("search timestamps that Spark cannot represent")
    gone = dict[int, list[int]]()
    for partition, ends in offsets.items():
        bad_offsets = unreadable_offsets(partial(_reads, setup, topic, partition), *ends)
        gone[partition] = list(islice(bad_offsets, MOST + 1 if setup.quarantine else 1))
        if gone[partition] and (not setup.quarantine or len(gone[partition]) > MOST):
            raise InputError(_far_time(topic, partition, gone[partition]))
    parts = {p: list(ranges_between(*ends, gone[p])) for p, ends in offsets.items()}
    rounds = zip_longest(*([(p, each) for each in ranges] for p, ranges in parts.items()))
    frames = [_frame(setup, topic, dict(filter(None, each))) for each in rounds]
    rows = [
        broker.timeless_row(topic, p, offset)
        for p, bad_offsets in gone.items()
        for offset in bad_offsets
    ]
    return reduce(
        lambda one, other: one.union(other), frames, setup.spark.createDataFrame(rows, _SCHEMA)
    )


def _reads(setup: _Setup, topic: str, partition: int, start: int, end: int) -> bool:
    """Return whether Spark can deliver the records at the offsets [start, end)."""
    frame = _frame(setup, topic, {partition: (start, end)})
    try:
        frame.write.format("noop").mode("overwrite").save()
    except Exception as error:
        if is_overflow(error):
            return False
        raise
    return True


def _far_time(topic: str, partition: int, offsets: Sequence[int]) -> str:
    what = f"partition {partition} of {topic!r} has a record at offset {offsets[0]}"
    if len(offsets) > MOST:
        what += f", and more than {MOST} in all,"
    return (
        f"{what} whose timestamp is too large for Spark, probably because a producer wrote "
        f"nanoseconds as milliseconds. {_REMEDY}, up to {MOST} per partition. `seglake import` "
        f"imports all of them, into another topic"
    )


# ---------------- broker
# Query the Kafka cluster with Kafka's own admin client, in the JVM of Spark's driver.
#
# The client is part of the jars of Spark's Kafka source, so it needs no package of Python. Its
# options are the options of the source.

_UNKNOWN = ("UnknownTopicOrPartitionException", "InvalidTopicException")
_SILENT = ("TimeoutException", "DisconnectException")
_PATIENCE_MS = 60_000  # the default of default.api.timeout.ms
_POLLS = 30  # each takes up to a second
_JARS = '--jars "$(python -m seglake.session kafka-jars)"'


class LiveTopic(NamedTuple):
    """A topic of a broker.

    `offsets` has for each partition the log start offset and the end offset for `read_committed`
    consumers: the last stable offset, exclusive.
    """

    name: str
    topic_id: str
    offsets: dict[int, tuple[int, int]]


class Broker:
    """Kafka's admin client. A context manager that closes it."""

    def __init__(self, spark: SparkSession, options: Mapping[str, str]) -> None:
        self._servers, self._options = options["bootstrap.servers"], options
        try:
            jvm: Any = spark._jvm  # noqa: SLF001  # see `ALLOWED` of tests/test_tidy.py
        except Exception as error:  # Spark Connect has no JVM, and raises its own type of error
            raise ConfigError("an archive needs a Spark session with a JVM, not Connect") from error
        self._jvm = cast("Any", jvm)
        admin = self._jvm.org.apache.kafka.clients.admin
        if type(admin.AdminClient).__name__ == "JavaPackage":  # py4j's type of an unknown class
            raise ConfigError(f"this Spark session has no Kafka source: give spark-submit {_JARS}")
        with self._errors():
            self._admin = admin.AdminClient.create(self._properties())
        patience_s = int(options.get("default.api.timeout.ms", _PATIENCE_MS)) / 1000
        _log.info("connecting to %s, for up to %g s", self._servers, patience_s)

    def __enter__(self) -> Broker:
        return self

    def __exit__(self, *_error: object) -> None:
        self._admin.close()

    def topic(self, name: str) -> LiveTopic:
        """Return the topic as it is now. Raises InputError if it does not exist, or StoreError."""
        topic_id, partitions = self._description(name)
        spec = self._jvm.org.apache.kafka.clients.admin.OffsetSpec
        starts = self._offsets(name, partitions, spec.earliest())
        ends = self._offsets(name, partitions, spec.latest())
        return LiveTopic(name, topic_id, {p: (starts[p], ends[p]) for p in range(partitions)})

    def topic_id(self, name: str) -> str:
        """Return the id of a topic. Raises InputError if it does not exist, or StoreError."""
        return self._description(name)[0]

    def timestamp_type(self, name: str) -> str:
        """Return the topic's `message.timestamp.type`; CreateTime if the query is not allowed."""
        config = self._jvm.org.apache.kafka.common.config.ConfigResource
        resource = config(config.Type.TOPIC, name)
        try:
            with self._errors():
                settings = self._admin.describeConfigs([resource]).all().get().get(resource)
        except StoreError:
            return "CreateTime"
        return str(settings.get("message.timestamp.type").value())

    def committed(self, group: str, name: str) -> dict[int, GroupOffset]:
        """Return the offsets that a group committed for a topic. Raises StoreError."""
        with self._errors(name):
            listed = self._admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata()
            offsets = listed.get()
        return {
            int(place.partition()): GroupOffset(int(each.offset()), str(each.metadata()))
            for place, each in ((entry.getKey(), entry.getValue()) for entry in offsets.entrySet())
            if each is not None and place.topic() == name
        }

    def timeless_row(self, name: str, partition: int, offset: int) -> tuple[Any, ...]:
        """Return a record as a row without a time, which the run rejects.

        A header has the timestamp. Raises StoreError if the broker does not send the record.
        """
        classes = self._jvm.org.apache.kafka.common
        plain = classes.serialization.ByteArrayDeserializer()
        consumer = self._jvm.org.apache.kafka.clients.consumer.KafkaConsumer(
            self._properties({"isolation.level": "read_committed"}), plain, plain
        )
        place, second = classes.TopicPartition(name, partition), self._jvm.java.time.Duration
        try:
            with self._errors(name):
                consumer.assign([place])
                consumer.seek(place, offset)
                polls = (consumer.poll(second.ofSeconds(1)).records(place) for _ in range(_POLLS))
                record = next(chain.from_iterable(polls), None)
                if record is None:
                    raise StoreError(
                        f"the broker does not send the record at offset {offset} of {place}: run "
                        "again"
                    )
                headers = [(str(h.key()), _bytes(h.value())) for h in record.headers().toArray()]
                headers.append((TIME_HEADER, b"%d" % int(record.timestamp())))
                kind = int(record.timestampType().ordinal()) - 1  # py4j cannot read its field `id`
                key, value = _bytes(record.key()), _bytes(record.value())
                return key, value, partition, offset, None, kind, headers
        finally:
            consumer.close()

    def _properties(self, more: Mapping[str, str] = {}) -> Any:
        properties = self._jvm.java.util.Properties()
        for key, value in {**self._options, **more}.items():
            properties.setProperty(key, value)
        return properties

    def _description(self, name: str) -> tuple[str, int]:
        with self._errors(name):
            description = self._admin.describeTopics([name]).allTopicNames().get().get(name)
        return str(description.topicId().toString()), int(description.partitions().size())

    def _offsets(self, name: str, partitions: int, spec: Any) -> dict[int, int]:
        common = self._jvm.org.apache.kafka.common
        places = [common.TopicPartition(name, number) for number in range(partitions)]
        specs = self._jvm.java.util.HashMap()
        for place in places:
            specs.put(place, spec)
        committed = self._jvm.org.apache.kafka.clients.admin.ListOffsetsOptions(
            common.IsolationLevel.READ_COMMITTED
        )
        with self._errors(name):
            offsets = self._admin.listOffsets(specs, committed).all().get()
        return {place.partition(): int(offsets.get(place).offset()) for place in places}

    @contextmanager
    def _errors(self, topic: str = "") -> Iterator[None]:
        """Raise errors of Kafka's clients as errors of Seglake."""
        with extra("spark", "an archive"):
            from py4j.protocol import Py4JJavaError  # noqa: PLC0415  # it may be missing
        try:
            yield
        except Py4JJavaError as error:
            cause = error.java_exception.getCause() or error.java_exception
            kind = cause.getClass().getSimpleName()
            if kind in _UNKNOWN:
                raise InputError(
                    f"the broker at {self._servers} has no topic {topic!r}. Correct the name. "
                    f"The lake keeps what it already archived"
                ) from None
            words = f"{kind}: {cause.getMessage()}{UNREACHABLE if kind in _SILENT else ''}"
            raise StoreError(f"the broker at {self._servers} did not answer: {words}") from None


def _bytes(data: Any) -> bytes | None:
    return None if data is None else bytes(data)


# ---------------- unreadable
# Find the records of a broker that Spark cannot deliver.
#
# Spark's Kafka source converts each timestamp to microseconds of 64 bits, and fails if one does not
# fit, for example if a producer wrote nanoseconds instead of milliseconds. Its error names no
# record, so a binary search over the offsets finds such records.

MOST = 100  # largest number of such records that is found in one partition


def is_overflow(error: BaseException) -> bool:
    """Return whether a read failed because a timestamp is too large for Spark."""
    return "ArithmeticException" in str(error) and "overflow" in str(error)


def unreadable_offsets(reads: Callable[[int, int], bool], start: int, end: int) -> Iterator[int]:
    """Yield the offsets of [start, end) that cannot be read, in order.

    `reads` returns whether all records of a range [start, end) can be read. It is called about
    2 log2(end - start) times for each offset that cannot be read.
    """
    while start < end and not reads(start, end):
        low, high = start, end
        while high - low > 1:
            middle = (low + high) // 2
            if reads(low, middle):
                low = middle
            else:
                high = middle
        yield low
        start = low + 1


def ranges_between(start: int, end: int, gone: list[int]) -> Iterator[tuple[int, int]]:
    """Yield the ranges of [start, end) between the ascending offsets `gone`, without empty ones."""
    for offset in [*gone, end]:
        if start < offset:
            yield start, offset
        start = offset + 1
