"""What a lake shows of itself: tables as text and as HTML, lists as Arrow tables."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import seglake
from seglake.catalog.schema import RunRow, SegmentRow
from seglake.errors import UnknownTopic
from seglake.terminal.tables import Column, ShowsTable, Table
from tests.makers.lakes import Event, LakeMaker, Shape

T = 1_780_272_000_000


@pytest.fixture
def lake(tmp_path: Path) -> seglake.read.lake.Lake:
    maker = LakeMaker(tmp_path, partitions=2)
    for hour in range(3):
        rows = [Event(T + hour * 3_600_000 + second * 1000) for second in range(40)]
        interval = (T + hour * 3_600_000, T + (hour + 1) * 3_600_000)
        maker.run({0: rows, 1: rows[:3]}, Shape(segment_bytes=2000), interval)
    return seglake.open(str(tmp_path))


def test_segments_are_the_rows_of_the_catalog(lake: seglake.read.lake.Lake) -> None:
    found = lake.topic("events").segments()
    table = pa.table(found)
    assert table.equals(found.to_arrow())
    assert {*table.column_names} == {f.name for f in fields(SegmentRow)} - {"topic"}
    places = list(
        zip(*(table[name].to_pylist() for name in ("partition", "base_offset")), strict=True)
    )
    assert places == sorted(places)
    counts: list[Any] = table["record_count"].to_pylist()
    assert sum(counts) == 129
    assert repr(found).splitlines()[0] == f"{len(places)} segments of events"


def test_history_is_a_list_and_an_arrow_table(lake: seglake.read.lake.Lake) -> None:
    runs = lake.history()
    assert [run.run_id for run in runs] == ["run 0", "run 1", "run 2"]
    table = runs.to_arrow()
    assert {*table.column_names} == {f.name for f in fields(RunRow)}
    assert [RunRow(**row) for row in table.to_pylist()] == runs
    newest = repr(runs).splitlines()[3]
    assert "2026-06-01T02:00:00Z/2026-06-01T03:00:00Z" in newest
    assert newest.split()[2:4] == ["run", "2"]
    head = repr(runs).splitlines()[1]
    assert {"finished", "topic", "run", "records", "state"} <= {*head.split()}
    assert lake.maintenance().to_arrow().num_rows == 0
    assert repr(lake.maintenance()).startswith("0 commits")


def test_html_is_escaped_and_long_tables_are_cut() -> None:
    class Evil(ShowsTable):
        def _table(self) -> Table:
            return Table("<t>", [Column("h", "<h>")], [("<b>",)] * 30, 50)

    html = Evil()._repr_html_()
    assert "&lt;t&gt;" in html
    assert "<b>" not in html
    assert html.count("<tr>") == 21
    assert html.endswith("<p>… and 30 more</p>")
    assert repr(Evil()).splitlines()[-1] == "… and 30 more"


def test_a_misspelt_topic_gets_the_nearest(lake: seglake.read.lake.Lake) -> None:
    with pytest.raises(UnknownTopic, match=r"'event' is not in version 3.*Did you mean 'events'\?"):
        lake.topic("event")
    with pytest.raises(UnknownTopic, match=r"of the lake$"):
        lake.history("zzz")
