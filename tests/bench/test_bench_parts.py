"""The parts of the benchmark that need no JVM, small. Each part checks its own answers."""

from pathlib import Path

import pytest

from seglake.engine import LocalEngine
from tests.bench import cold, find, remote
from tests.bench.workbench import Sizes, Workbench


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
