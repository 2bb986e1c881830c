"""What tests of reading share."""

from __future__ import annotations

import pyarrow as pa

from tests.lakes import Written


def as_written(table: pa.Table) -> list[Written]:
    table = table.set_column(3, "timestamp", table["timestamp"].cast(pa.int64()))
    return [
        Written(
            row["partition"], row["offset"], row["timestamp"], row["timestamp_type"], row["key"],
            row["value"], [(header["key"], header["value"]) for header in row["headers"]],
        )
        for row in table.to_pylist()
    ]  # fmt: skip
