"""Watches of a topic, against what was done to it between two looks."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import seglake
from seglake import airflow
from seglake.airflow.watches import ClosedWatch, Cursor, Event, VersionWatch, Watch
from seglake.engine import LocalEngine
from seglake.errors import ConfigError, VersionExpired
from seglake.maintain.merge import merge
from seglake.maintain.undo import replace_files, undo
from seglake.read.lake import Lake
from seglake.times.instants import format_ms, to_epoch_ms
from seglake.write.driver.attempt import DeclaredRun
from tests.makers.raw_events import Line, T, ingest, pipeline_of, write_file
from tests.makers.strategies import examples

HOUR = 3_600_000
FIRST = T // HOUR * HOUR  # of the hours of these tests
LATENESS = 600_000


class Hourly:
    """A lake of hourly runs, and how often each changed its state."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.root = folder, str(folder / "lake")
        self.states: dict[str, list[str]] = {}
        self.count = 0

    def do(self, verb: str, hour: int, hours: int = 1) -> None:
        run_id, states = f"hour {hour}", self.states.setdefault(f"hour {hour}", [])
        there = states[-1:] == ["committed"]
        if verb == "undo" and there:
            undo(self.root, "events", run_id)
            states.append("undone")
        elif (verb == "ingest" and not there) or (verb == "replace" and there):
            self.count += 1
            path = self.folder / f"{self.count}.jsonl"
            write_file(path, [Line(FIRST + hour * HOUR + self.count + n, "k") for n in range(3)])
            run = DeclaredRun(run_id, (FIRST + hour * HOUR, FIRST + (hour + hours) * HOUR))
            replace_files(LocalEngine(), pipeline_of(self.root, [path]), run)
            states.append("committed")
        elif verb == "merge" and any(self.states.values()):
            merge(self.root, "events", everything=True)

    def closed(self) -> set[int]:
        """The hours that are closed, as the log tells of each alone."""
        if not any(self.states.values()):
            return set()
        log = seglake.open(self.root).topic("events")
        bounds = ((hour, FIRST + hour * HOUR) for hour in range(-2, 12))
        return {hour for hour, at in bounds if log.closed(at, at + HOUR, LATENESS)}


class Looks:
    """Looks at a lake; the cursor travels as JSON, the watch is now and then another one."""

    def __init__(self, make: Callable[[], Watch]) -> None:
        self._make, self._watch = make, make()
        self.cursor: Cursor | None = None

    def restart(self) -> None:
        self._watch = self._make()

    def look(self) -> list[Event]:
        events, cursor = self._watch.poll(self.cursor)
        self.cursor = json.loads(json.dumps(cursor))
        again: list[Event] = json.loads(json.dumps(events))
        return again


def versions(lake: Hourly) -> Looks:
    return Looks(lambda: VersionWatch(lake.root, "events"))


def closings(lake: Hourly, **how: Any) -> Looks:
    sizes = {"window_ms": HOUR, "lateness_ms": LATENESS}
    return Looks(lambda: ClosedWatch(lake.root, "events", **sizes, **how))


def hours(events: list[Event]) -> list[int]:
    """The hours that events tell of; each is one hour long."""
    bounds = [[to_epoch_ms(time) for time in event["interval"]] for event in events]
    assert all(end - start == HOUR for start, end in bounds)
    return [(start - FIRST) // HOUR for start, _ in bounds]


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from(["ingest", "ingest", "replace", "undo", "merge"]), st.integers(0, 5)
        ),
        st.tuples(st.sampled_from(["look", "restart"]), st.just(0)),
    ),
    max_size=14,
)


@given(STEPS)
@examples(25)
def test_a_watch_tells_each_change_once(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    """Between two looks: of each run that changed its last state, of each window that closed."""
    lake = Hourly(tmp_path_factory.mktemp("watched"))
    runs, windows = versions(lake), closings(lake)
    told, open_before = {run: len(states) for run, states in lake.states.items()}, lake.closed()
    assert runs.look() == windows.look() == []
    for verb, hour in [*steps, ("look", 0)]:
        if verb == "restart":
            runs.restart()
            windows.restart()
        elif verb != "look":
            lake.do(verb, hour)
            continue
        found = runs.look()
        changed = {run: s[-1] for run, s in lake.states.items() if len(s) > told.get(run, 0)}
        assert {event["run_id"]: event["state"] for event in found} == changed
        assert len(found) == len(changed)
        closed = lake.closed()
        assert sorted(hours(windows.look())) == sorted(closed - open_before)
        told = {run: len(states) for run, states in lake.states.items()}
        open_before = closed


def test_an_event_names_what_can_be_read(tmp_path: Path) -> None:
    lake = Hourly(tmp_path)
    runs = versions(lake)
    assert runs.look() == []
    lake.do("ingest", 0)
    (event,) = runs.look()
    log = seglake.open(lake.root, event["version"]).topic(event["topic"])
    assert {int(p): end for p, end in event["end_offsets"].items()} == log.end_offsets()
    assert log.read_range(*event["interval"]).read_all().num_rows == 3
    assert (event["run_id"], event["state"]) == ("hour 0", "committed")


def test_a_run_without_an_interval(tmp_path: Path) -> None:
    runs = Looks(lambda: VersionWatch(str(tmp_path / "lake"), "events"))
    assert runs.look() == []
    ingest(pipeline_of(tmp_path / "lake", [write_file(tmp_path / "a.jsonl", [Line(T)])]), "bare")
    assert [event["interval"] for event in runs.look()] == [None]


def test_the_first_look_tells_closed_windows_since_a_time(tmp_path: Path) -> None:
    lake = Hourly(tmp_path)
    for hour in (0, 1, 2, 3):
        lake.do("ingest", hour)
    assert hours(closings(lake).look()) == []
    assert hours(closings(lake, since=FIRST).look()) == [0, 1, 2]
    assert hours(closings(lake, since=format_ms(FIRST + HOUR + 1)).look()) == [2]
    assert hours(closings(lake, since=FIRST + 20 * HOUR).look()) == []
    later = closings(lake, since=FIRST + HOUR)
    assert (hours(later.look()), hours(later.look())) == ([1, 2], [])
    lake.do("ingest", 4)
    assert hours(later.look()) == [3]


def test_a_day_closes_with_its_last_hour(tmp_path: Path) -> None:
    lake, day = Hourly(tmp_path), 24 * HOUR
    midnight = (day - FIRST % day) // HOUR
    watch = Looks(lambda: ClosedWatch(lake.root, "events", window_ms=day, lateness_ms=0))
    lake.do("ingest", midnight, 23)
    assert watch.look() == []
    lake.do("ingest", midnight + 23)
    (event,) = watch.look()
    assert event["interval"] == [format_ms(FIRST + midnight * HOUR + n * day) for n in (0, 1)]


def test_a_look_at_what_did_not_change_opens_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Hourly(tmp_path)
    lake.do("ingest", 0)
    looks = [versions(lake), closings(lake)]
    for each in looks:
        each.look()

    def refuse(*_: Any) -> None:
        raise AssertionError("it was read again")

    monkeypatch.setattr(seglake, "open", refuse)
    monkeypatch.setattr("seglake.catalog.version.snapshot_files.tables", refuse)
    for each in looks:
        assert each.look() == []


def test_a_cursor_of_an_expired_version_goes_by_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Hourly(tmp_path)
    lake.do("ingest", 0)
    runs = versions(lake)
    runs.look()
    lake.do("ingest", 1)
    runs.restart()
    opened = seglake.open

    def retained(root: str, version: int | None = None) -> Lake:
        if version is not None:
            raise VersionExpired(f"version {version} is no longer retained")
        return opened(root)

    monkeypatch.setattr(seglake, "open", retained)
    assert [event["run_id"] for event in runs.look()] == ["hour 1"]


def test_without_airflow_a_sentence_tells_what_is_missing() -> None:
    with pytest.raises(ConfigError, match=r"pip install 'seglake\[airflow\]'"):
        _ = airflow.SeglakeVersionTrigger
