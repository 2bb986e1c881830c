"""New files among many are found."""

from pathlib import Path

import pytest

from seglake.write.driver import run_input
from tests.scale.catalog_reads import History, build
from tests.scale.many_files import searched


def test_new_files_are_found_among_those_of_the_topic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = History(40, 2, 12_000, 0)
    build(tmp_path, history)
    whole = searched(tmp_path, history, 30)
    assert (whole.new, whole.skipped, whole.pages) == (30, 12_000, 13)
    monkeypatch.setattr(run_input, "_AT_ONCE", 1000)
    parts = searched(tmp_path, history, 30)
    assert parts[:3] == whole[:3]
    assert parts.requests < 3 * 13  # names ascend: a part is in few data files
