"""The rows of a published table, and of the log that it must equal."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable

import seglake
from seglake.read.fields import Fields
from seglake.store import open_store

FIELDS = {"n": "int64", "of": ("user", "string")}  # as `publish` takes them
READ = Fields({"n": "int64", "user": "string"})  # as a log reads them

Rows = list[tuple[Any, ...]]


def table_rows(uri: str) -> tuple[Rows, DeltaTable]:
    """The rows of the newest version as its Delta log has them, sorted, and the table."""
    store, table = open_store(uri), DeltaTable(uri)
    added: list[dict[str, Any]] = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    files = [pq.read_table(pa.BufferReader(bytes(store.read_all(a["path"])))) for a in added]
    for add, file in zip(added, files, strict=True):
        assert file["offset"].equals(file["offset"].sort())
        assert add["num_records"] == len(file)
        for name in ("offset", "timestamp", "n", "of"):
            if name == "offset" or add.get(f"min.{name}") is not None:
                bounds: Any = {bound: add[f"{bound}.{name}"] for bound in ("min", "max")}
                assert pc.min_max(file[name]).as_py() == bounds
                assert add[f"null_count.{name}"] == file[name].null_count
    return _sorted(pa.concat_tables(files) if files else None), table


def log_rows(root: str, topic: str, version: int | None = None) -> Rows:
    """The rows that a table of `FIELDS` must have."""
    log = seglake.open(root, version).topic(topic)
    columns = ["partition", "offset", "timestamp", "key", "headers"]
    return _sorted(log.read_range(None, None, columns=columns, fields=READ).read_all())


def _sorted(rows: pa.Table | None) -> Rows:
    if rows is None:
        return []
    times = rows.schema.get_field_index("timestamp")
    micros = rows["timestamp"].cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    columns: list[Any] = [column.to_pylist() for column in rows.columns]
    columns[times] = [None if each == -1000 else each for each in micros.to_pylist()]
    found: Rows = list(zip(*columns, strict=True))
    found.sort(key=lambda row: row[:2])
    return found


def require_equal(root: str, topic: str, *, newest: bool = True) -> DeltaTable:
    """The table has exactly the records of the version of the lake that it names.

    With `newest`, these must also be the records of the newest version.
    """
    rows, table = table_rows(f"{root}/tables/{topic}")
    version = table.transaction_version(f"seglake/{seglake.open(root).identity}")
    assert version is not None or not rows
    if newest:
        assert rows == log_rows(root, topic)
    elif version is not None:
        assert rows == log_rows(root, topic, version)
    return table
