"""The report of a lake: its figures against the records, its alerts, its JSON, its page."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import seglake
from seglake.cli.app import app
from seglake.cli.inspect import report as lake_report
from seglake.errors import ConfigError, UnknownTopic
from seglake.limits import INT64_MAX, INT64_MIN
from seglake.maintain.merge import merge
from seglake.maintain.undo import undo
from seglake.reporting.alerts import join_alerts, topic_alerts
from seglake.reporting.figures import coverage
from seglake.reporting.page import document
from seglake.reporting.report import LakeReport, report
from seglake.terminal.progress import line_every
from seglake.times.intervals import covers
from tests.makers.lakes import Event, LakeMaker, Shape
from tests.makers.many_segments import many_segments
from tests.makers.watched import BEGIN_MS, FUTURE_MS, HOUR_MS, MISSING, NOW_MS, TOPIC, watched_lake


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> str:
    return watched_lake(tmp_path_factory.mktemp("watched"), hours=22, events=60)


@pytest.fixture(scope="module")
def found(root: str) -> LakeReport:
    return report(root, now_ms=NOW_MS)


def kinds(made: LakeReport) -> list[str]:
    return [alert.kind for alert in made.alerts]


def test_figures_of_the_largest_and_of_negative_timestamps(tmp_path: Path) -> None:
    maker = LakeMaker(tmp_path, partitions=2)
    maker.run({0: [Event(INT64_MAX), Event(INT64_MAX)], 1: [Event(INT64_MIN), Event(-2)]})
    (figures,) = report(str(tmp_path)).topics
    times = [(each.oldest_ms, each.newest_ms) for each in figures.partitions]
    assert times == [(INT64_MAX, INT64_MAX), (-1, -1)]
    assert figures.activity is None


def test_the_figures_are_those_of_the_records(root: str, found: LakeReport) -> None:
    (figures,) = found.topics
    log = seglake.open(root).topic(TOPIC)
    for each in figures.partitions:
        times = log.read_range(0, 2**62, partitions=[each.partition]).read_all()["timestamp"]
        in_ms = times.cast(pa.int64())
        assert each.records == len(times)
        assert (each.oldest_ms, each.newest_ms) == (pc.min(in_ms).as_py(), pc.max(in_ms).as_py())
    assert [p.end_offset for p in figures.partitions] == [*log.end_offsets().values()]
    activity = figures.activity
    assert activity is not None
    shown = sum(map(sum, activity.records))
    bins = len(activity.records) * len(activity.records[0])
    assert abs(shown + activity.stray - figures.records) <= 0.005 * bins + 1  # rounded in each bin
    assert 1 <= activity.stray < 0.1 * figures.records  # the block with the time in the future


def test_bins_have_the_records_of_their_time(root: str, found: LakeReport) -> None:
    """As records are spread over a block's time, sums agree up to the blocks at both ends."""
    activity = found.topics[0].activity
    assert activity is not None
    log = seglake.open(root).topic(TOPIC)
    half = len(activity.records[0]) // 2
    split = activity.start_ms + half * activity.width_ms
    before = sum(sum(counts[:half]) for counts in activity.records)
    assert before == pytest.approx(len(log.read_range(0, split).read_all()), rel=0.05)


def test_alerts_name_what_is_wrong(found: LakeReport) -> None:
    assert kinds(found) == ["hole", "not closed", "future", "rejects", "tiny segments"]
    hole, late, future, rejects, _ = found.alerts
    closed = BEGIN_MS + MISSING * HOUR_MS
    assert found.topics[0].coverage.closed_until_ms == closed
    assert hole.text.startswith("Found 1 hole between declared intervals, 1 h in total: ")
    assert "2026-06-01 11:00 UTC, 1 d ago" in late.text
    assert found.topics[0].future.farthest_ms == FUTURE_MS
    assert future.text.startswith("1 segment with")
    assert rejects.text.startswith("6 rows")
    assert found.topics[0].reasons == {"timestamp missing": 3, "timestamp unreadable": 3}


def test_the_same_alert_of_many_topics_is_said_once(tmp_path: Path) -> None:
    names = [f"t{number:02}" for number in range(12)]
    for name in names:
        rows = [Event(NOW_MS), *[Event(-1)] * (name == "t03")]
        LakeMaker(tmp_path, topic=name).run({0: rows}, Shape(segment_bytes=2**30))
    made = report(str(tmp_path), now_ms=NOW_MS)
    assert sorted(kinds(made)) == ["no intervals"] * 12 + ["no time"]  # for programs, each
    by_kind = {alert.kind: alert for alert in join_alerts(made.alerts)}
    assert len(join_alerts(made.alerts)) == len(by_kind) == 2
    assert by_kind["no time"] in made.alerts
    told = by_kind["no intervals"]
    listed = [alert.topic for alert in made.alerts if alert.kind == "no intervals"]
    assert told.topic == f"{', '.join(listed[:10])} and 2 more"
    assert {told._replace(topic=name) for name in names} < {*made.alerts}
    shown = CliRunner().invoke(app, ["report", str(tmp_path)]).output
    assert shown.count("No run declares an interval") == 1


@pytest.mark.parametrize(
    ("settings", "due"),
    [
        ({}, 20),
        ({"segment.ms": 7 * 24 * HOUR_MS}, 0),
        ({"retention.ms": 2**62}, 0),
        ({"retention.ms": 2**62, "segment.ms": 2**62}, 20),
    ],
)
def test_report_and_merge_use_one_rule(tmp_path: Path, settings: Any, due: int) -> None:
    maker = LakeMaker(tmp_path, settings=settings)
    for n in range(20):
        maker.run({0: [Event(BEGIN_MS + n * 240 * HOUR_MS, b"key", b"x")]})
    made, merged = (
        report(str(tmp_path), now_ms=NOW_MS),
        merge(str(tmp_path), "events", dry_run=True),
    )
    assert sum(group.segments for group in merged.plan) == made.topics[0].tiny_segments == due
    assert ("tiny segments" in kinds(made)) == bool(due)
    assert merged.apart == ({} if due else {"segment.ms": 19})
    for command in ("merge", "maintain"):
        shown = CliRunner().invoke(app, [command, str(tmp_path), "events", "--dry-run"]).output
        assert ("segment.ms" in shown) == (not due)


def test_a_lake_that_is_well_has_no_alert(tmp_path: Path) -> None:
    maker = LakeMaker(tmp_path, partitions=2)
    for number in range(3):
        start = NOW_MS + (number - 3) * HOUR_MS
        rows = [Event(start + each * 1000) for each in range(50)]
        maker.run({0: rows, 1: rows}, interval=(start, start + HOUR_MS))
    assert report(str(tmp_path), now_ms=NOW_MS).alerts == []


def test_other_alerts(tmp_path: Path) -> None:
    maker = LakeMaker(tmp_path, partitions=6)
    times = [NOW_MS - each * 1000 for each in range(2000)]
    rows = [Event(86_400_000), *map(Event, times)]
    maker.run({0: rows, 1: [Event(-1)]}, Shape(segment_bytes=2**30))
    made = report(str(tmp_path), now_ms=NOW_MS)
    assert kinds(made) == ["ancient", "no intervals", "no time", "skew"]
    assert made.topics[0].ancient.farthest_ms == 86_400_000
    assert topic_alerts(made.topics[0]) == made.alerts


def test_an_undone_run_does_not_count(tmp_path: Path) -> None:
    root = watched_lake(tmp_path, hours=3, events=50)
    undo(root, TOPIC, "hour 001", pipeline="hourly")
    (figures,) = report(root, now_ms=NOW_MS).topics
    assert [run.run_id for run in figures.committed] == ["hour 000", "hour 002"]
    assert len(figures.runs) == 4  # its row, and that it is undone


def test_an_empty_lake_and_an_unknown_topic(tmp_path: Path, root: str) -> None:
    maker = LakeMaker(tmp_path, partitions=2)
    maker.run({})
    made = report(str(tmp_path), now_ms=NOW_MS)
    assert made.topics[0].activity is None
    assert "Maintenance" not in made.as_html()
    with pytest.raises(UnknownTopic, match="'web'"):
        report(root, "wab")


def test_no_record_is_read_and_damaged_files_do_not_hide_the_rest(tmp_path: Path) -> None:
    maker = LakeMaker(tmp_path)
    maker.run({0: [Event(NOW_MS - 90 * HOUR_MS), *(Event(NOW_MS - n) for n in range(500, 0, -1))]})
    whole = report(str(tmp_path), now_ms=NOW_MS).topics[0]
    for suffix in ("log", "zonemap"):
        assert report(str(tmp_path), now_ms=NOW_MS).topics[0] == whole
        for file in maker.files(suffix):
            file.unlink()
    found = report(str(tmp_path), now_ms=NOW_MS).topics[0]
    assert found.partitions == whole.partitions


def test_the_json_is_a_twin_of_the_page(found: LakeReport) -> None:
    twin = json.loads(found.as_json())
    (topic,) = twin["topics"]
    assert twin["alerts"][0]["kind"] == "hole"
    assert topic["records"] == found.topics[0].records
    assert topic["coverage"]["lag_ms"] == NOW_MS - (BEGIN_MS + MISSING * HOUR_MS)
    assert topic["runs"][0]["report"]["topic"] == TOPIC
    assert f">{topic['records']:,}<" in found.as_html()


def test_the_page_is_small_whole_and_escaped(found: LakeReport) -> None:
    html = found.as_html()
    assert f"seglake quarantine {found.root} " in html
    assert len(html.encode()) < 2_000_000
    assert not re.search(r"""(?:src|href)=["'](?!#)""", html.partition("<script")[0])
    evil = LakeReport("<b>&", 1, NOW_MS, found.topics, found.versions).as_html()
    assert "&lt;b&gt;&amp;" in evil
    assert "<b>&" not in evil


def test_many_segments_take_no_more_room(tmp_path: Path) -> None:
    """The time and the size of a report are linear in the segments."""
    now_ms = many_segments(str(tmp_path), 20_000, partitions=100)
    made = report(str(tmp_path), now_ms=now_ms)
    assert (made.topics[0].segments, made.topics[0].records) == (20_000, 20_000_000)
    assert len(made.as_html().encode()) < 2_000_000


def test_without_the_extra_the_remedy_is_named(
    found: LakeReport, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: Any) -> None:
        raise ModuleNotFoundError("no bokeh", name="bokeh")

    monkeypatch.setattr(document, "_sections", missing)
    with pytest.raises(ConfigError, match=r"'bokeh'. Install it: pip install 'seglake\[report\]'"):
        found.as_html()


def test_the_command_writes_page_json_and_alerts(root: str, tmp_path: Path) -> None:
    run = CliRunner().invoke
    target = tmp_path / "report.html"
    done = run(app, ["report", root, TOPIC, "-o", str(target)])
    assert done.exit_code == 0, done.output
    assert target.read_text().startswith("<!DOCTYPE html>")
    printed = run(app, ["report", root, "--json"])
    assert json.loads(printed.output)["root"].endswith("lake")
    assert "Found 1 hole" in run(app, ["report", root]).output


@pytest.mark.parametrize("terminal", [False, True])
def test_the_command_shows_how_far_it_is(
    terminal: bool, root: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On standard error: beside a spinner, or as lines where there is no terminal."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    if terminal:
        monkeypatch.setenv("TERM", "xterm")
    with line_every(0):
        lake_report(root, json=True)
    output, errors = capsys.readouterr()
    json.loads(output)
    if terminal:
        assert "\x1b" in errors
        assert f"figures of {TOPIC}" in errors  # a spinner draws some steps, and always the last
    else:
        assert errors.splitlines() == [f"figures of {TOPIC}, topic 1 of 1"]


# Coverage by intervals, compared with a set of covered points.


INTERVALS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 9)), max_size=12)


@given(INTERVALS, st.one_of(st.none(), st.integers(0, 70)))
def test_coverage_is_that_of_the_points(
    given_rows: list[tuple[int, int]], oldest: int | None
) -> None:
    intervals = [(start, start + length) for start, length in given_rows]
    points = {point for start, end in intervals for point in range(start, end)}
    found = coverage(intervals, oldest)
    assert {p for start, end in found.covered for p in range(start, end)} == points
    if not points:
        assert (found.holes, found.closed_until_ms, found.lag_ms(9)) == ([], None, None)
        return
    missing = set(range(min(points), max(points))) - points
    gone = {p for start, end in found.holes for p in range(start, end)}
    assert gone <= missing
    assert all(oldest is not None and p < oldest for p in missing - gone)
    closed = found.closed_until_ms
    assert closed is not None
    assert closed == min(gone, default=max(points) + 1)
    assert found.covered[-1][1] == max(points) + 1
    assert found.lag_ms(100) == 100 - closed
    if oldest is None:  # `Log.closed` says the same
        assert covers(intervals, min(points), closed)
        assert not covers(intervals, min(points), closed + 1)
