"""Several runs at once on one topic, each in a process of its own."""

import json
from pathlib import Path

import pytest

from tests.harness.processes import LINES, a_file, race, results, writers
from tests.harness.tiers import rest_but
from tests.makers.raw_events import (
    Line,
    T,
    assert_holds,
    ingest,
    pipeline_of,
    read_lake,
    read_raw,
    write_file,
)

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("clock", rest_but(["CreateTime", "LogAppendTime"], "LogAppendTime"))
def test_eight_writers_at_once_all_succeed(tmp_path: Path, clock: str) -> None:
    lake = str(tmp_path / "lake")
    race(lake, tmp_path, clock, made_before=clock == "CreateTime")
    assert read_lake(lake) == read_raw(lake)


def test_two_runs_that_name_the_same_file_ingest_it_once(tmp_path: Path) -> None:
    lake, shared = tmp_path / "lake", a_file(tmp_path / "shared.jsonl", 0)
    own = [a_file(tmp_path / f"own-{number}.jsonl", number) for number in range(2)]
    with writers(2) as start:
        futures = [start(pipeline_of(lake, [shared, path]), path.name) for path in own]
        winner, loser = results(futures)
    assert winner.report.records == 2 * LINES
    assert (loser.report.records, loser.report.input_rows) == (LINES, LINES)
    assert loser.report.skipped_files == [str(shared)]
    assert (winner.read, loser.read) == (1, 2)
    mine = {done.report.run_id: tmp_path / done.report.run_id for done in (winner, loser)}
    first, second = mine.values()
    assert_holds(read_lake(lake), pipeline_of(lake, shared), [[shared, first], [second]])


def test_a_race_with_a_changed_file_moves_what_is_written(tmp_path: Path) -> None:
    """A changed file that is ingested as new is no reason to plan again."""
    lake, changed = tmp_path / "lake", tmp_path / "changed.jsonl"
    a_file(changed, 0)
    ingest(pipeline_of(lake, changed), "before")
    before = {record.value for log in read_lake(lake).values() for record in log}
    write_file(changed, [Line(T + at, "x") for at in range(7)])
    other = a_file(tmp_path / "other.jsonl", 1)
    with writers(2) as start:
        anew = pipeline_of(lake, changed, on_changed_source="ingest-as-new")
        done = results([start(anew, "1"), start(pipeline_of(lake, other), "2")])
    assert [each.read for each in done] == [1, 1]
    found = [record.value for log in read_lake(lake).values() for record in log]
    assert len(found) == 2 * LINES + 7
    assert before < set(found)
    assert read_lake(lake) == read_raw(lake)


def test_runs_that_keep_offsets_plan_again_and_move_nothing(tmp_path: Path) -> None:
    """Two overlapping parts of one log at once: the loser skips what the winner brought in."""
    lake, offsets = tmp_path / "lake", [range(20), range(10, 30)]
    for number, some in enumerate(offsets):
        lines = ({"ts": T + at, "p": at % 2, "o": at // 2 * 3, "k": str(at)} for at in some)
        text = "".join(f"{json.dumps(line)}\n" for line in lines)
        (tmp_path / f"{number}.jsonl").write_text(text)
    topic = {"partition_field": "p", "offset_field": "o"}
    with writers(2) as start:
        settings = [
            pipeline_of(lake, tmp_path / f"{number}.jsonl", order="arrival", topic=topic)
            for number in range(2)
        ]
        done = results([start(each, str(number)) for number, each in enumerate(settings)])
    first, late = (offsets[int(each.report.run_id)] for each in done)
    wanted = [*first, *(at for at in late if at > max(first))]  # the end of a log only grows
    report = done[1].report
    assert (report.rebased, done[1].read, report.records) == (0, 2, len(wanted) - 20)
    assert report.skipped_records == 20 - report.records
    found = {(p, record.offset) for p, log in read_lake(lake).items() for record in log}
    assert found == {(at % 2, at // 2 * 3) for at in wanted}
