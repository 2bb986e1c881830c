"""The options of the format: each rule of Spark's Kafka source, and each of ours, as a line."""

import logging

import pytest

from seglake.datasource.options import (
    COLUMNS,
    EARLIEST,
    LATEST,
    Bound,
    Options,
    TopicChoice,
    TopicPartition,
)
from seglake.errors import UsageError

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
OFFSETS, TIMES = "startingOffsets", "startingOffsetsByTimestamp"
END_OFFSETS, END_TIMES = "endingOffsets", "endingOffsetsByTimestamp"


def given(**options: str) -> dict[str, str]:
    """Options of a good query, with these changes; "_" in a name stands for a dot."""
    dotted = {name.replace("_", "."): value for name, value in options.items()}
    chosen = {"assign", "subscribe", "subscribePattern"} & dotted.keys()
    return {"path": "lake", **({} if chosen else {"subscribe": "t"}), **dotted}


def error_of(options: dict[str, str], kind: str) -> str:
    with pytest.raises(UsageError) as caught:
        check(options, kind)
    return str(caught.value)


def check(options: dict[str, str], kind: str) -> None:
    found = Options(options)
    if kind == "batch":
        found.batch_bounds()
    else:
        found.stream_start()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"subscribe": "b, a,,"}, TopicChoice(named=frozenset({"a", "b"}))),
        ({"subscribe": "a,a"}, TopicChoice(named=frozenset({"a"}))),
        ({"assign": '{"t":[0,1],"u":[]}'}, TopicChoice(assigned=frozenset({T0, T1}))),
    ],
)
def test_topics(options: dict[str, str], expected: TopicChoice) -> None:
    assert Options(given(**options)).topics == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, (Bound(OFFSETS, EARLIEST), Bound(END_OFFSETS, LATEST))),
        ({OFFSETS: " Earliest "}, (Bound(OFFSETS, EARLIEST), Bound(END_OFFSETS, LATEST))),
        ({OFFSETS: '{"t":{"0":-2,"1":"5"}}'},
         (Bound(OFFSETS, {T0: -2, T1: 5}), Bound(END_OFFSETS, LATEST))),
        ({END_OFFSETS: '{"t":{"0":-1}}'},
         (Bound(OFFSETS, EARLIEST), Bound(END_OFFSETS, {T0: -1}))),
        ({"startingTimestamp": "7", "endingTimestamp": "9"},
         (Bound("startingTimestamp", 7, is_time=True), Bound("endingTimestamp", 9, is_time=True))),
        ({TIMES: '{"t":{"0":7}}', END_TIMES: '{"t":{"0":9}}'},
         (Bound(TIMES, {T0: 7}, is_time=True), Bound(END_TIMES, {T0: 9}, is_time=True))),
        # a global time wins over times of partitions, and these win over offsets
        ({"startingTimestamp": "7", TIMES: '{"t":{"0":8}}', OFFSETS: "latest"},
         (Bound("startingTimestamp", 7, is_time=True), Bound(END_OFFSETS, LATEST))),
        ({END_TIMES: '{"t":{"0":8}}', END_OFFSETS: "earliest"},
         (Bound(OFFSETS, EARLIEST), Bound(END_TIMES, {T0: 8}, is_time=True))),
        # -1 and -2 are not numbers to compare
        ({OFFSETS: '{"t":{"0":5}}', END_OFFSETS: '{"t":{"0":-1}}'},
         (Bound(OFFSETS, {T0: 5}), Bound(END_OFFSETS, {T0: -1}))),
    ],
)  # fmt: skip
def test_bounds_of_a_batch(options: dict[str, str], expected: tuple[Bound, Bound]) -> None:
    assert Options(given(**options)).batch_bounds() == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, Bound(OFFSETS, LATEST)),
        ({OFFSETS: "earliest"}, Bound(OFFSETS, EARLIEST)),
        ({OFFSETS: '{"t":{"0":-1,"1":-2}}'}, Bound(OFFSETS, {T0: -1, T1: -2})),
        ({"startingTimestamp": "7"}, Bound("startingTimestamp", 7, is_time=True)),
    ],
)
def test_start_of_a_stream(options: dict[str, str], expected: Bound) -> None:
    assert Options(given(**options)).stream_start() == expected


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"subscribe": "a", "assign": "{}"}, "not assign and subscribe"),
        ({"subscribe": " , "}, "which has no topic"),
        ({"subscribePattern": " "}, "which has no topic"),
        ({"subscribePattern": "a[b&&c]"}, r"'a[b&&c]' is not a pattern of Python's `re`"),
        ({"subscribePattern": r"\p{Lower}"}, "subscribePattern"),
        ({"subscribePattern": r"\Qa\E"}, "subscribePattern"),
        ({"assign": "{}"}, "which has no topic"),
        ({"assign": "t"}, 'JSON such as {"topicA":[0,1]'),
        ({"assign": '["t"]'}, "JSON such as"),
        ({"assign": '{"t":"01"}'}, "JSON such as"),
        ({"assign": '{"t":[true]}'}, "JSON such as"),
        ({OFFSETS: "first"}, "startingOffsets must be JSON such as"),
        ({OFFSETS: '{"t":[0]}'}, "startingOffsets must be JSON such as"),
        ({OFFSETS: '{"t":{"0":1.5}}'}, "startingOffsets must be JSON such as"),
        ({OFFSETS: '{"t":{"0":-3}}'}, "-3 of t-0 is less than -2"),
        ({TIMES: '{"t":{"0":-1}}'}, "-1 of t-0 is less than 0"),
        ({"startingTimestamp": "2026-01-01"}, "startingTimestamp must be a whole number"),
        ({"startingTimestamp": "-1"}, "at least 0, not '-1'"),
        ({"startingTimestamp": "1764000000"}, "startingTimestamp: 1764000000 looks like seconds"),
        ({TIMES: '{"t":{"0":1764000000000000}}'}, "looks like microseconds. Give milliseconds"),
        ({"endTime": "1764000000000000000"}, "endTime: 1764000000000000000 looks like nanosecon"),
        ({"startingOffsetsByTimestampStrategy": "first"}, "must be error or latest, not 'first'"),
        ({"minPartitions": "0"}, "minPartitions must be a whole number of at least 1"),
        ({"minPartitions": "many"}, "not 'many'"),
        ({"maxRecordsPerPartition": "0"}, "maxRecordsPerPartition must be a whole number"),
        ({"bytesPerPartition": "64m"}, "bytesPerPartition must be a whole number"),
        ({"maxOffsetsPerTrigger": "99999999999999999999"}, "maxOffsetsPerTrigger must be a whole"),
        ({"minOffsetsPerTrigger": "3", "maxOffsetsPerTrigger": "2"}, "is above maxOffsets"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay must be a duration such as"),
        ({"includeHeaders": "yes"}, "includeHeaders must be true or false"),
        ({"failOnDataLoss": ""}, "failOnDataLoss must be true or false"),
        ({"columns": "key,time"}, "unknown column 'time'. Did you mean timestamp"),
        ({"columns": "key,key"}, "columns must name each column once"),
        ({"columns": ","}, "columns must name each column once"),
        ({"fields": "user:year"}, "field 'user' has the unknown type 'year'"),
        ({"fields": "key", "columns": "key"}, "'key' would be both a field and a column"),
        ({"columns": "key", "includeHeaders": "true"}, "contradicts option includeHeaders"),
        ({"columns": "headers", "includeHeaders": "false"}, "contradicts option includeHeaders"),
        ({"kafka_auto_offset_reset": "none"}, "not supported: set startingOffsets"),
        ({"kafka_Key_Deserializer": "x"}, "kafka.key.deserializer is not supported"),
        ({"kafka_value_deserializer": "x"}, "kafka.value.deserializer is not supported"),
        ({"kafka_enable_auto_commit": "x"}, "kafka.enable.auto.commit is not supported"),
        ({"kafka_interceptor_classes": "x"}, "kafka.interceptor.classes is not supported"),
        ({"subscribed": "t"}, "unknown option 'subscribed'. Did you mean subscribe"),
        ({"startingoffset": "t"}, "Did you mean startingOffsets?"),
        ({"location": "x", "provider": "seglake"}, "use CREATE TEMPORARY VIEW"),
        ({"path": " "}, "the path is missing"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["batch", "stream"])
def test_refused(options: dict[str, str], words: str, kind: str) -> None:
    assert words in error_of(given(**options), kind)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({OFFSETS: "latest"}, "startingOffsets cannot be latest"),
        ({OFFSETS: '{"t":{"0":0,"1":-1}}'}, "in a batch query. Correct the offset of t-1"),
        ({END_OFFSETS: "earliest"}, "endingOffsets cannot be earliest"),
        ({END_OFFSETS: '{"t":{"1":-2}}'}, "in a batch query. Correct the offset of t-1"),
        ({OFFSETS: '{"t":{"0":0}}', END_OFFSETS: '{"t":{"1":9}}'}, "endingOffsets names t-0, t-1"),
        ({OFFSETS: '{"t":{"0":5}}', END_OFFSETS: '{"t":{"0":4}}'}, "4 of t-0 is before"),
        ({TIMES: '{"t":{"0":5}}', END_TIMES: '{"t":{"0":4}}'}, "Timestamp 4 of t-0 is before"),
        ({"startTime": "2026-01-01T00:00:01Z", "endTime": "0"}, "startTime is after endTime"),
        ({"startTime": "2026-01-01T00:00:00"}, "option startTime: 2026-01-01T00:00:00 has no"),
        ({"endTime": "1767225600"}, "option endTime: 1767225600 looks like seconds"),
        ({"version": "-1"}, "version must be a whole number"),
    ],
)  # fmt: skip
def test_refused_in_a_batch(options: dict[str, str], words: str) -> None:
    assert words in error_of(given(**options), "batch")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (END_OFFSETS, "latest"), (END_TIMES, '{"t":{"0":4}}'), ("endingTimestamp", "4"),
        ("startTime", "0"), ("endTime", "0"), ("version", "3"),
    ],
)  # fmt: skip
def test_refused_in_a_stream(name: str, value: str) -> None:
    assert error_of(given(**{name: value}), "stream").startswith(
        f"option {name} is only valid in a batch query"
    )
    Options(given(**{name: value})).batch_bounds()


def test_nothing_to_read_is_refused() -> None:
    assert "must be set, not none" in error_of({"path": "lake"}, "batch")


def test_names_are_not_case_sensitive() -> None:
    loud = {name.upper(): value for name, value in given(minPartitions="3").items()}
    assert vars(Options(loud)) == vars(Options(given(minPartitions="3")))


def test_what_only_a_consumer_needs_is_accepted() -> None:
    found = Options(given(
        kafka_bootstrap_servers="host:9092", kafka_group_id="g", groupIdPrefix="p",
        kafkaConsumer_pollTimeoutMs="1", fetchOffset_numRetries="1",
        fetchOffset_retryIntervalMs="1",
    ))  # fmt: skip
    assert vars(found) == vars(Options(given()))


def test_storage_options_are_passed_on() -> None:
    assert Options(given(storage_aws_region="x")).storage == {"aws.region": "x"}
    assert Options({**given(), "storage.AWS_REGION": "x"}).storage == {"aws_region": "x"}


def test_storage_options_are_not_shown() -> None:
    assert "a secret" not in repr(Options(given(storage_token="a secret")))


def test_fields() -> None:
    assert Options(given()).fields is None
    found = Options(given(fields="user, status:int"))
    assert found.columns == ("partition", "offset", "timestamp")
    assert found.fields is not None
    assert found.fields.kinds == {"user": "string", "status": "int32"}


def test_columns() -> None:
    assert Options(given()).columns == COLUMNS[:-1]
    assert Options(given(includeHeaders="TRUE")).columns == COLUMNS
    assert Options(given(columns="offset, headers,key")).columns == ("offset", "headers", "key")
    assert Options(given(columns="headers", includeHeaders="true")).columns == ("headers",)


def test_times_and_limits() -> None:
    found = Options(given(
        startTime="2026-01-01T01:00:00+01:00", endTime="1767225600001", version="0",
        startingOffsetsByTimestampStrategy="LATEST", failOnDataLoss="False", minPartitions="4",
        maxRecordsPerPartition="5", bytesPerPartition="6", maxOffsetsPerTrigger="8",
        minOffsetsPerTrigger="7", maxTriggerDelay="2 min",
    ))  # fmt: skip
    assert (found.start_time_ms, found.end_time_ms) == (1767225600000, 1767225600001)
    assert (found.version, found.no_match, found.fail_on_data_loss) == (0, "latest", False)
    assert (found.min_partitions, found.max_records_per_partition) == (4, 5)
    assert (found.bytes_per_partition, found.max_trigger_delay_ms) == (6, 120_000)
    assert (found.min_offsets_per_trigger, found.max_offsets_per_trigger) == (7, 8)


def test_defaults() -> None:
    found = Options(given())
    assert found.fail_on_data_loss
    assert found.no_match == "error"
    assert found.max_trigger_delay_ms == 15 * 60_000
    assert found.min_partitions is found.max_records_per_partition is found.version is None


def test_limits_of_triggers_are_ignored_in_a_batch(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        Options(given(maxOffsetsPerTrigger="3", maxTriggerDelay="1s")).batch_bounds()
    assert [r.getMessage() for r in caplog.records] == [
        "option maxOffsetsPerTrigger is ignored in a batch query",
        "option maxTriggerDelay is ignored in a batch query",
    ]


@pytest.mark.parametrize(("text", "version"), [("7", 7), (" 0 ", 0), ("q3-train", "q3-train")])
def test_a_version__is_a_number_or_the_name_of_a_tag(text: str, version: int | str) -> None:
    assert Options(given(version=text)).version == version
