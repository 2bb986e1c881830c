"""What the report's charts show of streams that are steady, bursty, late or have an empty hour."""

from pathlib import Path

import pytest

from seglake.reporting.figures import Activity, TopicFigures
from seglake.reporting.report import report
from tests.makers.hourly_lakes import BURST_MS, EVERY_MS, HOURS, LATE, STREAMS, hourly_lake
from tests.makers.watched import BEGIN_MS, HOUR_MS

NOW_MS = BEGIN_MS + HOURS * HOUR_MS + 60_000


def figures_of(folder: Path, kind: str) -> tuple[TopicFigures, Activity, list[float]]:
    """The figures, and the records of each bin; all of them are shown, as no time is stray."""
    made = report(hourly_lake(folder, kind), now_ms=NOW_MS)
    ((figures,), activity) = made.topics, made.topics[0].activity
    assert activity is not None
    assert activity.stray == 0
    (shown,) = activity.records
    assert sum(shown) == pytest.approx(sum(map(len, STREAMS[kind].values())), abs=0.05 * len(shown))
    assert [alert.kind for alert in made.alerts] == []
    return figures, activity, shown


def test_a_burst_stands_out_at_its_time(tmp_path: Path) -> None:
    _, activity, shown = figures_of(tmp_path, "bursty")
    at = (BURST_MS - activity.start_ms) // activity.width_ms
    steady = activity.width_ms / EVERY_MS
    assert shown[at] > 20 * steady
    others = [*shown[: at - 1], *shown[at + 2 :]]  # a neighbour shares an index block with it
    assert max(others) < 1.1 * steady


def test_an_hour_without_events_is_a_gap_though_it_is_covered(tmp_path: Path) -> None:
    figures, activity, shown = figures_of(tmp_path, "empty")
    an_hour = HOUR_MS // activity.width_ms
    steady = activity.width_ms / EVERY_MS
    gap = shown[2 * an_hour : 3 * an_hour]
    assert gap[:-1] == [0] * (an_hour - 1)
    assert gap[-1] < 0.1 * steady  # half of the usual time between two events reaches into it
    assert min(shown[: 2 * an_hour] + shown[3 * an_hour :]) > 0.9 * steady
    assert figures.coverage.holes == []


def test_the_run_with_late_events_is_marked_and_they_count_at_their_times(tmp_path: Path) -> None:
    figures, activity, shown = figures_of(tmp_path, "late")
    late = {run.run_id: run.lateness_ms for run in figures.lateness}
    assert late == {f"hour {n:03}": 0 for n in range(HOURS)} | {
        "hour 003": 4 * HOUR_MS - EVERY_MS  # the first event of all came after the hour's last
    }
    before = sum(shown[: 3 * HOUR_MS // activity.width_ms])
    own = 3 * HOUR_MS / EVERY_MS
    assert before == pytest.approx(own + LATE, abs=LATE / 2)  # one index block has both
