"""Fields of values of every format: searches, indexes and columns, against csv, re and json."""

import csv
import io
import json
import pickle
import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import seglake
from seglake.catalog.schema import SegmentRow
from seglake.errors import ConfigError, UsageError
from seglake.format import keyindex
from seglake.format.codecs.compression import IDS, compressor
from seglake.format.decode import scan_batches
from seglake.format.encode import Encoding, encode_batches, encode_bodies
from seglake.format.index import IndexPolicy, Subject, Subjects, subjects_of
from seglake.format.key_hashes import Hashes
from seglake.format.records import Flags, Spans
from seglake.format.value_format import JSON, value_format_of
from seglake.log.key_indexes import KeyIndexBuilder
from seglake.maintain.health.reindex import reindex
from seglake.maintain.health.verify import verify
from seglake.maintain.topic_settings import alter
from seglake.read.fields import Fields
from seglake.read.log import Log
from seglake.read.where import Where
from seglake.text.value_fields import field_finder
from tests.makers.catalog_rows import commit_rows
from tests.makers.lakes import Event, LakeMaker, Shape, T, open_catalog, records_of
from tests.makers.strategies import examples

NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
Settings = Mapping[str, Any]


class Text(NamedTuple):
    """A field that a value has: its text, and whether it may count as a number, true or false."""

    text: str
    raw: bool


Found = dict[str, Text] | None  # the fields of a value; None if there is no way to find any


def _csv_fields(settings: Settings, value: bytes) -> Found:
    """By Python's csv."""
    try:
        text = value.decode().removesuffix("\n").removesuffix("\r")
        delimiter, quote = (settings.get(f"value.{name}") for name in ("delimiter", "quote"))
        reader = csv.reader([text], delimiter=delimiter or ",", quotechar=quote or '"', strict=True)
        cells = next(iter(reader)) if text and text[-1] != "\n" else []  # one line end is allowed
    except (UnicodeDecodeError, csv.Error):
        return None
    names = settings["value.columns"]
    if len(cells) != len(names):
        return None
    return {name: _untyped(cell) for name, cell in zip(names, cells, strict=True) if name and cell}


def _text_fields(settings: Settings, value: bytes) -> Found:
    """By Python's re, with RE2's classes of ASCII, and its `$`: only the end of the text."""
    pattern = settings["value.pattern"].replace("$", r"\Z")
    try:
        match = re.match(f"(?:{pattern})", value.decode(), re.ASCII)
    except UnicodeDecodeError:
        return None
    if match is None:
        return None
    return {name: _untyped(text) for name, text in match.groupdict().items() if text}


def _json_fields(_settings: Settings, value: bytes) -> Found:
    """By Python's json; the values that are generated have members that are no containers."""
    try:
        members = json.loads(value, parse_int=_raw, parse_float=_raw)
    except ValueError:
        return None
    if not isinstance(members, dict):
        return None
    return {name: _of_json(item) for name, item in members.items()}


def _raw(text: str) -> Text:
    return Text(text, True)


def _of_json(item: Any) -> Text:
    if isinstance(item, Text):
        return item
    return _raw(str(item).lower()) if isinstance(item, bool) else Text(item, False)


def _untyped(text: str) -> Text:
    return Text(text, NUMBER.fullmatch(text) is not None or text in {"true", "false"})


JUDGES: dict[str, Callable[[Settings, bytes], Found]] = {
    "json": _json_fields, "csv": _csv_fields, "text": _text_fields,
}  # fmt: skip


def fields_of(settings: Settings, value: bytes | None) -> Found:
    """The fields of a value, by the judge of the format."""
    if value is None:
        return None
    return JUDGES[settings.get("value.format", "json")](settings, value)


def is_met(found: Found, name: str, wanted: Any) -> bool:
    """Whether a field is equal to what a search names."""
    if found is None:
        return False
    if wanted is None or name not in found:
        return wanted is None and name not in found
    text, raw = found[name]
    if isinstance(wanted, str):
        return text == wanted
    if isinstance(wanted, bool):
        return raw and text == str(wanted).lower()
    if not raw or NUMBER.fullmatch(text) is None:
        return False
    return Decimal(repr(wanted)) == _decimal(text)


def are_met(found: Found, where: Mapping[str, list[Any]]) -> bool:
    """Whether each field is equal to one of its values."""
    return all(any(is_met(found, name, each) for each in some) for name, some in where.items())


def _decimal(text: str) -> Decimal:
    """A number; NaN, which is equal to nothing, with an exponent that no number asked for has."""
    try:
        return Decimal(text)
    except InvalidOperation:
        return Decimal("NaN")


FORMATS: list[Settings] = [
    {},
    {"value.format": "csv", "value.columns": ["a", "b"]},
    {"value.format": "csv", "value.columns": ["b", "a"]},
    {"value.format": "csv", "value.columns": ["a", "", "b"]},
    {"value.format": "csv", "value.columns": ["a", "b"], "value.delimiter": ";",
     "value.quote": "'"},
    {"value.format": "text", "value.pattern": r"(?P<a>[^,;]*)[,;](?P<b>.*)"},
    {"value.format": "text", "value.pattern": r"(?P<b>\w*)\W?(?P<a>.*)$"},
]  # fmt: skip
CELLS = ["", "200", "2e2", "200.0", "-0", "0", "0200", "true", "None", "ann", 'say "hi"', "a,b",
         "x\ny", "é", " 200", "9" * 25, "1e999999999999999999999", "it's", "a;b"]  # fmt: skip


def _csv_line(cells: list[str], delimiter: str, quote: str) -> bytes:
    out = io.StringIO()
    writer = csv.writer(out, delimiter=delimiter, quotechar=quote, lineterminator="")
    writer.writerow(cells)
    return out.getvalue().encode()


values = st.one_of(
    st.none(),
    st.builds(
        _csv_line, st.lists(st.sampled_from(CELLS), min_size=1, max_size=3),
        st.sampled_from(",;"), st.sampled_from("\"'"),
    ),
    st.text(alphabet=',;"\'\na20.eé-', max_size=12).map(str.encode),
    st.builds(
        lambda a, b: json.dumps({"a": a, "b": b}).encode(),
        st.sampled_from([*CELLS, 200, -1, True]), st.sampled_from(CELLS),
    ),
    st.sampled_from([b"\xff,b", b"a,\xe9", b"", b"\n", b"\r\n", b"a,b\r\n", b'"a","b"\n', b"a,b\r",
                     b'"a,b', b'"a"x,b', b"a,b\n\n", b"a,b,c,d"]),
)  # fmt: skip
wanted = st.one_of(
    st.sampled_from(CELLS), st.sampled_from([None, 200, 200.0, 0, -0.0, 10**25 - 1, True, False])
)
questions = st.dictionaries(
    st.sampled_from(["a", "b", "c"]), st.lists(wanted, min_size=1, max_size=2), min_size=1
)
policies = st.sampled_from([0, 200, 300])


def _offsets(batches: Any) -> list[int]:
    offsets: list[int] = batches.read_all()["offset"].to_pylist()
    return offsets


@examples(60)
@given(
    st.sampled_from(FORMATS), st.lists(questions, min_size=1, max_size=3),
    st.lists(values, min_size=1, max_size=25),
)  # fmt: skip
def test_conditions_columns_and_indexes_are_those_of_the_judge(
    settings: Settings, asked: list[dict[str, list[Any]]], some: list[bytes | None]
) -> None:
    found = [fields_of(settings, value) for value in some]
    form, column = value_format_of(settings), pa.array(some, pa.binary())
    read, misfits = Fields(["a", "b", "c"]).read(column, field_finder(form, ["a", "b", "c"]))
    for name, texts in zip("abc", read, strict=True):
        assert texts.to_pylist() == [each[name].text if each and name in each else None
                                     for each in found]  # fmt: skip
        broken = [each is None and value is not None
                  for each, value in zip(found, some, strict=True)]  # fmt: skip
        assert misfits[name].tolist() == broken
    marked = _index(some, subjects_of({**settings, "index.fields": ["a", "b", "c"]}))
    for where in asked:
        expected = [are_met(fields, where) for fields in found]
        condition = Where(where, None, form)
        mask = condition.mask(pa.record_batch([column], ["value"]))
        assert mask.tolist() == expected
        for subject, hashes in condition.sought.items():
            assert not np.any(mask & ~marked(subject, hashes))


def _index(some: list[bytes | None], subjects: Subjects) -> Callable[[Subject, Hashes], Flags]:
    """What says which values may meet something, by an index with a block for each value."""
    records = records_of([Event(T, None, value) for value in some])
    bodies = encode_bodies(records, np.arange(len(some)))
    encoding = Encoding(compressor("none"), IDS["none"], 1, None)
    log = encode_batches(records.timestamps, bodies, encoding, base_offset=0).data.tobytes()
    builder = KeyIndexBuilder(0, IndexPolicy(0, subjects))
    builder.add(scan_batches(log), log)
    data = builder.finish(len(log))["keyindex"]
    tables = keyindex.decode_head(data, len(data))

    def marked(subject: Subject, hashes: Hashes) -> Flags:
        marks = np.zeros(tables.blocks, np.bool_)
        keyindex.may_hold(np.frombuffer(data, np.uint8), tables.of(subject), hashes, marks)
        return marks

    return marked


@pytest.mark.rest
@examples(60)
@given(
    st.sampled_from(FORMATS), policies, st.lists(questions, min_size=1, max_size=4),
    st.lists(
        st.tuples(
            st.one_of(st.none(), st.sampled_from(FORMATS)), st.lists(values, max_size=25)
        ),
        min_size=1, max_size=3,
    ),
)  # fmt: skip
def test_searches_and_columns_are_those_of_the_judge_whatever_made_the_indexes(
    settings: Settings,
    interval: int,
    asked: list[dict[str, list[Any]]],
    runs: list[tuple[Settings | None, list[bytes | None]]],
) -> None:
    """Each run's indexes are made by another format, or there are none."""
    with tempfile.TemporaryDirectory() as folder:
        maker = LakeMaker(Path(folder) / "lake", settings={**settings, "index.fields": ["a", "b"]})
        for own, some in runs:
            subjects = () if own is None else subjects_of({**own, "index.fields": ["a", "b"]})
            shape = Shape("none", 60, policy=IndexPolicy(interval, subjects))
            maker.run({0: [Event(T, None, value) for value in some]}, shape)
        log = seglake.open(str(maker.root)).topic("events")
        found = [(record.offset, fields_of(settings, record.value)) for record in maker.records()]
        for where in asked:
            expected = [
                offset
                for offset, fields in found
                if all(
                    any(is_met(fields, name, each) for each in some) for name, some in where.items()
                )
            ]
            assert _offsets(log.find(where=where)) == expected
        _check_columns(log, [fields for _, fields in found])


def _check_columns(log: Log, found: list[Found]) -> None:
    for name in ("a", "b", "c"):
        texts = [None if each is None or name not in each else each[name].text for each in found]
        read = log.tail(10**6, columns=[], fields={name: "string"}).read_all()
        assert read[name].to_pylist() == texts
        where = pc.field(name) == "200"
        scanned = log.dataset(fields=[name]).to_table(filter=where, columns=["offset", name])
        assert scanned["offset"].to_pylist() == [
            at for at, text in enumerate(texts) if text == "200"
        ]


CSV = {"value.format": "csv", "value.columns": ["ts", "user", "status", "path"]}
SWAPPED = {"value.format": "csv", "value.columns": ["ts", "status", "user", "path"]}
LINES = {"value.format": "text", "value.pattern": r"(?P<ts>\d+),(?P<user>\w+),(?P<status>\d+),"}
OF_USERS = {"index.keys": True, "index.fields": ["user", "status"]}


def _value(number: int) -> bytes:
    return b'%d,u%d,%d,"/a,%d"' % (number, number % 40, 200 + number % 5, number)


@pytest.fixture(params=[CSV, LINES], ids=["csv", "text"])
def maker(tmp_path: Path, request: pytest.FixtureRequest) -> LakeMaker:
    """Three segments of lines, with key indexes of two fields."""
    made = LakeMaker(tmp_path / "lake", settings={**request.param, **OF_USERS})
    policy = IndexPolicy(200, subjects_of(made.settings))
    for _ in range(3):
        events = [Event(T + i, b"k%d" % (i % 40), _value(i)) for i in range(100)]
        made.run({0: events}, Shape("zstd", 250, 3_000, policy))
    return made


def _log(maker: LakeMaker) -> Log:
    return seglake.open(str(maker.root)).topic("events")


def _rows(maker: LakeMaker) -> list[SegmentRow]:
    catalog = open_catalog(str(maker.root))
    return catalog.rows.segments(catalog.snapshot(), "events")


@pytest.mark.parametrize("other", [{}, SWAPPED, {**CSV, "value.delimiter": ";"}])
def test_no_search_trusts_an_index_that_was_made_by_another_format(
    maker: LakeMaker, other: Settings
) -> None:
    """A false no would lose a record."""
    root, had = str(maker.root), dict(maker.settings)
    delete = [key for key in had if key.startswith("value.") and key not in other]
    report = alter(root, "events", other, delete=delete)
    assert report.unindexed == len(_rows(maker))
    log, name = _log(maker), "status" if other is SWAPPED else "user"
    plan = log.plan_find(where={name: "u8"})
    assert (plan.by_index, plan.scanned) == (0, len(_rows(maker)))
    expected = 9 if other is SWAPPED else 0
    assert len(_offsets(log.find(where={name: "u8"}))) == expected
    assert not verify(root, deep=True).findings  # an index tells how it was made
    assert log.plan_find(b"k7").scanned == 0  # an index of keys holds in any format
    reindex(root, "events")
    log = _log(maker)
    assert log.plan_find(where={name: "u8"}).scanned == 0
    assert len(_offsets(log.find(where={name: "u8"}))) == expected
    assert not verify(root, deep=True).findings
    alter(root, "events", had, delete=[key for key in other if key not in had])
    assert len(_offsets(_log(maker).find(where={"user": "u8"}))) == 9


def test_an_older_version_is_read_by_its_own_format(maker: LakeMaker) -> None:
    version = _log(maker).version
    alter(
        str(maker.root),
        "events",
        SWAPPED,
        delete=["value.pattern"] * ("value.pattern" in maker.settings),
    )
    log = _log(maker)
    assert len(_offsets(log.find(where={"user": "u8"}))) == 0
    assert len(_offsets(log.find(where={"user": "u8"}, version=version))) == 9
    read = log.read_range(T, T + 1, fields=["user"], version=version).read_all()
    assert read["user"].to_pylist() == ["u0"] * 3


def test_a_block_with_a_value_that_cannot_be_read_is_asked(tmp_path: Path) -> None:
    settings = {**CSV, **OF_USERS}
    maker = LakeMaker(tmp_path / "lake", settings=settings)
    events = [Event(T, None, _value(i)) for i in range(100)]
    events[50] = Event(T, None, b'50,"u50')
    events[60] = Event(T, None, None)  # a tombstone has no field, and hides none
    policy = IndexPolicy(0, subjects_of(settings))
    maker.run({0: events}, Shape("none", 1, policy=policy))
    plan = _log(maker).plan_find(where={"user": "nobody"})
    assert (plan.by_index, plan.records_at_most) == (1, 1)
    assert _offsets(_log(maker).find(where={"user": "nobody"})) == []


def test_columns_have_types_and_misfits(maker: LakeMaker) -> None:
    maker.run({0: [Event(T + 500, None, b"no match"), Event(T + 501, None, None)]})
    stats = seglake.ReadStats()
    types = {"user": "string", "status": "int32", "ts": "float64", "lacking": "bool"}
    table = _log(maker).read_range(T + 3, T + 999, fields=types, stats=stats).read_all()
    first, *_, broken, none = table.to_pylist()
    assert [first[name] for name in types] == ["u3", 203, 3.0, None]
    assert [broken[name] for name in types] == [none[name] for name in types] == [None] * 4
    assert stats.misfits == dict.fromkeys(types, 1)
    json_column = _log(maker).read_range(T + 3, T + 4, fields={"status": "json"}).read_all()
    assert json_column["status"].to_pylist() == ['"203"'] * 3
    with pytest.raises(UsageError, match=r"'user' of partition 0, offset 300 .*string"):
        _log(maker).read_range(T + 500, T + 501, fields=Fields(["user"], strict=True)).read_all()


def test_fields_are_listed_with_types(maker: LakeMaker) -> None:
    maker.run({0: [Event(T, None, b"no match"), Event(T, None, b"2026-01-01,,x,1.5")]})
    found = _log(maker).fields()
    assert (found.sampled, found.objects) == (302, 300 + ("csv" in str(maker.settings)))
    assert found.types["user"] == "string"
    if "value.columns" in maker.settings:
        assert found.types == dict.fromkeys(CSV["value.columns"], "string")
        assert {each.name: each.records for each in found.fields}["user"] == 300
    else:
        assert found.types == {"ts": "int64", "user": "string", "status": "int64"}
    read = _log(maker).tail(1, fields=found.types).read_all()
    assert read.column_names[3:] == [*found.types]


def test_a_column_without_a_name_is_no_field_and_names_have_no_path(tmp_path: Path) -> None:
    settings = {"value.format": "csv", "value.columns": ["a.b", "", "a"]}
    maker = LakeMaker(tmp_path / "lake", settings=settings)
    maker.run({0: [Event(T, None, b"1,2,3")]})
    fields = _log(maker).tail(1, columns=[], fields=["a.b", "a", "b", ""]).read_all()
    assert fields.to_pylist() == [{"a.b": "1", "a": "3", "b": None, "": None}]


def test_an_index_names_its_format_in_file_and_row(maker: LakeMaker) -> None:
    row = _rows(maker)[0]
    told = json.loads(row.keyindex_of or "")
    assert told[0]["format"] == maker.settings["value.format"]
    assert told[1:] == ["key", "field:status", "field:user"]
    subject = Subject(2, "user", value_format_of(maker.settings))
    assert subject in row.index_policy.subjects
    assert Subject(2, "user") not in row.index_policy.subjects


def test_a_format_of_a_later_version_is_named_and_keys_are_found(maker: LakeMaker) -> None:
    root = str(maker.root)
    catalog = open_catalog(root)
    base = catalog.snapshot()
    row = base.topic("events")
    later = json.dumps({**json.loads(row.settings), "value.format": "xml"})
    row = replace(row, sequence=row.sequence + 1, settings=later)
    commit_rows(catalog, [row], base=base)
    log = _log(maker)
    assert len(_offsets(log.find(b"k7"))) == 9
    with pytest.raises(ConfigError, match=r'"format":"xml".* does not support'):
        log.find(where={"user": "u8"})


def test_finders_can_be_pickled() -> None:
    texts = Spans.from_list([b'{"a":1}'])
    for settings in FORMATS:
        find = pickle.loads(pickle.dumps(field_finder(value_format_of(settings), ["a", "b"])))
        assert len(find(texts).fine) == 1
    assert field_finder(JSON, ["a"])(texts).text("a").tolist() == [b"1"]
