"""A topic's settings: seeded by the pipeline that makes it, then the catalog's own."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglake.catalog.schema import TopicRow
from seglake.catalog.version.snapshot import EMPTY, Snapshot
from seglake.config import Pipeline, Topic
from seglake.config.topic import DEFAULTS, LIFECYCLE, VALUE_SETTINGS
from seglake.errors import ConfigError
from seglake.write.driver.report import Report
from seglake.write.driver.topics import current_topic, topic_rows
from tests.makers.lakes import open_catalog
from tests.makers.raw_events import Line, T, ingest, pipeline_of, segments_of, write_file
from tests.makers.strategies import examples

LAYOUT: dict[str, st.SearchStrategy[Any]] = {
    "segment.bytes": st.sampled_from([5_000, 2**20, 2**30]),
    "segment.ms": st.sampled_from([1000, 604_800_000]),
    "batch.size": st.sampled_from([300, 16_384]),
    "max.message.bytes": st.sampled_from([20_000, 1_048_588]),
    "segment.index.bytes": st.sampled_from([2400, 10_485_760]),
    "index.interval.bytes": st.integers(1, 9),
}


@st.composite
def said(draw: st.DrawFn) -> dict[str, Any]:
    """Layout settings that a pipeline may say."""
    chosen = {name: draw(each) for name, each in LAYOUT.items() if draw(st.booleans())}
    if draw(st.booleans()):
        codec = chosen["compression.type"] = draw(st.sampled_from(["none", "lz4", "gzip", "zstd"]))
        if codec in {"gzip", "zstd"} and draw(st.booleans()):
            chosen[f"compression.{codec}.level"] = draw(st.integers(1, 5))
    return chosen


def settings_of(**topic: Any) -> Pipeline:
    return pipeline_of("lake", "in", topic=topic)


def after(snapshot: Snapshot, pipeline: Pipeline) -> Snapshot:
    """The version after a run."""
    rows = topic_rows(snapshot, pipeline)
    return snapshot.with_rows(snapshot.version + 1, frozenset(), topics=rows)


def holds(model: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """The settings once `new` ones are said: some replace others."""
    kept = dict(model)
    codec = new.get("compression.type", kept.get("compression.type", "zstd"))
    for other in {"zstd", "gzip"} - {codec}:
        kept.pop(f"compression.{other}.level", None)
    return {**kept, **new}


@given(st.lists(said(), min_size=1, max_size=6))
def test_what_a_pipeline_does_not_say_stays_as_it_is(runs: list[dict[str, Any]]) -> None:
    snapshot, model = EMPTY, dict[str, Any]()
    for each in runs:
        pipeline = settings_of(**each)
        model = holds(model, each)
        expected = {**DEFAULTS, **model, "name": "events", "partitions": 3}
        assert current_topic(snapshot, pipeline).model_dump(mode="json", by_alias=True) == expected
        rows = topic_rows(snapshot, pipeline)
        snapshot = after(snapshot, pipeline)
        assert topic_rows(snapshot, pipeline) == []
        stored = json.loads(snapshot.topic("events").settings)
        assert stored == {key: expected[key] for key in stored}
        assert {*stored} == DEFAULTS.keys() - {*LIFECYCLE} - IDENTITY
        assert [row.sequence for row in rows] in ([], [snapshot.topic("events").sequence])


IDENTITY = {
    "partitions", "partition_field", "offset_field", "message.timestamp.type",
}  # fmt: skip
OTHERS: dict[str, Any] = {
    "retention.ms": 5,
    "retention.bytes": 5,
    "cleanup.policy": "compact,delete",
    "delete.retention.ms": 5,
    "min.compaction.lag.ms": 5,
    "max.compaction.lag.ms": 5,
    "min.cleanable.dirty.ratio": 0.25,
    "message.timestamp.before.max.ms": 5,
    "message.timestamp.after.max.ms": 5,
    "quarantine.retention.ms": 5,
    "kafka.topic.id": "A08NuvyWRgee6k9bdjakQQ",
    "index.keys": True,
    "index.fields": ["trace_id", "order.id"],
    "index.headers": ["tenant"],
}


def test_every_lifecycle_setting_is_tried() -> None:
    assert {*OTHERS, *VALUE_SETTINGS} == {*LIFECYCLE}  # those are in test_value_formats.py


@pytest.mark.parametrize("key", OTHERS)
def test_a_lifecycle_setting_is_seeded_and_then_no_pipeline_changes_it(key: str) -> None:
    made = after(EMPTY, settings_of(**{key: OTHERS[key]}))
    assert json.loads(made.topic("events").settings)[key] == OTHERS[key]
    topic = current_topic(made, settings_of())
    assert topic.model_dump(mode="json", by_alias=True)[key] == OTHERS[key]
    for pipeline in (settings_of(), settings_of(**{key: OTHERS[key]})):
        assert topic_rows(made, pipeline) == []
    for contradicts in (made, after(EMPTY, settings_of())):
        value = DEFAULTS[key] if contradicts is made else OTHERS[key]
        has = OTHERS[key] if contradicts is made else DEFAULTS[key]
        with pytest.raises(ConfigError) as caught:
            topic_rows(contradicts, settings_of(**{key: value}))
        root = settings_of().root
        assert f"has {key} = {has!r}, but the pipeline has {value!r}" in str(caught.value)
        assert f"`seglake alter {root} events {key}={value}`" in str(caught.value)


def test_partitions_and_clock_are_the_catalogs_unless_they_are_said() -> None:
    many = {"partitions": 7, "message.timestamp.type": "LogAppendTime"}
    made = after(EMPTY, settings_of(**many))
    quiet = Topic(name="events")
    pipeline = settings_of().model_copy(update={"topic": quiet})
    topic = current_topic(made, pipeline)
    assert (topic.partitions, topic.message_timestamp_type) == (7, "LogAppendTime")
    assert topic_rows(made, pipeline) == []
    with pytest.raises(ConfigError, match="7 partitions, which cannot be lowered to 1"):
        topic_rows(made, settings_of(partitions=1))
    with pytest.raises(ConfigError, match="but the pipeline has 'CreateTime'"):
        topic_rows(made, settings_of(partitions=7, **{"message.timestamp.type": "CreateTime"}))


def test_settings_that_only_later_versions_know_stay() -> None:
    made = after(EMPTY, settings_of())
    row = made.topic("events")
    stored = json.dumps({**json.loads(row.settings), "later.setting": [1]})
    made = made.with_rows(1, frozenset(), topics=[_with(row, stored)])
    assert topic_rows(made, settings_of()) == []
    (changed,) = topic_rows(made, settings_of(**{"segment.bytes": 900}))
    assert json.loads(changed.settings)["later.setting"] == [1]


def test_together_they_must_not_contradict_each_other() -> None:
    small = {"max.message.bytes": 20_000, "compression.type": "gzip"}
    made = after(EMPTY, settings_of(**small))
    with pytest.raises(ConfigError, match=r"compression\.zstd\.level contradicts .* 'gzip'"):
        topic_rows(made, settings_of(**{"compression.zstd.level": 5}))
    with pytest.raises(ConfigError, match=r"above topic.max.message.bytes. Lower batch.size"):
        topic_rows(made, settings_of(**{"batch.size": 30_000}))


def _with(row: TopicRow, settings: str) -> TopicRow:
    return TopicRow(
        topic=row.topic,
        sequence=row.sequence + 1,
        partitions=row.partitions,
        partitioner=row.partitioner,
        timestamp_type=row.timestamp_type,
        settings=settings,
    )


@examples(10)
@given(said())
def test_the_segments_of_a_run_are_written_with_the_settings_in_force(
    tmp_path_factory: pytest.TempPathFactory, first: dict[str, Any]
) -> None:
    folder = tmp_path_factory.mktemp("lake")
    write_file(folder / "a" / "1.jsonl", [Line(T + n, "k") for n in range(200)])
    shutil.copytree(folder / "a", folder / "b")
    ingest(pipeline_of(folder / "lake", folder / "a", topic=first), "1")
    before = open_catalog(str(folder / "lake")).snapshot().topic("events")
    ingest(pipeline_of(folder / "lake", folder / "b"), "2")
    rows = segments_of(folder / "lake")
    (old, new) = (
        [r for r in rows if (r.attempt_id == rows[0].attempt_id) == is_] for is_ in (1, 0)
    )
    shape = [(r.codec, r.index_policy, r.record_count) for r in old]
    assert [(r.codec, r.index_policy, r.record_count) for r in new] == shape
    assert open_catalog(str(folder / "lake")).snapshot().topic("events") == before


def test_a_contradiction_is_found_before_anything_is_read(tmp_path: Path) -> None:
    write_file(tmp_path / "a" / "1.jsonl", [Line(T, "k")])
    write_file(tmp_path / "b" / "1.jsonl", [Line(T, "k")])
    ingest(pipeline_of(tmp_path / "lake", tmp_path / "a"), "1")
    objects = {path for path in (tmp_path / "lake").rglob("*") if path.suffix == ".log"}
    settings = pipeline_of(tmp_path / "lake", tmp_path / "b", topic={"retention.ms": 1000})
    with pytest.raises(ConfigError, match=r"has retention\.ms = -1, but the pipeline has 1000"):
        ingest(settings, "2")
    assert {p for p in (tmp_path / "lake").rglob("*") if p.suffix == ".log"} == objects
    same = pipeline_of(tmp_path / "lake", tmp_path / "a", topic={"retention.ms": 1000})
    assert ingest(same, "1").status == "already done"


def grown_by(report: Report) -> list[Any]:
    return [each.facts for each in report.findings if each.code == "more-partitions"]


def test_a_run_that_gives_the_topic_more_partitions_says_so(tmp_path: Path) -> None:
    """Also if it brings nothing: an older pipeline is refused from then on."""
    path, root = write_file(tmp_path / "a.jsonl", [Line(T)]), tmp_path / "lake"
    assert grown_by(ingest(pipeline_of(root, path), "1")) == []
    for run, before, partitions in (("2", 3, 5), ("3", 5, 6)):
        grown = pipeline_of(root, path, topic={"partitions": partitions})
        assert grown_by(ingest(grown, run)) == [{"now": partitions, "before": before}]
        assert grown_by(ingest(grown, f"{run} again")) == []
    more = write_file(tmp_path / "b.jsonl", [Line(T)])
    assert grown_by(ingest(pipeline_of(root, more, topic={"partitions": 7}), "4"))
