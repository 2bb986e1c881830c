"""Avro: records as JSON, against the records that fastavro wrote; blocks, codecs, damage."""

import base64
import datetime as dt
import io
import json
import math
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglake.engine import LocalEngine
from seglake.errors import InputError
from seglake.write.check import check
from seglake.write.driver.run import DeclaredRun, ingest_files
from seglake.write.rows.formats import avro
from tests.makers.files import pipeline, read_bytes

CODECS = ["null", "deflate", "bzip2", "snappy", "zstandard", "lz4", "xz"]
texts = st.text(st.characters(codec="utf-8"), max_size=9)
times = st.datetimes(dt.datetime(1971, 1, 1), dt.datetime(2200, 1, 1))


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


inner = {"type": "record", "name": "N", "fields": [{"name": "k", "type": ["null", "string"]}]}
TYPES: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "at": (
        logical("long", "timestamp-micros"),
        times.map(lambda each: each.replace(tzinfo=dt.UTC)),
    ),
    "local": (logical("long", "local-timestamp-micros"), times),
    "day": (logical("int", "date"), st.dates()),
    "id": (logical("string", "uuid"), st.uuids()),
    "price": (logical("bytes", "decimal", precision=9, scale=7), st.decimals(-9, 9, places=7)),
    "bytes": (["null", "bytes"], st.none() | st.binary(max_size=5)),
    "fixed": ({"type": "fixed", "name": "F", "size": 2}, st.binary(min_size=2, max_size=2)),
    "kind": ({"type": "enum", "name": "E", "symbols": ["a", "b"]}, st.sampled_from("ab")),
    "real": ("double", st.floats()),
    "one": (["null", "long", "string", inner], st.none() | st.integers(-9, 9) | texts),
    "nested": ("N", st.fixed_dictionaries({"k": st.none() | texts})),
    "list": ({"type": "array", "items": "double"}, st.lists(st.floats(), max_size=2)),
    "map": (
        {"type": "map", "values": "int"},
        st.dictionaries(texts, st.integers(0, 9), max_size=2),
    ),
}
SCHEMA: Any = {
    "type": "record", "name": "R",
    "fields": [{"name": name, "type": kind} for name, (kind, _) in TYPES.items()],
}  # fmt: skip
TEXTS: Any = {"type": "record", "name": "R", "fields": [{"name": "x", "type": "string"}]}
records = st.fixed_dictionaries({name: values for name, (_, values) in TYPES.items()})


def shown(value: Any) -> Any:
    """What JSON holds for a value."""
    match value:
        case bytes():
            return base64.b64encode(value).decode()
        case float() if not math.isfinite(value):
            return None
        case Decimal():
            return f"{value:.7f}"
        case dt.datetime():
            zone = "Z" if value.tzinfo else ""
            return value.replace(tzinfo=None).isoformat(timespec="microseconds") + zone
        case dt.date() | uuid.UUID():
            return str(value)
        case dict():
            return {name: shown(each) for name, each in value.items()}
        case list():
            return [*map(shown, value)]
    return value


def written(rows: list[Any], schema: Any = SCHEMA, **how: Any) -> bytes:
    file = io.BytesIO()
    fastavro.writer(file, schema, rows, **how)
    return file.getvalue()


@given(st.lists(records, max_size=12), st.sampled_from(CODECS), st.integers(1, 400), st.data())
def test_rows_are_the_records_that_were_written(
    rows: list[Any], codec: str, block: int, data: st.DataObject
) -> None:
    file = written(rows, codec=codec, sync_interval=block)
    how: dict[str, Any] = {"timestamp": {"field": "at"}, "key": {"fields": ["nested.k"]}}
    found = read_bytes(file, "avro", **how)
    assert [json.loads(row.value or b"") for row in found.rows] == [shown(row) for row in rows]
    assert [row.key for row in found.rows] == [
        None if row["nested"]["k"] is None else row["nested"]["k"].encode() for row in rows
    ]
    assert [row.timestamp for row in found.rows] == [
        (row["at"] - dt.datetime.fromtimestamp(0, dt.UTC)) // dt.timedelta(milliseconds=1)
        for row in rows
    ]
    task = {
        "split_bytes": data.draw(st.integers(1, 900)),
        "chunk_bytes": data.draw(st.integers(64, 500)),
    }
    assert read_bytes(file, "avro", task=task, **how)[:2] == found[:2]


@given(st.lists(records, min_size=1, max_size=5), st.sampled_from(CODECS), st.data())
def test_damage_is_an_error_or_gives_whole_rows(
    rows: list[Any], codec: str, data: st.DataObject
) -> None:
    file = bytearray(written(rows, codec=codec, sync_interval=data.draw(st.integers(1, 400))))
    at = data.draw(st.integers(0, len(file) - 1))
    if data.draw(st.booleans()):
        del file[at:]
    else:
        file[at] ^= data.draw(st.integers(1, 255))
    try:
        found = read_bytes(bytes(file), "avro")
    except InputError:
        return
    assert all(isinstance(json.loads(row.value or b""), dict) for row in found.rows)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"a":1}\n', "the file is not Avro"),
        (b"PAR1\0\0", "the file is a Parquet file"),
        (written([{"n": None}], {"type": "record", "name": "L",
                                 "fields": [{"name": "n", "type": ["null", "L"]}]}),
         "a type of its schema contains itself"),
        (written([], {"type": "record", "name": "L", "fields": [
            {"name": "e", "type": {"type": "fixed", "name": "E", "size": 0}},
            {"name": "n", "type": ["null", {"type": "array", "items": "E"}]},
        ]}), "an array of empty values"),
        (b"Obj\x01more", "cannot be read as Avro"),
    ],
)  # fmt: skip
def test_files_that_cannot_be_read_are_errors(content: bytes, words: str) -> None:
    with pytest.raises(InputError, match=words):
        read_bytes(content, "avro")


@pytest.mark.parametrize("codec", CODECS)
def test_block_with_too_many_bytes_is_an_error(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avro, "_BLOCK_BYTES", 4000)
    assert len(read_bytes(written([{"x": "a" * 3990}], TEXTS, codec=codec), "avro").rows) == 1
    with pytest.raises(InputError, match=r"cannot be read as Avro.* (a block has more|more than)"):
        read_bytes(written([{"x": "a" * 4000}], TEXTS, codec=codec), "avro")


def test_changed_schema_is_an_error_that_names_both_files(tmp_path: Path) -> None:
    def schema(kind: Any, **more: Any) -> Any:
        return {"type": "record", "name": "R", "fields": [{"name": "n", "type": kind, **more}]}

    (tmp_path / "a").write_bytes(written([{"n": 1}], schema("long")))
    (tmp_path / "b").write_bytes(written([{"n": 1}], schema("long", doc="d", default=1)))
    settings = pipeline(tmp_path / "[abc]", "avro", root=str(tmp_path / "lake"))
    assert check(settings, 9).reasons == {}
    (tmp_path / "c").write_bytes(written([{"n": "x"}], schema("string")))
    for attempt in (
        lambda: check(settings, 9),
        lambda: ingest_files(LocalEngine(), settings, DeclaredRun("a")),
    ):
        with pytest.raises(InputError, match=r"the schemas of .*c and .*a differ \(n\)"):
            attempt()
