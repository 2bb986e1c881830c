"""A data file of the catalog is read as it was written, or not at all."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglake.catalog.delta.data_files import DataFile, read_files, write_file
from seglake.catalog.schema import Row, file_table
from seglake.catalog.version.snapshot_files import last_finished_files
from seglake.errors import CorruptData
from seglake.store import Store, open_store
from tests.harness.damaged import flipped
from tests.harness.tiers import rest_but_today
from tests.makers.catalog_rows import run, segment, source, topic

ROWS: list[Row] = [segment(0, 5), run("r", "a"), source("in/a"), topic()]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path))


@pytest.mark.parametrize("row", rest_but_today(ROWS, 2), ids=lambda row: row.KIND)
def test_every_changed_byte_and_every_length_is_found(store: Store, row: Any) -> None:
    """Also in the schema and in the headers of pages, which no checksum of Parquet covers."""
    written = write_file(store, "log", row.KIND, row.topic, file_table([row]))
    file = DataFile(written.path, row.KIND, row.topic, written.size_bytes, 1)
    path = Path(store.uri, "log", file.path)
    good = path.read_bytes()
    changes = [*flipped(good, range(len(good)), [0]), *(good[:n] for n in range(0, len(good), 9))]
    for bad in changes:
        path.write_bytes(bad)
        with pytest.raises(CorruptData) as caught:
            read_files(store, "log", [file])
        assert caught.value.file == f"log/{file.path}"
    path.write_bytes(good)
    assert read_files(store, "log", [file]) == [file_table([row])]


def test_another_writers_file_must_have_the_values_that_every_row_has(store: Store) -> None:
    table, folder = file_table([source("in/a")]), Path(store.uri, "log")
    folder.mkdir()
    column = table.schema.get_field_index("path")
    for found, fails in (
        (table, False),
        (table.drop_columns(["path"]), True),
        (table.set_column(column, "path", pa.nulls(1, pa.string())), True),
        (table.drop_columns(["etag"]), False),
    ):
        pq.write_table(found, folder / "part-0.parquet")
        file = DataFile("part-0.parquet", "source", "orders", 1, 1)
        if fails:
            with pytest.raises(CorruptData, match="path is null in a source row"):
                read_files(store, "log", [file])
        else:
            (rows,) = read_files(store, "log", [file])
            assert rows.column_names == table.column_names


files_of_times = st.lists(
    st.tuples(st.lists(st.integers(0, 40), min_size=1, max_size=6), st.booleans()), max_size=8
)


@given(files_of_times, st.integers(1, 20))
def test_the_rows_that_finished_last_are_in_the_files_that_are_read(
    written: list[tuple[list[int], bool]], count: int
) -> None:
    """A file without statistics, which another writer's may be, is read in any case."""
    files = [
        DataFile(f"{n}", "run", "orders", 1, len(times),
                 {"finished_at_ms": (min(times), max(times))} if told else {})
        for n, (times, told) in enumerate(written)
    ]  # fmt: skip
    read = last_finished_files(files, count)
    inside = sorted(t for file in read for t in written[int(file.path)][0])
    assert inside[-count:] == sorted(t for times, _ in written for t in times)[-count:]


def test_no_more_files_are_read_than_have_the_rows_that_finished_last() -> None:
    files = [DataFile(f"{n}", "run", "orders", 1, 10, {"finished_at_ms": (10 * n, 10 * n + 9)})
             for n in range(50)]  # fmt: skip
    assert last_finished_files(files, 25) == files[-3:]
