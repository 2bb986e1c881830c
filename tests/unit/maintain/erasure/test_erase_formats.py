"""Erased keys of every input format and type: no spelling of them is left below the root."""

import base64
import csv
import io
import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from seglake.config import Pipeline
from seglake.engine import LocalEngine
from seglake.errors import QuarantineLimit
from seglake.maintain.erasure.erase import erase
from seglake.maintain.health.verify import verify
from seglake.write.driver import run
from seglake.write.driver.report import silent
from seglake.write.driver.run import DeclaredRun, ingest_files
from seglake.write.driver.run_input import InputFrame
from tests.judges.kafka_model import read_log
from tests.makers.raw_events import T, quarantined, read_lake
from tests.makers.strategies import examples
from tests.unit.log.test_segments import MEMORY

SECRET, OTHER = "Zq7wK", "Yv8xJ"  # within every text, so that none stands anywhere by chance


@dataclass(frozen=True)
class Field:
    """A column, and two of its values: one of a key that is erased, and another."""

    kind: pa.DataType
    secret: Any
    other: Any


def _around(ends: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, Any]]:
    """The two words, with something before and behind."""
    four = st.tuples(ends, ends, ends, ends)
    return four.map(lambda e: (e[0] + SECRET + e[1], e[2] + OTHER + e[3]))


def _texts(alphabet: str | None = None) -> st.SearchStrategy[tuple[str, str]]:
    characters = st.characters(codec="utf-8", exclude_characters="\0")
    return _around(st.text(alphabet or characters, max_size=5))


def _two(values: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, Any]]:
    return st.tuples(values, values).filter(lambda pair: pair[0] != pair[1])


def _fields(
    kind: pa.DataType, pairs: st.SearchStrategy[tuple[Any, Any]]
) -> st.SearchStrategy[Field]:
    return pairs.map(lambda pair: Field(kind, *pair))


WORDS = _texts("abcXYZ0189_-. ").map(lambda pair: (pair[0].strip(), pair[1].strip()))
TEXTS = _fields(pa.string(), st.one_of(WORDS, _texts(), _texts("\"\\/'\n\t\b\f\r,;é😀\x01\x7f")))
INTEGERS = st.integers(123_456_789, 10**12)
NUMBERS = st.one_of(
    _fields(pa.int64(), _two(INTEGERS)),
    _fields(pa.float64(), _two(st.integers(123_456_789, 10**9).map(lambda n: n + 0.0625))),
    _fields(pa.decimal128(30, 4), _two(INTEGERS.map(lambda n: Decimal(n) / 1000))),
)
BYTES = _fields(
    pa.binary(),
    st.one_of(
        st.tuples(st.binary(max_size=9), st.binary(max_size=9)).map(
            lambda ends: (ends[0] + b"\x9dZ\x81q" + ends[1], ends[0] + b"\x8eY\x92v" + ends[1])
        ),
        _two(st.integers(2**40, 2**47).map(lambda n: n.to_bytes(8, "big"))),
        _two(st.integers(0, 255).map(lambda n: bytes([0, 0, 0, 0, 0, 0, 1, n]))),
        WORDS.map(lambda pair: (pair[0].encode(), pair[1].encode())),
    ),
)
NESTED = _fields(
    pa.struct([("a", pa.string()), ("b", pa.int64())]),
    _texts().map(lambda pair: ({"a": pair[0], "b": 17}, {"a": pair[1], "b": 17})),
)
JSON_KINDS = st.one_of(TEXTS, NUMBERS, NESTED)
KINDS: dict[str, st.SearchStrategy[Field]] = {
    "jsonl": JSON_KINDS,
    "csv": st.one_of(TEXTS, NUMBERS),
    "text": st.one_of(_fields(pa.string(), _texts("aXZ09é😀\"'\\.-")), NUMBERS),
    "parquet": st.one_of(JSON_KINDS, BYTES),
    "dataframe": st.one_of(JSON_KINDS, BYTES),
}

Row = dict[str, Any]


class Lake:
    """A lake of one topic whose keys are made of some fields."""

    def __init__(self, folder: Path, form: str, fields: list[Field]) -> None:
        self.folder, self.root, self.form = folder, folder / "lake", form
        self.fields, self.count = fields, 0
        self.names = [f"k{number}" for number in range(len(fields))]

    def rows(self) -> tuple[list[Row], list[Row]]:
        """Good rows and rows without a readable time, of a key that is erased and another one."""
        secret = {name: field.secret for name, field in zip(self.names, self.fields, strict=True)}
        other = {name: field.other for name, field in zip(self.names, self.fields, strict=True)}
        good = [{**keys, "t": str(T + n)} for n, keys in enumerate((secret, other))]
        bad = [{**keys, "t": "soon"} for keys in (secret, other)]
        return good, bad

    def ingest(self, rows: list[Row], **changes: Any) -> None:
        """One run over a file or DataFrame of the rows."""
        self.count += 1
        path = self.folder / str(self.count) / "in"
        path.parent.mkdir(parents=True)
        settings, declared = self._pipeline(path, **changes), DeclaredRun(str(self.count))
        if self.form == "dataframe":
            frame = InputFrame(_frame(self._table(rows)), "n")
            run._ingest(LocalEngine(), settings, declared, silent, lambda _: frame)
            return
        WRITERS[self.form](self, rows, path)
        ingest_files(LocalEngine(), settings, declared)

    def _pipeline(self, path: Path, **changes: Any) -> Pipeline:
        given: dict[str, Any] = {"format": self.form, "paths": [str(path)]}
        if self.form == "dataframe":
            given = {"format": "dataframe", "order_column": "n"}
        if self.form == "text":
            groups = "".join(f"(?P<{name}>[^|]*)\\|" for name in self.names)
            given["pattern"] = f"{groups}(?P<t>.*)"
        return Pipeline.model_validate(
            {
                "name": "test", "root": str(self.root), "max_quarantine_ratio": 1.0,
                "input": given, "timestamp": {"field": "t", "format": "epoch_ms"},
                "key": {"fields": self.names}, "topic": {"name": "events"}, **changes,
            }
        )  # fmt: skip

    def _table(self, rows: list[Row]) -> pa.Table:
        columns: Row = {"n": pa.array(range(len(rows)))}
        for name, field in zip(self.names, self.fields, strict=True):
            columns[name] = pa.array([row[name] for row in rows], field.kind)
        return pa.table({**columns, "t": [row["t"] for row in rows]})

    def write_jsonl(self, rows: list[Row], path: Path) -> None:
        style = {"ensure_ascii": bool(len(str(rows)) % 2)}
        lines = [json.dumps(row, default=float, **style) for row in rows]  # type: ignore[arg-type]
        path.write_text("".join(f"{line}\n" for line in lines))

    def write_csv(self, rows: list[Row], path: Path) -> None:
        out = io.StringIO(newline="")
        writer = csv.DictWriter(out, [*self.names, "t"])
        writer.writeheader()
        writer.writerows(rows)
        path.write_bytes(out.getvalue().encode())

    def write_text(self, rows: list[Row], path: Path) -> None:
        lines = ["|".join(str(row[name]) for name in [*self.names, "t"]) for row in rows]
        path.write_text("".join(f"{line}\n" for line in lines))

    def write_parquet(self, rows: list[Row], path: Path) -> None:
        pq.write_table(self._table(rows), path)


WRITERS: dict[str, Callable[[Lake, list[Row], Path], None]] = {
    "jsonl": Lake.write_jsonl, "csv": Lake.write_csv, "text": Lake.write_text,
    "parquet": Lake.write_parquet,
}  # fmt: skip


def _frame(table: pa.Table) -> Any:
    """What the map side asks of a DataFrame, without Spark."""
    conf = SimpleNamespace(get=lambda _: "0", set=lambda *_: None)

    def mapped(function: Any, _ddl: str) -> Any:
        found = pa.Table.from_batches(list(function(table.to_batches())))
        return SimpleNamespace(toArrow=lambda: found)

    session = SimpleNamespace(conf=conf)
    return SimpleNamespace(
        sparkSession=session, columns=table.column_names, mapInArrow=mapped,
        dtypes=[(name, "binary") for name in table.column_names],
        toDF=lambda *names: _frame(table.rename_columns([*names])),
    )  # fmt: skip


# ------------------------------------------------------------------ what is left


def contents(root: Path) -> Iterator[tuple[str, bytes, bool]]:
    """The bytes of every object, and all that is packed in it, each text on its own.

    The last item says whether it was packed.
    """
    for path in sorted(each for each in root.rglob("*") if each.is_file()):
        name, data = str(path.relative_to(root)), path.read_bytes()
        assert "/blobs/" not in name
        yield name, data, False
        if path.suffix == ".log":
            for _, _, record in read_log(data):
                yield name, (record.key or b"") + b"\n" + (record.value or b""), True
        elif path.suffix == ".parquet":
            for row in pq.read_table(path).to_pylist():
                for cell in row.values():
                    yield name, cell if isinstance(cell, bytes) else str(cell).encode(), True


def spellings(value: bytes) -> set[bytes]:
    """A field as plain bytes, escaped in JSON, quoted in CSV, and in base64."""
    found = {value, base64.b64encode(value)}
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return found
    for ascii_only in (False, True):
        found.add(json.dumps(text, ensure_ascii=ascii_only)[1:-1].encode())
    found.add(value.replace(b'"', b'""'))
    return found


def traces(root: Path, fields: list[bytes]) -> list[tuple[str, bytes]]:
    """Where a spelling still is.

    A few zeros and a byte are in any file, so they count only where something was packed.
    """
    wanted = set[bytes]().union(*map(spellings, fields))
    return [
        (name, each)
        for name, data, packed in contents(root)
        for each in wanted
        if each in data and (packed or len({*each}) > 3)
    ]


def erased_key(lake: Lake) -> bytes:
    """The key of the record at T, as the log has it."""
    (key,) = [r.key for log in read_lake(lake.root).values() for r in log if r.timestamp == T]
    assert key is not None
    return key


def _separate(lake: Lake) -> list[bytes]:
    """The fields of the erased key, each as a key of its own would be."""
    found = []
    for number in range(len(lake.fields)):
        alone = Lake(lake.folder / f"alone {number}", lake.form, [lake.fields[number]])
        alone.ingest(alone.rows()[0])
        found.append(erased_key(alone))
    return found


@given(st.sampled_from(list(KINDS)), st.data())
@examples(25)
def test_no_spelling_of_a_key_is_left_and_other_rows_are(form: str, data: st.DataObject) -> None:
    kinds = st.lists(KINDS[form], min_size=1, max_size=3)
    fields = data.draw(kinds)
    assume(not any(str(a.secret) in str(b.other) for a in fields for b in fields))
    with tempfile.TemporaryDirectory(dir=MEMORY) as name:
        lake = Lake(Path(name), form, fields)
        good, bad = lake.rows()
        lake.ingest([*good, *bad])
        with pytest.raises(QuarantineLimit):
            lake.ingest(bad, max_quarantine_ratio=0.0)
        key, parts = erased_key(lake), _separate(lake)
        before = quarantined(lake.root)
        report = erase(str(lake.root), "events", [key], vacuum=True, grace_hours=0)
        assert (report.records, report.rejects, report.samples) == (1, 1, 1)
        assert traces(lake.root, parts) == []
        assert len(quarantined(lake.root)) == len(before) - 1 == 1
        (left,) = [r for log in read_lake(lake.root).values() for r in log]
        assert left.timestamp == T + 1
        assert verify(str(lake.root), deep=True).findings == []
