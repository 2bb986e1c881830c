"""`alter` and `describe`: the catalog's settings of a topic, changed without a run."""

import contextlib
import json
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import seglake
from seglake.catalog.commits import CatalogCommits
from seglake.cli.app import app
from seglake.clock import now_ms
from seglake.config.topic import DEFAULTS
from seglake.errors import ConfigError, QuarantineLimit, UsageError
from seglake.maintain.topic_settings import _OF_IDENTITY
from seglake.write.driver.topics import topic_from_row
from tests.harness.meanwhile import before_first
from tests.harness.tiers import rest_but_today
from tests.makers.lakes import Event, LakeMaker, open_catalog
from tests.makers.raw_events import Line, T, ingest, pipeline_of, segments_of, write_file
from tests.makers.segment_lakes import Sketch, sketched_lake
from tests.makers.strategies import examples

VALUES: dict[str, list[Any]] = {
    "retention.ms": [-1, 0, 604_800_000, 2**63 - 1],
    "retention.bytes": [-1, 5],
    "cleanup.policy": ["delete", "compact", "compact,delete"],
    "min.cleanable.dirty.ratio": [0, 0.25, 1],
    "segment.bytes": [1000, 2**30],
    "index.interval.bytes": [4096, 7],
    "compression.type": ["lz4", "zstd"],
}


@st.composite
def changes(draw: st.DrawFn) -> tuple[dict[str, Any], list[str]]:
    keys = draw(st.lists(st.sampled_from(sorted(VALUES)), unique=True, min_size=1, max_size=3))
    given_, deleted = {}, []
    for key in keys:
        if draw(st.integers(0, 3)):
            given_[key] = draw(st.sampled_from(VALUES[key]))
        else:
            deleted.append(key)
    return given_, deleted


def values_of(root: Path | str) -> dict[str, Any]:
    return {each.key: each.value for each in seglake.describe(str(root), "orders")}


@examples(30)
@given(st.lists(changes(), min_size=1, max_size=5))
def test_a_change_holds_and_all_else_stays(steps: list[tuple[dict[str, Any], list[str]]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        table = sketched_lake(folder, [[Sketch(1, 5, 100)]], {})
        model = dict(values_of(folder))
        for given_, deleted in steps:
            before = dict(model)
            model |= given_ | {key: DEFAULTS[key] for key in deleted}
            version = table.snapshot().version
            report = seglake.alter(folder, "orders", given_, delete=deleted)
            assert values_of(folder) == model
            differ = {k: [before[k], model[k]] for k in model if before[k] != model[k]}
            assert report.changes == differ
            assert (table.snapshot().version > version) == bool(differ)
        kept = table.snapshot().topic("orders")
        fields = {"name", "partition_field", "offset_field"}
        assert topic_from_row(kept).model_dump(mode="json", by_alias=True, exclude=fields) == model


@pytest.fixture
def root(tmp_path: Path) -> str:
    LakeMaker(tmp_path).run({0: [Event(1)]})
    return str(tmp_path)


def test_describe_tells_values_defaults_and_meanings(root: str) -> None:
    seglake.alter(root, "events", {"retention.ms": 5})
    told = {each.key: each for each in seglake.describe(root, "events")}
    assert told.keys() == DEFAULTS.keys() - {"partition_field", "offset_field"}
    assert (told["retention.ms"].value, told["retention.ms"].default) == (5, -1)
    assert [each.key for each in told.values() if each.is_set] == ["retention.ms"]
    assert all(each.meaning for each in told.values())


@pytest.mark.parametrize(
    ("given_", "deleted", "words"),
    [
        ({"retention.mz": 5}, [], "an unknown key. Did you mean topic.retention.ms?"),
        ({}, ["retention.mz"], "retention.mz is an unknown key"),
        ({"retention.ms": -2}, [], "retention.ms: -2 should be greater than or equal to -1"),
        ({"retention.ms": "5"}, [], "retention.ms: '5' should be a valid integer"),
        ({"cleanup.policy": "shred"}, [], "'shred' is not a policy"),
        ({"min.compaction.lag.ms": 5, "max.compaction.lag.ms": 4}, [], "is above topic.max"),
        ({"batch.size": 2**30}, [], "Lower batch.size"),
        ({"kafka.topic.id": "nonsense"}, [], "'nonsense' is not a topic id"),
        ({"kafka.topic.id": "A" * 22}, [], "is not a topic id"),
        ({"kafka.topic.id": "A08NuvyWRgee6k9bdjak+/"}, [], "`kafka-topics --describe` shows it"),
        ({"segment.ms": 2**63}, [], "segment.ms"),
        ({"min.cleanable.dirty.ratio": float("nan")}, [], "min.cleanable.dirty.ratio"),
        ({"partitions": 5}, [], "alter cannot change partitions"),
        ({}, ["message.timestamp.type"], "cannot change message.timestamp.type"),
        ({"retention.ms": 5}, ["retention.ms"], "both set and deleted"),
        ({}, [], "Write KEY=VALUE"),
    ],
)
def test_bad_input_is_one_sentence_and_changes_nothing(
    root: str, given_: dict[str, Any], deleted: list[str], words: str
) -> None:
    before = sorted(Path(root).rglob("*"))
    with pytest.raises((ConfigError, UsageError)) as caught:
        seglake.alter(root, "events", {**given_}, delete=deleted)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert sorted(Path(root).rglob("*")) == before


def test_segments_without_an_index_of_what_is_added__are_counted(tmp_path: Path) -> None:
    root, maker = str(tmp_path), LakeMaker(tmp_path)
    for time in range(3):
        maker.run({0: [Event(time, b"k")]})

    def unindexed(settings: dict[str, Any], delete: Sequence[str] = ()) -> int:
        return seglake.alter(root, "events", settings, delete=delete).unindexed

    assert unindexed({"index.keys": True}) == 3
    assert unindexed({"index.keys": True}) == 0  # nothing changes
    seglake.reindex(root, "events")
    assert unindexed({"retention.ms": 5}) == 0
    assert unindexed({"index.fields": ["user.id"]}) == 3
    seglake.reindex(root, "events")
    assert unindexed({}, ["index.fields"]) == 0  # nothing is added
    assert unindexed({"index.fields": "user.id"}) == 0  # the files still have it
    maker.run({0: []})
    assert unindexed({"index.headers": "a, b"}) == 3


def test_a_change_of_retention_reports_what_the_next_maintenance_removes(tmp_path: Path) -> None:
    maker = LakeMaker(tmp_path / "lake")
    root = str(maker.root)
    for time in range(3):
        maker.run({0: [Event(time, b"k")]})
    maker.run({0: [Event(now_ms(), b"k")]})
    alter = partial(seglake.alter, root, "events")
    for settings in ({"retention.bytes": 0}, {"cleanup.policy": "compact"}, {"retention.ms": -1}):
        assert sum(each.records for each in alter(settings, dry_run=True).expired) == (
            4 if "retention.bytes" in settings else 0
        )
    told = CliRunner().invoke(app, ["alter", root, "events", "retention.ms=1d"]).stdout
    assert "will remove 3 records in 3 segments" in told
    report = alter({"retention.ms": 2 * 86_400_000})
    (retained,) = seglake.retain(root, "events", dry_run=True)
    assert report.expired == retained.moved != []
    assert alter({"retention.ms": 2 * 86_400_000}).expired == []  # nothing changes


def test_names_in_a_text_have_commas_between_them(root: str) -> None:
    for key in ("index.fields", "index.headers"):
        told = f"{key}: 'status user.id' contains a blank"
        with pytest.raises(ConfigError, match=told):
            seglake.alter(root, "events", {key: "a, status user.id"})
        seglake.alter(root, "events", {key: ["status user.id"]})
        assert {e.key: e.value for e in seglake.describe(root, "events")}[key] == ["status user.id"]


def test_a_change_meanwhile_stays(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change that loses the race changes only what it was asked to."""
    other = partial(seglake.alter, root, "events", {"retention.bytes": 7})
    before_first(monkeypatch, CatalogCommits, "make", other)
    seglake.alter(root, "events", {"retention.ms": 5})
    told = {each.key: each.value for each in seglake.describe(root, "events")}
    assert (told["retention.ms"], told["retention.bytes"]) == (5, 7)


def test_the_next_run_writes_with_the_new_layout(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    for name in "ab":
        write_file(tmp_path / name / "1.jsonl", [Line(T + n, "k") for n in range(50)])
    ingest(pipeline_of(lake, tmp_path / "a"), "1")
    seglake.alter(str(lake), "events", {"compression.type": "lz4"})
    ingest(pipeline_of(lake, tmp_path / "b"), "2")
    assert {row.codec for row in segments_of(lake)} == {"zstd", "lz4"}


NASTY = [float("nan"), float("inf"), True, None, "", "x", -(2**63), -1, 0, 1, 2**31, 2**63 - 1,
         2**63, 2**64, 10**30, 0.5]  # fmt: skip


@pytest.mark.parametrize("key", rest_but_today(sorted({*DEFAULTS} - _OF_IDENTITY)))
def test_what_is_accepted_can_be_read_and_written_with(tmp_path: Path, key: str) -> None:
    """Every setting, with values at the ends of their types and beyond them."""
    path = write_file(tmp_path / "a.jsonl", [Line(T, "a"), Line(T + 1, "b")])
    ingest(pipeline_of(tmp_path / "lake", path), "0")
    root, version = str(tmp_path / "lake"), open_catalog(str(tmp_path / "lake")).snapshot().version
    for number, value in enumerate(NASTY, 1):
        with contextlib.suppress(ConfigError):
            seglake.alter(root, "events", {key: value})
        if seglake.open(root).version == version:
            continue
        path = write_file(tmp_path / f"{number}.jsonl", [Line(T, "a"), Line(T + 1, "b")])
        with contextlib.suppress(QuarantineLimit):  # a limit of event time rejects all
            assert ingest(pipeline_of(root, path), str(number)).records == 2
        seglake.maintain_lake(root, dry_run=True)
        seglake.describe(root, "events")
        seglake.alter(root, "events", {}, delete=[key])
        version = seglake.open(root).version


ID = "A08NuvyWRgee6k9bdjakQQ"


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [("retention.ms", "7d", 604_800_000), ("retention.ms", "90s", 90_000),
     ("retention.ms", "12 hours", 43_200_000), ("retention.ms", "2W", 1_209_600_000),
     ("retention.ms", "250ms", 250), ("quarantine.retention.ms", "5 min", 300_000),
     ("retention.bytes", "64KiB", 65_536), ("retention.bytes", "1 GiB", 2**30),
     ("segment.bytes", "1.5gib", 3 * 2**29), ("segment.bytes", "4096 B", 4096)],
)  # fmt: skip
def test_durations_and_sizes_are_stored_as_numbers(
    root: str, key: str, text: str, value: int
) -> None:
    seglake.alter(root, "events", {key: text})
    stored = open_catalog(root).snapshot().topic("events")
    assert (
        topic_from_row(stored).model_dump(by_alias=True)[key]
        == json.loads(stored.settings)[key]
        == value
    )
    assert seglake.alter(root, "events", {key: value}).changes == {}


NO_DURATION = "is not a duration. Write milliseconds, or 90s, 12h, 7d"


@pytest.mark.parametrize(
    ("key", "text", "problem"),
    [
        *(("retention.ms", text, NO_DURATION) for text in ("7 moons", "d", "1.5d", "", "-7d")),
        ("retention.bytes", "1GB", "Write 1GiB for the second, or"),
        ("retention.bytes", "1.5m", "Write 1.5MiB for the second, or"),
        ("retention.bytes", "0.3KiB", "is not a whole number of bytes"),
        ("retention.bytes", "big", "is not a size. Write bytes, or 64KiB, 512MiB, 1GiB"),
        *(("retention.bytes", text, "is not a size") for text in ("-1KiB", "1iB", "")),
    ],
)
def test_bad_durations_and_sizes_name_the_remedy(
    root: str, key: str, text: str, problem: str
) -> None:
    with pytest.raises(ConfigError) as error:
        seglake.alter(root, "events", {key: text})
    assert str(error.value).startswith(f"topic.{key}: ")
    assert problem in str(error.value)
