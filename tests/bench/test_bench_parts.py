"""The parts of the benchmark that need no JVM: its events, its arithmetic, its document."""

from __future__ import annotations

import gc
import json
import os
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglake.engine import LocalEngine
from tests.bench import __main__, cold, find, measure, remote, report
from tests.bench.events import Events, generate, numbers_in
from tests.bench.measure import Contender, Goal, Samples, Section, Table, Timed, choose_order, race
from tests.bench.why import WHY
from tests.bench.wire import Request, depth
from tests.bench.workbench import Sizes, Workbench
from tests.makers.strategies import examples


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Events:
    return generate(tmp_path_factory.mktemp("events"), events=5003, files=3, lateness_ms=2000)


def test_lines_are_json_and_say_what_the_list_of_times_says(events: Events) -> None:
    lines = [json.loads(line) for path in events.files for line in path.read_text().splitlines()]
    assert [line["ts"] for line in lines] == events.times.tolist()
    assert [int(line["id"]) for line in lines] == list(range(5003))
    assert (np.diff(events.times) < 0).any()


def test_numbers_are_found_in_lines(events: Events) -> None:
    lines = [line for path in events.files for line in path.read_bytes().splitlines()]
    column = pa.chunked_array([lines[4000:], lines[:10]], pa.binary())
    assert numbers_in(column).tolist() == [*range(10), *range(4000, 5003)]


@examples(100)
@given(data=st.data())
def test_a_window_of_the_model(events: Events, data: st.DataObject) -> None:
    time = st.integers(events.start_ms - 9000, events.end_ms + 9000)
    start, end = data.draw(time), data.draw(time)
    wanted = [i for i, t in enumerate(events.times.tolist()) if start <= t < end]
    assert events.between(start, end).tolist() == wanted


@pytest.fixture
def _no_time_for_garbage(monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole collection takes longer the more tests ran before; nothing has to settle."""
    monkeypatch.setattr(gc, "collect", int)
    monkeypatch.setattr(measure, "SETTLE_S", 0.0)


@pytest.mark.usefixtures("_no_time_for_garbage")
def test_contenders_take_turns_after_a_warm_up() -> None:
    calls: list[str] = []

    def itself_timed() -> Timed:
        calls.append("b")
        return Timed(5.0, None)

    sides = [
        Contender("a", lambda: calls.append("a"), prepare=lambda: calls.append("-")),
        Contender("b", itself_timed, warm_up=lambda: calls.append("w")),
    ]
    choose_order(1)
    first, second = race(sides, 20)
    text = "".join(calls)
    rounds = [text[at : at + 3] for at in range(3, len(text), 3)]
    assert text.startswith("-aw")
    assert len(rounds) == 20
    assert set(rounds) == {"-ab", "b-a"}
    assert len(first.seconds) == 20
    assert second.seconds == [5.0] * 20


def test_the_page_cache_has_what_is_read_before_each_run(tmp_path: Path) -> None:
    files = [tmp_path / "one", tmp_path / "folder" / "two"]
    files[1].parent.mkdir()
    for path in files:
        path.write_bytes(bytes(5 * 2**20))
    found: list[list[bool]] = []
    places = [files[0], files[1].parent]
    look = Contender("a", lambda: found.append([_is_held(path) for path in files]))
    race([look._replace(prepare=partial(_drop, *files), reads=places)], 2)
    assert found[1:] == [[True, True]] * 2  # the first is the warm-up


def _drop(*files: Path) -> None:
    """Have the page cache forget them, if it can."""
    for path in files:
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _is_held(path: Path) -> bool:
    with path.open("rb", buffering=0) as file:
        try:
            return os.preadv(file.fileno(), [bytearray(2**23)], 0, os.RWF_NOWAIT) == 5 * 2**20
        except BlockingIOError:
            return False


@pytest.mark.usefixtures("_no_time_for_garbage")
def test_a_wrong_result_stops_the_race() -> None:
    def check(found: int) -> None:
        assert found == 3

    with pytest.raises(AssertionError):
        race([Contender("wrong", lambda: 4, check)], 1)


def test_ratios_are_taken_round_by_round() -> None:
    ours, theirs = Samples("ours", [1.0, 2.0, 4.0]), Samples("theirs", [2.0, 2.0, 12.0])
    assert ours.times_as_fast_as(theirs) == [1.0, 2.0, 3.0]
    assert ours.spread(1000) == [1000.0, 2000.0, 4000.0]


@given(st.floats(0, 9), st.floats(0, 9), st.booleans())
def test_goals(measured: float, target: float, at_least: bool) -> None:
    reached = measured >= target if at_least else measured <= target
    assert Goal("", measured, target, at_least).reached is reached


def test_the_document_holds_every_figure() -> None:
    table = Table("T", ["records", "µs"], [[1000, 0.1234], [20_000, 12345.6]])
    section = Section("s", "Title", "Text.", [table], [Goal("Faster", 2.0, 3.0)], ["A note."])
    text = report.as_markdown(report.environment({"events": 7}), [section])
    for part in ("## Title", "| 1,000 | 0.123 |", "| 20,000 | 12,346 |"):
        assert part in text
    assert "Faster: 2. Goal: at least 3; **not reached**" in text
    assert "Why not" not in text
    assert json.loads(json.dumps(report.as_json({}, [section])))["sections"][0]["goals"][0]


@pytest.fixture(scope="module")
def machine() -> dict[str, Any]:
    return report.environment({})


@pytest.mark.parametrize("name", WHY)
def test_missed_goals_have_a_reason(name: str, machine: dict[str, Any]) -> None:
    """Only where one is missed."""
    assert name in __main__.PARTS
    for measured in (2.0, 3.0):
        section = Section(name, "Title", "Text.", goals=[Goal("Faster", measured, 3.0)])
        for write in (report.as_markdown, report.as_page):
            text = write(machine, [section])
            assert (WHY[name] in text) == (measured < 3.0)


def test_the_page_has_every_goal_and_no_other_table() -> None:
    table = Table("T", ["records", "µs"], [[1000, 0.1234]])
    section = Section("s", "Title", "Text.", [table], [Goal("Faster", 2.0, 3.0)], ["A note."])
    good = Section("t", "Other", "Text.", goals=[Goal("Small", 1.0, 2.0, at_least=False)])
    text = report.as_page(report.environment({"events": 7}), [section, good])
    assert "## Goals: 1 of 2 reached" in text
    assert "| Title | Faster |  | 2 | at least 3 | **no** |" in text
    assert "| Other | Small |  | 1 | at most 2 | yes |" in text
    assert "**Title: 1 of 1.**\nThe reason is not known yet." in text
    assert "records" not in text.partition("## Goals")[2]


def test_a_part_that_fails_is_named_and_loses_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = Section("cold", "Cold start", "Text.", goals=[Goal("Fast", 1.0, 2.0, at_least=False)])
    monkeypatch.setitem(__main__.PARTS, "cold", lambda _bench: good)
    monkeypatch.setitem(__main__.PARTS, "scan", lambda _bench: 1 / 0)
    monkeypatch.setattr(report, "_java", lambda: "17")
    target, tables = tmp_path / "page.json", tmp_path / "tables.md"
    code = __main__.main(["--only", "scan,cold", "--json", str(target), "--tables", str(tables)])
    assert code == 1
    assert "## Cold start" in tables.read_text()
    failed, whole = json.loads(target.read_text())["sections"]
    assert failed["failure"] == "ZeroDivisionError: division by zero"
    assert whole["goals"][0]["reached"] is True
    for write in (report.as_markdown, report.as_page):
        text = write(report.environment({}), [Section(**failed), good])
        assert "failed, and has no figures" in text
        assert "ZeroDivisionError" in text
        assert "## Goals: 1 of 1 reached" in text


def _brief(begin: float, end: float) -> Request:
    return Request(begin, end, 0, 0)


@pytest.mark.parametrize(
    ("requests", "deep"),
    [
        ([], 0),
        ([_brief(0, 5), _brief(1, 6), _brief(2, 4)], 1),
        ([_brief(0, 5), _brief(6, 9), _brief(1, 7), _brief(9.5, 11)], 3),
        ([_brief(0, 20), _brief(1, 2), _brief(3, 4)], 2),
    ],
)
def test_depth_counts_what_waits_for_another(requests: list[Request], deep: int) -> None:
    assert depth(requests) == deep


@pytest.mark.rest
@pytest.mark.s3
def test_cold_reads_of_an_object_store_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "COLD", 2)
    sizes = Sizes(events=20_000, files=2, partitions=2, runs=1, latency_ms=1)
    with Workbench(sizes, tmp_path, LocalEngine()) as bench:
        if bench.remote is None:
            pytest.skip(bench.skipped[0])
        section = remote.run(bench)
    cold, ingested = section.tables
    ((_, _, _, _, requests, deep, _, needed),) = cold.rows
    assert 2 <= deep <= requests == 4
    assert needed >= 1
    assert len(ingested.rows) == 2
    assert len(section.goals) == 3


@pytest.mark.rest
def test_searches_find_what_a_pass_over_all_events_finds(tmp_path: Path) -> None:
    sizes = Sizes(events=20_000, files=2, partitions=2, runs=2)
    with Workbench(sizes, tmp_path, LocalEngine()) as bench:
        section = find.run(bench)
    by_key, ingests = section.tables
    assert by_key.rows[0][0] == find.OURS
    assert len(ingests.rows) == 2
    assert len(section.goals) >= 3


@pytest.mark.rest
@pytest.mark.long
def test_first_lookup_is_faster_with_compiled_kernels(tmp_path: Path) -> None:
    with Workbench(
        Sizes(events=6000, files=4, partitions=2, runs=1), tmp_path, LocalEngine()
    ) as it:
        (starts,) = cold.run(it).tables
    (name, *compiling), (_, *loading) = starts.rows
    assert name == "nothing compiled"
    assert sum(loading) < sum(compiling)
