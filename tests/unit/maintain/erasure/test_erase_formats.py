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
from seglake.errors import QuarantineLimit, UsageError
from seglake.maintain.erasure.criteria import ErasureCriteria, parse_keys
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


# Rejected rows are chosen by the keys that stand in them, however the row spells them.

PARTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8)
KEY_WORDS = st.text("ab1_", min_size=1, max_size=3)

WIDE = ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"]


def goes(wanted: ErasureCriteria, *rows: bytes | None) -> list[bool]:
    return [bool(found) for found in wanted.rejects(pa.array(rows, pa.binary())).to_pylist()]


def as_csv(fields: list[str]) -> bytes:
    out = io.StringIO()
    csv.writer(out).writerow(fields)
    return out.getvalue().encode()


def as_json(fields: list[str]) -> bytes:
    return json.dumps({str(n): field for n, field in enumerate(fields)}).encode()


def as_utf8_json(fields: list[str]) -> bytes:
    return json.dumps(fields, ensure_ascii=False).encode()


def as_escaped_json(fields: list[str]) -> bytes:
    """Every character is escaped, as any JSON writer may do."""
    units = [text.encode("utf-16-be").hex() for text in fields]
    texts = ["".join(f"\\u{u[at : at + 4]}" for at in range(0, len(u), 4)) for u in units]
    return ("[" + ",".join(f'"{text}"' for text in texts) + "]").encode()


@given(
    st.lists(PARTS, min_size=1, max_size=4),
    st.sampled_from([as_csv, as_json, as_utf8_json, as_escaped_json]),
    st.data(),
)
@examples(150)
def test_a_row_with_a_field_that_is_a_key__goes(
    fields: list[str], write: Callable[[list[str]], bytes], data: st.DataObject
) -> None:
    key = data.draw(st.sampled_from(fields))
    assert goes(ErasureCriteria.from_keys([key, "another"]), write(fields)) == [True]


@given(st.lists(KEY_WORDS, max_size=6), st.lists(KEY_WORDS, min_size=1, max_size=3))
@examples(100)
def test_a_row_without_the_word__stays(words: list[str], keys: list[str]) -> None:
    for separator in (" ", '":"', "\n", "é"):
        row = separator.join(words).encode()
        assert goes(ErasureCriteria.from_keys(keys), row) == [not set(words).isdisjoint(keys)]


@given(st.lists(st.tuples(PARTS, PARTS), min_size=1, max_size=3), st.lists(PARTS, max_size=4))
@examples(60)
def test_of_a_key_of_several_fields__all_stand_in_the_row(
    keys: list[tuple[str, str]], others: list[str]
) -> None:
    wanted = ErasureCriteria.from_keys(["\0".join(key) for key in keys])
    rows = [as_json([*others, *key]) for key in keys]
    assert goes(wanted, *rows) == [True] * len(keys)


def test_parts_of_a_key__are_no_key() -> None:
    wanted = ErasureCriteria.from_keys(["anna\0berlin", "otto\0rome"])
    rows = b"anna, paris", b"berlin", b"otto in rome", b"anna rome", b"anna berlin", None
    assert goes(wanted, *rows) == [False, False, True, False, True, False]


def test_a_text__goes_wherever_it_stands() -> None:
    wanted = ErasureCriteria.from_keys([], "käse")
    assert goes(wanted, "xkäsex".encode(), b"k\\u00E4se", b"kase", None) == [
        True, True, False, False,
    ]  # fmt: skip


def test_bytes_that_are_no_text__are_found() -> None:
    assert goes(ErasureCriteria.from_keys([b"\xff\x00\xfe", b"\xff"]), b"a,\xff,b", b"\xfe") == [
        True,
        False,
    ]


def test_many_keys__are_looked_for_in_parts() -> None:
    wanted = ErasureCriteria.from_keys([f"user-{number:06}" for number in range(3000)])
    rows = [f'{{"u":"user-{number:06}"}}'.encode() for number in (0, 1500, 2999, 3000)]
    assert goes(wanted, *rows) == [True, True, True, False]


def encoded(**columns: bytes) -> bytes:
    """A row of binary columns, as one of a Parquet file is kept."""
    texts = {name: base64.b64encode(data).decode() for name, data in columns.items()}
    return json.dumps({**texts, "t": "soon"}).encode()


def test_binary_columns__are_looked_through() -> None:
    """The whole column, or a telling word in it; also if the row was cut behind it."""
    wanted = ErasureCriteria.from_keys([b"anna", b"\x00\x00\x00\x05", b"\x01\x02"])
    rows = [
        encoded(k=b"anna"), encoded(v=b'{"user": "anna"}'), encoded(v=b"joanna", k=b"ann"),
        encoded(k=b"\0\0\0\x05"), encoded(k=b"\0\0\0\0\0\0\0\x05"), encoded(k=b"\x01\x02"),
        encoded(v=b"\x80\x01\x02\x80"), encoded(a=b"x", k=b"annas")[:-17],
        encoded(k=b"ab-anna-")[: -len('", "t": "soon"}')],
    ]  # fmt: skip
    assert goes(wanted, *rows) == [True, True, False, True, False, True, False, False, True]
    assert goes(ErasureCriteria.from_keys([], "oann"), rows[2], rows[0]) == [True, False]


def test_a_key_of_binary_fields__is_found_though_they_have_nuls() -> None:
    long = (261).to_bytes(8, "big")
    wanted = ErasureCriteria.from_keys([b"anna\0" + long, long + b"\0" + b"\0\1" * 9])
    rows = [
        b'{"n":"anna",' + encoded(k=long)[1:], b'{"n":"anna",' + encoded(k=long[:-1] + b"\6")[1:],
        encoded(k=long), encoded(k=b"\0\1" * 9), encoded(k=b"\0\1" * 9, j=long),
        encoded(n=b"anna", k=long), b'{"n":"anna\\u0000\\u0000\\u0000\\u0005"}',
    ]  # fmt: skip
    assert goes(wanted, *rows) == [True, False, False, False, True, True, False]


def test_a_word_behind_an_escaped_character__is_whole() -> None:
    rows = [rb'{"n":"a\nanna"}', rb'{"n":"\u00e9anna"}', rb'{"n":"\u0061anna"}', rb'{"n":"janna"}']
    assert goes(ErasureCriteria.from_keys(["anna"]), *rows) == [True, True, False, False]


def test_any_character_may_be_doubled__as_quotes_of_csv() -> None:
    assert goes(ErasureCriteria.from_keys(["it's"]), b"1,'it''s',2", b"1,it's", b"1,it-s") == [
        True,
        True,
        False,
    ]


def test_the_empty_key__takes_no_reject() -> None:
    assert goes(ErasureCriteria.from_keys([""]), b"", b"{}") == [False, False]


def test_keys_are_not_shown() -> None:
    assert "secret" not in repr(ErasureCriteria.from_keys(["secret"], "secret"))


# ------------------------------------------------------------------ the command line


def test_keys_of_arguments_and_files(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    binary = base64.b64encode(b"\xff\n").decode()
    file.write_bytes(b"\xef\xbb\xbfone\r\n\n two \nbase64:" + binary.encode())
    assert parse_keys(["a", "base64:", "käse"], file) == [
        b"a", b"", "käse".encode(), b"one", b" two ", b"\xff\n",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "content", "match"),
    [
        ([""], None, "a key is empty"),
        (["base64:?"], None, "a key is not base64"),
        ([], b"\n\r\n", "has no keys"),
        ([], b"", "has no key"),
        ([], b"a\nbase64:x\n", "line 2 is not base64"),
    ],
)
def test_keys_that_are_none__are_refused(
    tmp_path: Path, arguments: list[str], content: bytes | None, match: str
) -> None:
    file = None if content is None else tmp_path / "keys"
    if file is not None and content is not None:
        file.write_bytes(content)
    with pytest.raises(UsageError, match=match):
        list(parse_keys(arguments, file))


def test_a_file_that_is_not_there__is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        parse_keys([], tmp_path / "keys")


def test_nothing_named__is_refused() -> None:
    with pytest.raises(UsageError, match="an erasure needs a key"):
        ErasureCriteria.from_keys([], "")


@given(st.text(alphabet="abkäß你1", min_size=2), st.binary(max_size=3), st.sampled_from(WIDE))
@examples(100)
def test_a_row_that_could_not_be_decoded__goes_by_its_words(
    key: str, before: bytes, encoding: str
) -> None:
    """It has the bytes of its file, and may begin in the middle of a character."""
    row, other = (f', "{word}", x'.encode(encoding) for word in (key, f"z{key}"))
    assert goes(ErasureCriteria.from_keys([key]), before + row, before + other) == [True, False]
    assert goes(ErasureCriteria.from_keys([], key), before + row) == [True]
