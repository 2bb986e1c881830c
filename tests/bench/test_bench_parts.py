"""The parts of the benchmark that need no JVM: its events, its arithmetic, its document."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglake.engine import LocalEngine
from tests.bench import cold, find, remote
from tests.bench.events import Events, generate, numbers_in
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
