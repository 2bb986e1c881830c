"""Any history of records, deletions and compactions against plain lists."""

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from seglake.engine import LocalEngine
from tests.makers.compacted import STEPS, Clean, History, Step
from tests.makers.strategies import T, examples

LAST = Clean(0, LocalEngine(), 10**6, 10**6)


@examples(20)
@given(STEPS, st.sampled_from([None, None, T + 7]))
def test_any_history_is_that_of_plain_lists(steps: list[Step], append_time_ms: int | None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        history = History(Path(folder), append_time_ms=append_time_ms)
        for step in [*steps, LAST]:
            history.take(step)
            history.assert_holds()
