"""What an open and an ingest read does not grow with the history."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from seglake.catalog.delta.file_merges import FAN_IN
from tests.harness.tiers import rest_but
from tests.scale.catalog_reads import History, Reads, build, ingested, opened, overtaken

Made = Callable[[str, int], tuple[Path, History]]
Measured = Callable[[str, int], tuple[Reads, Reads]]  # of an open, and of an ingest

RUNS, FILES = 1200, 20
WAITING, WAITING_BYTES = FAN_IN - 1, 150_000  # files of a kind that are not merged yet
SEGMENT_BYTES = 800_000  # the longer history has 1.3 MB


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A lake, by names and by how often the history is as long."""

    @cache
    def made(names: str, times: int) -> tuple[Path, History]:
        root = Path(tmp_path_factory.mktemp("lake"))
        history = History(RUNS * times, 8, 5 * RUNS * times, 4 * times, names)
        build(root, history)
        return root, history

    return made


@pytest.fixture(scope="module")
def reads(lake: Made) -> Measured:
    """What is read of a new lake, by names and by how often the history is as long."""

    @cache
    def measured(names: str, times: int) -> tuple[Reads, Reads]:
        root, history = lake(names, times)
        return opened(root, "t-000001"), ingested(root, history, FILES)

    return measured


@pytest.mark.parametrize("times", rest_but([1, 2], 1))
def test_one_topic_is_opened_by_reading_its_files(reads: Measured, times: int) -> None:
    found = reads("dated", times)[0]
    assert found.requests == {"topic": 1, "segment": 1}
    assert found.bytes.total() < 20_000


@pytest.mark.parametrize("times", rest_but([1, 2], 1))
def test_an_ingest_reads_no_rows_of_names_that_ascend(reads: Measured, times: int) -> None:
    found = reads("dated", times)[1]
    assert found.requests.keys() == {"topic", "segment"}
    assert found.requests["segment"] <= WAITING
    assert found.bytes["segment"] <= SEGMENT_BYTES


@pytest.mark.parametrize("times", rest_but([1, 2], 1))
def test_a_lost_race_reads_the_ends_again(lake: Made, reads: Measured, times: int) -> None:
    """Also what came since, but neither old segments, nor runs, nor input files."""
    reads("dated", times)  # before the lake gets more runs
    again = overtaken(*lake("dated", times), FILES)
    assert again.requests.keys() == {"topic", "segment"}
    assert again.requests["topic"] <= 2
    assert again.requests["segment"] <= WAITING + 2
    assert again.bytes["segment"] <= SEGMENT_BYTES


@pytest.mark.parametrize("times", rest_but([1, 2], 1))
def test_files_with_random_names_are_sought_in_filters(reads: Measured, times: int) -> None:
    """Files that wait are read, and four bytes for each row of those that are merged."""
    found = reads("random", times)[1]
    assert found.requests["run"] <= WAITING
    assert found.requests["source"] <= WAITING
    assert found.bytes["run"] <= 4 * RUNS * times + WAITING_BYTES
    assert found.bytes["source"] <= 4 * 5 * RUNS * times + WAITING_BYTES


@pytest.mark.parametrize("times", rest_but([1, 2], 1))
def test_random_names_in_folders_that_ascend_are_few_requests(reads: Measured, times: int) -> None:
    """No file of runs is asked, and of input files those that have names of the folder."""
    found = reads("folders", times)[1]
    assert found.requests.keys() <= {"topic", "segment", "source"}
    assert found.requests.total() <= 20
