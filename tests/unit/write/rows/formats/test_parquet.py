"""Parquet: rows as JSON against Python's json, fields as bytes, times of every type."""

import base64
import json
import math
import tempfile
import uuid
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglake.errors import InputError
from seglake.write.rows.arrow import ArrowRows
from seglake.write.rows.formats.parquet import Parquet
from tests.makers.files import Result, pipeline, read, read_bytes
from tests.makers.inputs import splits_of, store_of

texts = st.text(st.characters(codec="utf-8"), max_size=6)
COLUMNS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "flag": (pa.bool_(), st.booleans()),
    "small": (pa.int8(), st.integers(-128, 127)),
    "large": (pa.uint64(), st.integers(0, 2**64 - 1)),
    "real": (pa.float64(), st.floats()),
    "text": (pa.string(), texts),
    "bytes": (pa.binary(), st.binary(max_size=6)),
    "price": (pa.decimal128(12, 2), st.decimals(-(10**6), 10**6, places=2)),
    "words": (pa.list_(pa.string()), st.lists(st.none() | texts, max_size=3)),
    "nested": (
        pa.struct([("id", pa.int32()), ("tags", pa.list_(pa.float32()))]),
        st.fixed_dictionaries(
            {
                "id": st.none() | st.integers(-9, 9),
                "tags": st.none() | st.lists(st.floats(width=32), max_size=3),
            }
        ),
    ),
    "map": (
        pa.map_(pa.string(), pa.int64()),
        st.lists(st.tuples(texts, st.integers(0, 9)), max_size=2),
    ),
    "kind": (pa.dictionary(pa.int32(), pa.string()), st.sampled_from(["x", "y"])),
}
tables = st.lists(
    st.fixed_dictionaries({name: st.none() | kind for name, (_, kind) in COLUMNS.items()}),
    max_size=6,
)


def expected(name: str, value: Any) -> Any:
    """What JSON holds for a value."""
    match value:
        case float() if not math.isfinite(value):
            return None
        case float() if name == "tags":  # as short as a 32 bit float can be written
            return float(str(np.float32(value)))
        case bytes():
            return base64.b64encode(value).decode()
        case Decimal():
            return float(value)
        case list() if name == "map":
            return [{"key": key, "value": number} for key, number in value]
        case list():
            return [expected(name, item) for item in value]
        case dict():
            return {key: expected(key, item) for key, item in value.items()}
    return value


def write(columns: dict[str, Any], path: Path, **options: Any) -> None:
    pq.write_table(pa.table(columns), path, **options)


def read_table(columns: dict[str, Any], options: Any = None, **settings: Any) -> Result:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "file.parquet")
        write(columns, path, **(options or {}))
        return read(pipeline(path, "parquet", **settings))


@given(tables, st.integers(1, 3))
def test_rows_as_json(rows: list[dict[str, Any]], group_rows: int) -> None:
    columns = {name: pa.array([r[name] for r in rows], kind) for name, (kind, _) in COLUMNS.items()}
    found = read_table(columns, {"row_group_size": group_rows}, task={"chunk_bytes": 64})
    wanted = [{name: expected(name, value) for name, value in row.items()} for row in rows]
    assert [json.loads(row.value or b"") for row in found.rows] == wanted


@given(tables)
def test_fields_as_bytes(rows: list[dict[str, Any]]) -> None:
    names = ["flag", "small", "text", "bytes", "price", "kind", "nested.id"]
    columns = {name: pa.array([r[name] for r in rows], kind) for name, (kind, _) in COLUMNS.items()}
    found = read_table(columns, headers={"fields": names})
    for row, source in zip(found.rows, rows, strict=True):
        plain = {**source, "nested.id": (source["nested"] or {}).get("id")}
        for name, shown in row.headers:
            value = plain[name.decode()]
            if isinstance(value, bool):
                value = str(value).lower()
            wanted = value if value is None or isinstance(value, bytes) else str(value).encode()
            assert shown == wanted


MOMENT = datetime(2016, 7, 1, 12, 30, 15, 123_456, tzinfo=UTC)
MS = 1467376215123


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo"])
def test_timestamp_columns_with_a_zone(unit: str, zone: str) -> None:
    column = (
        pa.array([MOMENT, None])
        .cast(pa.timestamp("ns", "UTC"))
        .cast(pa.timestamp(unit, zone), safe=False)
    )
    found = read_table({"t": column}, timestamp={"field": "t"})
    assert [row.timestamp for row in found.rows] == [MS // 1000 * 1000 if unit == "s" else MS]
    assert [(r.line, r.reason) for r in found.rejects] == [(1, "timestamp missing")]
    assert (found.rows[0].value or b"").startswith(b'{"t":"2016-07-01T12:30:15')
    assert (found.rows[0].value or b"").endswith(b'Z"}')


def test_time_columns_without_a_zone_are_local() -> None:
    naive = MOMENT.replace(tzinfo=None)
    settings = {"field": "t", "zone": "Europe/Paris"}
    found = read_table({"t": pa.array([naive])}, timestamp=settings)
    assert [row.timestamp for row in found.rows] == [MS - 7_200_000]
    days = read_table({"t": pa.array([date(2016, 7, 1)])}, timestamp=settings)
    assert [row.timestamp for row in days.rows] == [1467324000000]


@pytest.mark.parametrize(
    ("values", "form", "wanted"),
    [
        (pa.array([MS]), "epoch_ms", MS),
        (pa.array([MS / 1000]), "epoch_s", MS),
        (pa.array([Decimal("1467376215.123")]), "epoch_s", MS),
        (pa.array(["2016-07-01T12:30:15.123Z"]), "iso8601", MS),
        (pa.array(["01.07.2016"]), "%d.%m.%Y", 1467331200000),
    ],
)
def test_other_columns_are_read_as_the_format_says(values: Any, form: str, wanted: int) -> None:
    found = read_table({"t": values}, timestamp={"field": "t", "format": form})
    assert [row.timestamp for row in found.rows] == [wanted]


def test_a_number_is_no_time_without_a_format() -> None:
    with pytest.raises(InputError, match=r"column 't' of type int64, .* Set timestamp\.format"):
        read_table({"t": pa.array([1])}, timestamp={"field": "t"})


def test_times_are_shown_as_iso() -> None:
    columns = {
        "at": pa.array([datetime(2016, 7, 1, 12)], pa.timestamp("ms")),
        "day": pa.array([date(2016, 7, 1)]),
        "clock": pa.array([time(1, 2, 3)]),
        "took": pa.array([timedelta(seconds=2)], pa.duration("ms")),
    }
    assert json.loads(read_table(columns).rows[0].value or b"") == {
        "at": "2016-07-01T12:00:00.000",
        "day": "2016-07-01",
        "clock": "01:02:03.000000",
        "took": 2000,
    }


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_a_duration_is_a_number_in_the_unit_of_its_column(unit: Any) -> None:
    """As the page about the input says."""
    number = 2 * {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    took = pa.array([timedelta(seconds=2)], pa.duration(unit))
    (row,) = read_table({"took": took}, key={"fields": ["took"]}).rows
    assert (row.key, row.value) == (b"%d" % number, b'{"took":%d}' % number)
    page = (Path(__file__).parents[5] / "docs/operations.md").read_text()
    (told,) = (line for line in page.splitlines() if "| a duration in a Parquet file" in line)
    assert f"`{unit}`" in told
    assert f"`{number}` of" in told or unit not in {"ms", "us"}


def test_a_uuid_is_text() -> None:
    """Also at any depth; another extension type is what it is stored as."""
    given = [uuid.UUID(int=0xABCDEF << 96 | 7), None, uuid.UUID(int=2**128 - 1)]
    texts = [each and str(each) for each in given]
    ids = extended(pa.uuid(), [each and each.bytes for each in given])
    flags = extended(pa.bool8(), [1, 0, None])
    columns = {
        "id": ids,
        "in": pa.StructArray.from_arrays([ids, flags], ["id", "flag"]),
        "all": pa.ListArray.from_arrays(pa.array([0, 2, 2, 3], pa.int32()), ids),
    }
    found = read_table(columns, key={"fields": ["in.id"]}, headers={"fields": ["id"]})
    inside = [{"id": text, "flag": flag} for text, flag in zip(texts, [1, 0, None], strict=True)]
    rows = zip(texts, inside, [texts[:2], [], texts[2:]], strict=True)
    assert [json.loads(row.value or b"") for row in found.rows] == [
        {"id": text, "in": struct, "all": every} for text, struct, every in rows
    ]
    assert [row.key for row in found.rows] == [text and text.encode() for text in texts]
    rest = ArrowRows("x", pa.record_batch({"id": ids.slice(1)}))
    assert rest.field("id").tolist() == [None, found.rows[2].key]


def extended(kind: Any, values: list[Any]) -> Any:
    return pa.ExtensionArray.from_storage(kind, pa.array(values, kind.storage_type))


def test_row_groups_are_divided_among_splits() -> None:
    columns = {"n": pa.array(range(1_000)), "text": pa.array([f"{k:0100}" for k in range(1_000)])}
    options = {"row_group_size": 100, "compression": "none"}
    for split_bytes in (1_000, 30_000, 10**9):
        found = read_table(
            columns, options, key={"fields": ["n"]}, task={"split_bytes": split_bytes}
        )
        assert [row.key for row in found.rows] == [str(k).encode() for k in range(1_000)]


def test_rejected_rows_are_kept_whole() -> None:
    columns = {"t": pa.array([1, None, 3]), "x": pa.array(["a", "b", "c"])}
    settings = {"timestamp": {"field": "t", "format": "epoch_ms"}, "headers": {"source": True}}
    found = read_table(columns, value={"from": "field", "field": "x"}, **settings)
    assert [row.value for row in found.rows] == [b"a", b"c"]
    assert [row.headers[1][1] for row in found.rows] == [b"1", b"3"]
    assert found.rejects == [(1, "timestamp missing", b'{"t":null,"x":"b"}')]


def test_repeated_values_do_not_make_a_batch_large(tmp_path: Path) -> None:
    """The file says how large columns are as it stores them, each value once."""
    text = pa.array(["x" * 200, "y" * 200]).take(np.arange(100_000) % 2)
    write({"text": text}, tmp_path / "file")
    settings = pipeline(tmp_path / "file", "parquet", task={"chunk_bytes": 1 << 20})
    (split,) = splits_of(settings)
    sizes = [
        len(rows.field("text").data)
        for _, rows in Parquet().read(split, store_of(settings), settings)
    ]
    assert sum(sizes) > 20_000_000
    assert max(sizes) < 1.1 * 2**20


def test_a_rejected_row_needs_no_column_that_can_be_json() -> None:
    columns: list[Any] = [
        pa.array([1, 2]),
        pa.array([3, 4]),
        pa.array([b"a", b"b"]).cast(pa.binary()),
    ]
    batch = pa.record_batch(columns, names=["x", "x", "y"])
    assert ArrowRows("file", batch).take_raw(np.array([1])).tolist() == [
        b'{"x":2,"x":4,"y":"Yg=="}'
    ]


def test_a_column_so_named_comes_before_one_inside_a_struct() -> None:
    columns = {"a.b": pa.array([1]), "a": pa.array([{"b": 2, "c": 3}])}
    found = read_table(columns, headers={"fields": ["a.b", "a.c"]})
    assert [value for _, value in found.rows[0].headers] == [b"1", b"3"]


@pytest.mark.parametrize("name", ["nope", "a.nope", "n.x"])
def test_a_wanted_column_must_be_there(name: str) -> None:
    columns = {"n": pa.array([1]), "a": pa.array([{"b": 2}])}
    told = rf"no column '{name}'. Correct the settings.*(It has 'n', 'a'|Did you mean 'n'\?)"
    with pytest.raises(InputError, match=told):
        read_table(columns, key={"fields": [name]})


def test_a_file_without_rows_has_none() -> None:
    assert read_table({"n": pa.array([], pa.int64())}).rows == []


def test_what_is_no_parquet_is_named() -> None:
    with pytest.raises(InputError, match="file cannot be read as Parquet"):
        read_bytes(b"PAR1 but not more", "parquet")
    assert read_bytes(b"", "parquet").rows == []


def _parquet_bytes(table: pa.Table, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, use_dictionary=False, compression="none", **options)
    return bytes(sink.getvalue())


def _count(rows: int) -> bytes:
    """A count of rows in a footer: an int64 field of Thrift's compact protocol, as a varint."""
    return bytes([0x16, 2 * rows])


@pytest.mark.parametrize("changed", [{20: 22, 40: 44}, {20: 19}, {40: 38}])
def test_each_row_group_must_have_the_rows_that_its_footer_says(changed: dict[int, int]) -> None:
    """20 is the count of each row group and column, 40 the count of the file."""
    data = _parquet_bytes(pa.table({"n": range(40)}), row_group_size=20)
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    footer = data[start:]
    assert len(read_bytes(data, "parquet", task={"chunk_bytes": 64}).rows) == 40
    for rows, claimed in changed.items():
        footer = footer.replace(_count(rows), _count(claimed))
    with pytest.raises(InputError, match=r"footer (has|counts)"):
        read_bytes(data[:start] + footer, "parquet", task={"chunk_bytes": 64})


def test_page_checksums_are_verified() -> None:
    table = pa.table({"n": pa.array([5], pa.int64())})
    old, new = (number.to_bytes(8, "little") for number in (5, 21))
    for checksum in (True, False):
        data = _parquet_bytes(table, write_page_checksum=checksum, write_statistics=False)
        assert data.count(old) == 1
        changed = data.replace(old, new)
        if checksum:
            with pytest.raises(InputError):
                read_bytes(changed, "parquet")
        else:
            assert read_bytes(changed, "parquet").rows[0].value == b'{"n":21}'


def test_files_of_two_writers_have_one_schema(tmp_path: Path) -> None:
    times = pa.array([0, 1500], pa.timestamp("ms", "UTC"))
    for number, (text, zone) in enumerate([(pa.string(), "UTC"), (pa.string_view(), "Etc/UTC")]):
        columns: dict[str, Any] = {
            "t": times.cast(pa.timestamp("ms", zone)),
            "s": pa.array(["a", "b"], text),
        }
        pq.write_table(pa.table(columns), tmp_path / f"{number}.parquet")
    found = read(pipeline(str(tmp_path), "parquet", timestamp={"field": "t"}))
    values = [row.value for row in found.rows]
    assert len(values) == 4
    assert values[:2] == values[2:]


def test_a_wanted_column_must_be_there_once() -> None:
    batch = pa.record_batch([pa.array([1]), pa.array([2]), pa.array([3])], names=["a", "b", "a"])
    rows = ArrowRows("file", batch)
    assert rows.field("b").tolist() == [b"2"]
    with pytest.raises(InputError, match="file has several columns 'a'"):
        rows.field("a")


@pytest.mark.parametrize(
    ("second", "changed"),
    [
        ({"n": pa.array([2], pa.int16()), "s": pa.array(["y"]).dictionary_encode()}, None),
        ({"s": pa.array(["y"]), "n": pa.array([2])}, None),
        ({"n": pa.array([2])}, "s"),
        ({"n": pa.array([2]), "t": pa.array(["y"])}, "s, t"),
        ({"n": pa.array(["2"]), "s": pa.array(["y"])}, "n is string, not int64"),
    ],
)
def test_files_must_have_the_same_columns_if_all_are_wanted(
    tmp_path: Path, second: dict[str, Any], changed: str | None
) -> None:
    pq.write_table(pa.table({"n": pa.array([1]), "s": pa.array(["x"])}), tmp_path / "1.parquet")
    (tmp_path / "2.parquet").write_bytes(b"")
    pq.write_table(pa.table(second), tmp_path / "3.parquet")
    named = pipeline(tmp_path, "parquet", value={"from": "columns", "columns": ["n"]})
    assert len(read(named).rows) == 2
    every = pipeline(tmp_path, "parquet")
    if changed is None:
        assert len(read(every).rows) == 2
        return
    with pytest.raises(InputError, match=rf"3\.parquet and .*1\.parquet differ \({changed}\)"):
        read(every)
