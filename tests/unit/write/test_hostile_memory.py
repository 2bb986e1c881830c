"""Rows that are many, tiny, wide or bad take the memory that docs/deployment.md declares.

Every task has its default bounds, and every file is larger than one chunk of them.
"""

import gzip
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.harness.bounded import MIB, measure
from tests.harness.tiers import of_today, rest_but
from tests.makers.raw_events import T

SIZE = 48 * MIB  # unpacked: more than `task.chunk_bytes`
DECLARED = 400 * MIB  # docs/deployment.md: what a task takes, beside Python and its libraries


class Hostile(NamedTuple):
    """A file: one row, or rows of so many bytes, and the tables of its pipeline."""

    write: Callable[[int], bytes]
    settings: dict[str, Any]
    rejected: bool = False
    suffix: str = "gz"
    size: int = SIZE


def lines(line: bytes, head: bytes = b"") -> Callable[[int], bytes]:
    """Copies of a line behind a header or a good line, packed."""
    return lambda size: gzip.compress(head + line * (size // len(line) + 1), 1)


def parquet(columns: dict[str, Any], row_bytes: int) -> Callable[[int], bytes]:
    """A Parquet file of one row, repeated, that takes `row_bytes` in memory."""

    def write(size: int) -> bytes:
        count = size // row_bytes + 2
        table = pa.table({name: pa.repeat(value, count) for name, value in columns.items()})
        if "t" in columns:
            table = table.set_column(0, "t", pa.array([T] + [None] * (count - 1), pa.int64()))
        pq.write_table(table, out := io.BytesIO(), row_group_size=1 << 20)
        return out.getvalue()

    return write


def csv(columns: int, name: str = "c%d") -> bytes:
    return b",".join((name % n).encode() for n in range(columns)) + b"\n"


def tables(form: str, value: str = "line", **more: Any) -> dict[str, Any]:
    """A pipeline in the order of arrival, or, with a field `t`, of time."""
    stamp = {"field": "t", "format": "epoch_ms", "allow_1970": True}
    timed = {"order": "time", "timestamp": stamp}
    clock = {} if "t" in more else {"message.timestamp.type": "LogAppendTime"}
    return {
        "max_quarantine_ratio": 1.0,
        "topic": {"name": "events", "partitions": 3, **clock},
        "input": {"format": form, **more.pop("input", {})},
        "value": {} if value == "line" else {"from": value, **more.pop("value_columns", {})},
        **(timed if more.pop("t", None) else {"order": "arrival"}),
        **more,
    }


EVENT = b'{"t":%d,"k":"a"}\n' % T
SPACED = b"{" + b" " * 1000 + b"}\n"
MANY = [f"a{n}.b" for n in range(500)]
KEY: dict[str, Any] = {"key": {"fields": ["k"]}}
SOURCE: dict[str, Any] = {"headers": {"source": True}}
PATTERN = {"pattern": "(?P<a>y)(?P<b>z)"}
WIDE = tables("csv", "columns")
ROWS = tables("parquet", "columns")

HOSTILE = {
    "objects without members": Hostile(lines(b"{}\n"), tables("jsonl", **KEY)),
    "objects without a time": Hostile(lines(b"{}\n", EVENT), tables("jsonl", t=1, **KEY), True),
    "short events": Hostile(lines(b'{"t":1}\n'), tables("jsonl", t=1, **KEY)),
    "broken lines": Hostile(lines(b"x\n", EVENT), tables("jsonl", t=1, **KEY), True),
    "lines of one byte": Hostile(lines(b"x\n"), tables("text")),
    "lines of one byte with headers": Hostile(lines(b"x\n"), tables("text", **SOURCE)),
    "lines that do not match": Hostile(
        lines(b"x\n", b"yz\n"), tables("text", input=PATTERN), rejected=True
    ),
    "empty lines": Hostile(lines(b"\n" * 999 + b"{}\n"), tables("jsonl")),
    "deep nesting": Hostile(
        lines(b'{"a":' * 511 + b"{}" + b"}" * 511 + b"\n"), tables("jsonl", **KEY)
    ),
    "many headers": Hostile(lines(SPACED), tables("jsonl", headers={"fields": MANY})),
    "many columns of objects": Hostile(
        lines(SPACED), tables("jsonl", "columns", value_columns={"columns": MANY})
    ),
    "csv of one column": Hostile(lines(b"x\n", b"a\n"), tables("csv")),
    "csv of too few columns": Hostile(lines(b"x\n", b"a,b\n1,2\n"), tables("csv"), True),
    "letters that are escaped": Hostile(lines(b"\x01" * 999 + b",1\n", b"a,b\n"), WIDE),
    "csv of 1000 columns, short rows": Hostile(
        lines(b"x\n", csv(1000) + b"," * 999 + b"\n"), WIDE, True, size=MIB
    ),
    "csv of 1000 columns": Hostile(lines(b"," * 999 + b"\n", csv(1000)), WIDE, size=32 * MIB),
    "csv of 10000 columns": Hostile(lines(b"," * 9999 + b"\n", csv(10_000)), WIDE, size=16 * MIB),
    "csv of long names": Hostile(
        lines(b"," * 99 + b"\n", csv(100, "%d" + "c" * 5000)), WIDE, size=MIB
    ),
    "tiny rows": Hostile(parquet({"a": None, "b": True}, 4), ROWS, suffix="parquet"),
    "many tiny columns": Hostile(
        parquet({f"c{n}": 1 for n in range(1000)}, 8000), ROWS, suffix="parquet"
    ),
    "rows without a time": Hostile(
        parquet({"t": 1, "b": 1}, 8), tables("parquet", "columns", t=1), True, "parquet"
    ),
    "a text again and again": Hostile(parquet({"a": "x" * 2**12}, 2**12), ROWS, suffix="parquet"),
}


QUICK = "tiny rows"
OTHERS = of_today(name for name in HOSTILE if name != QUICK)


@pytest.mark.slow
@pytest.mark.parametrize("name", rest_but([QUICK, *OTHERS], QUICK))
@pytest.mark.long
def test_hostile_rows_take_the_memory_of_others(name: str, tmp_path: Path) -> None:
    hostile = HOSTILE[name]
    small, large = (tmp_path / f"{size}.{hostile.suffix}" for size in ("small", "large"))
    small.write_bytes(hostile.write(1))
    large.write_bytes(hostile.write(hostile.size))
    found = measure(tmp_path / "lake", small, large, **hostile.settings)
    print(f"{name}: {found.grown_bytes // MIB} MiB")
    assert found.error == ""
    assert (found.records <= 1) == hostile.rejected
    assert found.grown_bytes < DECLARED
