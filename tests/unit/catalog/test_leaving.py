"""The list of an erasure names the rejects that go, and no others."""

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from seglake.catalog.quarantine.files import FILE_SCHEMA, FRAME
from seglake.catalog.quarantine.open_rejects import (
    count_listed,
    has_any_reject,
    is_listed,
    join_lists,
    list_rejects,
)

KEY, OTHER = "catalog/quarantine/topic=t/one.parquet", "catalog/quarantine/topic=t/two.parquet"
files = st.tuples(st.sampled_from("xy"), st.sampled_from(["a", "b", None]), st.integers(1, 6))
frames = st.tuples(st.sampled_from("xy"), st.just(FRAME), st.integers(1, 2))
goes = st.booleans()
rejects = st.tuples(
    st.lists(st.tuples(files, goes), unique_by=lambda each: each[0], max_size=12),
    st.lists(st.tuples(frames, goes), max_size=6),
).flatmap(lambda both: st.permutations([*both[0], *both[1]]))


def table(rows: list[Any]) -> tuple[pa.Table, pa.BooleanArray]:
    made = [
        {"attempt_id": attempt_id, "source_file": path, "line": line}
        for (attempt_id, path, line), _ in rows
    ]
    return pa.Table.from_pylist(made, FILE_SCHEMA), pa.array([go for _, go in rows], pa.bool_())


@given(rejects, st.data())
def test_a_list__names_what_goes(rows: list[Any], data: st.DataObject) -> None:
    made, go = table(rows)
    leaving = join_lists([{}, list_rejects(KEY, made, go)])
    assert is_listed(KEY, made, leaving).to_pylist() == go.to_pylist()
    assert sum(map(count_listed, leaving.values())) == sum(map(bool, go.to_pylist()))
    assert is_listed(KEY, made, {}).to_pylist() == [False] * len(rows)

    moved: list[Any] = data.draw(st.permutations(rows))  # another program rewrote the file
    found = is_listed(OTHER, table(moved)[0], leaving).to_pylist()
    assert found == [go and path != FRAME for (_, path, _), go in moved]


@given(rejects)
def test_some_rejects_of_an_attempt(rows: list[Any]) -> None:
    made, go = table(rows)
    leaving = list_rejects(KEY, made, go)
    for attempt_id in "xy":
        of = [
            (p, line, g) for (a, p, line), g in rows if a == attempt_id and p not in {FRAME, None}
        ]
        lines = {path: np.array([n for p, n, _ in of if p == path], np.int64) for path in "ab"}
        assert has_any_reject(leaving, attempt_id, lines) == any(goes for *_, goes in of)
