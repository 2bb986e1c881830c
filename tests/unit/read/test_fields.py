"""Fields of values: as columns, and as conditions; the judge is Python's json, record by record."""

import json
import math
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import seglake
from seglake import Fields, Log, ReadStats
from seglake.errors import UsageError
from seglake.format.index import FIELDS, IndexPolicy, Subject
from seglake.format.key_hashes import hashes_of_numbers, hashes_of_spans
from seglake.format.records import Spans
from seglake.log.key_indexes import _with_two_hashes
from seglake.read.field_list import listed
from seglake.read.fields import TYPES
from seglake.read.where import _hashes
from seglake.text.json_fields import Scalars
from tests.judges.json_lines import Number, lookup, parse, shown
from tests.makers.lakes import Event, LakeMaker, Shape, T

pc: Any = pyarrow.compute
NAMES = ("a", "b", "a.b", "ü")

numbers = st.one_of(
    st.sampled_from(
        ["0", "-0", "1", "200", "200.0", "2e2", "20.0E1", "1e400", "-7", "0.1", "0.10"]
    ),
    st.sampled_from(["9007199254740993", "9007199254740992", "9223372036854775808", "300", "1E-2"]),
    st.integers(-(2**70), 2**70).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
)
texts = st.one_of(
    st.sampled_from(["200", "true", "", "é", "null", "2026-01-01T00:00:00Z", "[1,2]", '"', "\\"]),
    st.text(max_size=5),
)
literals = st.sampled_from(["true", "false", "null"])
scalars = st.one_of(numbers, literals, texts.flatmap(lambda text: st.sampled_from(written(text))))
blanks = st.sampled_from(["", " ", "\n", "\t\r\n "])


def written(text: str) -> list[str]:
    """A text as JSON in two ways."""
    return [json.dumps(text), json.dumps(text, ensure_ascii=False)]


def _array(items: list[str], blank: str) -> str:
    return f"[{blank}{f'{blank},{blank}'.join(items)}{blank}]"


def _object(pairs: list[tuple[str, str]], blank: str) -> str:
    members = f"{blank},{blank}".join(f"{json.dumps(k)}{blank}:{blank}{v}" for k, v in pairs)
    return f"{{{blank}{members}{blank}}}"


values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.builds(_array, st.lists(inner, max_size=4), blanks),
        st.builds(_object, st.lists(st.tuples(st.sampled_from(NAMES), inner), max_size=3), blanks),
    ),
    max_leaves=6,
)
objects = st.builds(
    _object, st.lists(st.tuples(st.sampled_from(NAMES), values), max_size=4), blanks
)
records = st.one_of(
    objects.map(str.encode), values.map(str.encode), st.none(), st.binary(max_size=6),
    objects.map(lambda text: text.encode()[:-1]),
)  # fmt: skip


def parsed(value: bytes | None) -> Any:
    """The object in a value, as an ingest reads it; None if there is none."""
    return parse(value or b"")


def field_of(value: bytes | None, name: str) -> Any:
    whole = parsed(value)
    return None if whole is None else lookup(whole, name)


def plain(value: Any) -> str | None:
    """The text of a scalar without its type."""
    text = shown(value)
    return None if text is None else text.decode()


def log_of(
    folder: str, values: list[bytes | None], batch: int = 7, *, indexed: bool = False
) -> Log:
    """A log of these values; with an index of the fields NAMES, each batch is a block."""
    maker = LakeMaker(Path(folder))
    events = [Event(T + n, b"k%d" % (n % 3), value) for n, value in enumerate(values)]
    subjects = tuple(Subject(FIELDS, name) for name in sorted(NAMES)) if indexed else ()
    maker.run({0: events}, Shape("zstd", batch, policy=IndexPolicy(0, subjects)))
    return seglake.open(folder).topic("events")


def meets(value: Any, wanted: Any) -> bool:
    """Whether a scalar of JSON is equal to what a caller gives."""
    if isinstance(value, list):
        return any(not isinstance(each, list) and meets(each, wanted) for each in value)
    if isinstance(value, dict) or value is None:
        return False
    if isinstance(wanted, bool):
        return value is wanted
    if isinstance(wanted, str):
        return plain(value) == wanted
    number = Decimal(repr(wanted)) if isinstance(wanted, float) else Decimal(wanted)
    return isinstance(value, Number) and Decimal(value) == number


asked = st.one_of(
    st.sampled_from([200, 0, 0.1, 200.0, 2**53 + 1, 10**400, True, False, None, Decimal("0.10")]),
    st.sampled_from(["200", "2e2", "true", "", "é", "null"]), st.integers(-9, 9), texts,
)  # fmt: skip


@given(
    st.lists(records, max_size=12), st.sampled_from(NAMES),
    st.lists(asked, min_size=1, max_size=3), st.booleans(),
)  # fmt: skip
@example([b'{"a":200}', b'{"a":200.5}', b'{"a":-0}', b'{"a":0}'], "a", [200.0, -0.0], False)
@example([b'{"a":1e400}', b'{"a":[[200],200]}', b'{"a":-0}'], "a", [10**400, 200, 0], True)
def test_where_finds_what_is_equal(
    values: list[bytes | None], name: str, wanted: list[Any], indexed: bool
) -> None:
    """With an index of the field, and without."""
    with tempfile.TemporaryDirectory() as folder:
        log = log_of(folder, values, indexed=indexed)
        found = log.find(where={name: wanted}, columns=["offset"]).read_all()["offset"].to_pylist()
        newest = log.find(where={name: wanted}, columns=["offset"], newest=2).read_all()["offset"]
    right = []
    for offset, value in enumerate(values):
        whole = parsed(value)
        here = field_of(value, name)
        null = whole is not None and here is None and None in wanted
        if null or any(meets(here, each) for each in wanted if each is not None):
            right.append(offset)
    assert found == right
    assert newest.to_pylist() == right[-2:]


@given(
    st.lists(records, max_size=12), st.sampled_from(NAMES), st.booleans(),
    st.lists(st.one_of(numbers, texts, st.none()), max_size=3), st.booleans(),
)  # fmt: skip
@example([b'{"a":["x","[y"]}', b'{"a":"[y"}', b'{"a":"x"}'], "a", True, ["[y", "x"], False)
def test_a_scan_by_a_field_gives_what_a_filter_gives(
    values: list[bytes | None], name: str, indexed: bool, wanted: list[str | None], flipped: bool
) -> None:
    within = pc.is_in(pc.field(name), value_set=pa.array(wanted, pa.string()))
    equal = pc.field(name) == pa.scalar(wanted[0] if wanted else None, pa.string())
    with tempfile.TemporaryDirectory() as folder:
        log = log_of(folder, values, indexed=indexed)
        web = log.dataset(columns=["offset", "key"], fields={name: "string"})
        full = web.to_table()
        for each in (within, equal, within & (pc.field("key") == b"k1"), within | equal):
            chosen = ~each if flipped else each
            assert web.to_table(filter=chosen).equals(full.filter(chosen))


def test_a_scan_by_a_field_reads_its_blocks(tmp_path: Path) -> None:
    values = [json.dumps({"a": f"u{n % 50}", "b": n}).encode() for n in range(1000)]
    log, stats = log_of(str(tmp_path), [*values], 200, indexed=True), ReadStats()
    web = log.dataset(fields={"a": "string", "b": "int32"}, stats=stats)
    found = web.to_table(filter=(pc.field("a") == "u7") & (pc.field("b") < 500))
    assert found["b"].to_pylist() == list(range(7, 500, 50))
    some = stats.bytes_fetched
    web.to_table(filter=pc.field("b") == 7)
    assert 0 < some < (stats.bytes_fetched - some) / 2


@given(numbers, numbers)
def test_equal_numbers_have_one_hash(one: str, other: str) -> None:
    hashes = hashes_of_numbers(Spans.from_list([one.encode(), other.encode()]))
    assert (hashes[0] == hashes[1]) == (Decimal(one) == Decimal(other))


def indexed_hashes(number: str) -> set[Any]:
    """The hashes that an index has of a JSON number."""
    texts = Spans.from_list([number.encode()])
    two = _with_two_hashes(Scalars(np.array([0]), texts, np.array([True])))
    return {*hashes_of_spans(texts).tolist(), *hashes_of_numbers(texts.take(two)).tolist()}


@given(numbers, numbers)
@example("123456789012345678", "1.23456789012345678e17")
@example("-0.12345678901234567", "-12345678901234567e-17")
@example("0.0000000000000001", "1e-16")
def test_a_search_asks_for_each_way_to_write_a_number(one: str, other: str) -> None:
    asked = {*_hashes(Decimal(other)).tolist()}
    assert (not asked.isdisjoint(indexed_hashes(one))) == (Decimal(one) == Decimal(other))


@pytest.mark.parametrize(
    ("text", "count"),
    [("19.99", 1), ("-0.5", 1), ("0", 1), ("123456789012345678", 1), ("1234567890123456789", 2),
     ("0.1234567890123456", 1), ("0.12345678901234567", 2), ("20.0", 2), ("2e1", 2), ("-0", 2)],
)  # fmt: skip
def test_a_short_number_in_its_usual_way_has_one_hash(text: str, count: int) -> None:
    assert len(indexed_hashes(text)) == count


@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize(
    ("wanted", "right"),
    [(0, [0, 1]), (10**400, [2]), (Decimal("1e400"), [2]), (Decimal("1e-400"), [5]), (1, [])],
)
def test_exponents_beyond_all_numbers_are_compared(
    tmp_path: Path, wanted: int | Decimal, right: list[int], indexed: bool
) -> None:
    huge = 10**20
    texts = ["0e%d", "-0.0E-%d", "1e400", "1e%d", "1e-%d", "10E-401", "1.5e%d"]
    values = [b'{"a":%s}' % (text % huge if "%" in text else text).encode() for text in texts]
    log = log_of(str(tmp_path), [*values], indexed=indexed)
    assert log.find(where={"a": wanted}).read_all()["offset"].to_pylist() == right


def read_as(value: Any, kind: str) -> Any:
    """A value as one of a type; None if that is not possible."""
    text = json.dumps(value) if isinstance(value, (list, dict)) else plain(value)
    if text is None or kind == "string":
        return text
    if kind == "bool":
        return {"true": True, "false": False}.get(text)
    if kind == "float64":
        read = (parsed(f'{{"x":{text}}}'.encode()) or {}).get("x")
        number = float(text) if isinstance(read, Number) else math.inf
        return number if math.isfinite(number) else None
    whole = int(text) if text.isascii() and text.removeprefix("-").isdigit() else None
    bits = int(kind.removeprefix("int"))
    return whole if whole is not None and -(2 ** (bits - 1)) <= whole < 2 ** (bits - 1) else None


@given(
    st.lists(records, max_size=12), st.sampled_from(["string", "bool", "float64", "int8", "int64"])
)
def test_columns_have_what_their_type_can_hold(values: list[bytes | None], kind: str) -> None:
    stats = ReadStats()
    with tempfile.TemporaryDirectory() as folder:
        log = log_of(folder, values)
        table = log.read_range(T, T + 99, fields=dict.fromkeys(NAMES, kind), stats=stats).read_all()
    assert table.schema.names == ["partition", "offset", "timestamp", *NAMES]
    for name in NAMES:
        assert table.schema.field(name).type == TYPES[kind]
        given_values = [field_of(value, name) for value in values]
        right = [read_as(value, kind) for value in given_values]
        for got, should, value in zip(table[name].to_pylist(), right, given_values, strict=True):
            if kind == "string" and isinstance(value, (list, dict)):
                assert parsed(f'{{"x":{got}}}'.encode()) == {"x": value}
            else:
                assert got == should, value
        broken = [value is not None and parsed(value) is None for value in values]
        lost = sum(
            bad or (value is not None and each is None)
            for bad, value, each in zip(broken, given_values, right, strict=True)
        )
        assert stats.misfits[name] == lost


def test_what_does_not_fit_is_an_error_if_that_is_asked_for(tmp_path: Path) -> None:
    log = log_of(str(tmp_path), [b'{"n": 1}', b'{"n": "x"}', b"broken"])
    read = log.read_range(T, T + 9, fields=Fields({"n": "int32"}, strict=True))
    with pytest.raises(UsageError, match=r"'n' of partition 0, offset 1 .*int32"):
        read.read_all()
    times = log.read_range(T, T + 9, columns=["value"], fields={"n": "timestamp"}).read_all()
    assert times.schema.names == ["value", "n"]
    assert times.schema.field("n").type == pa.timestamp("ms", "UTC")


def test_wrong_fields_are_named(tmp_path: Path) -> None:
    log = log_of(str(tmp_path), [b"{}"])
    for fields, words in (
        ({"n": "decimal"}, "field 'n' has the unknown type 'decimal'. Use string, json"),
        ("n", "fields must be a list of names"),
        ({}, "fields is empty"),
        ({"offset": "int32"}, "'offset' would be both a field and a column"),
    ):
        with pytest.raises(UsageError, match=words):
            log.read_range(T, T + 9, fields=fields)
    for where, words in (
        ({"n": {}}, "compared with {}"), ({"n": []}, "no value"), ({"n": math.nan}, "nan"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=words):
            log.find(where=where)
    with pytest.raises(UsageError, match="a key, keys, where or headers"):
        log.find()
    with pytest.raises(UsageError, match="header 'h' is compared with 1"):
        log.find(headers={"h": 1})


def test_keys_headers_and_fields_go_together(tmp_path: Path) -> None:
    maker, headers = (
        LakeMaker(tmp_path, partitions=2),
        [(("h", b"x"), ("h", None)), (), (("g", b"x"),)],
    )
    events = [
        Event(T + n, b"k%d" % (n % 2), b'{"n": %d}' % (n % 5), headers[n % 3]) for n in range(60)
    ]
    maker.run({0: events[:30], 1: events[30:]})
    log = seglake.open(str(tmp_path)).topic("events")

    def found(**how: Any) -> list[int]:
        rows = log.find(columns=["timestamp"], **how).read_all()["timestamp"].cast(pa.int64())
        return [*(rows.to_numpy() - T).tolist()]

    assert found(headers={"h": "x"}) == [n for n in range(60) if n % 3 == 0]
    assert found(headers={"h": None}) == found(headers={"h": b"x"})
    assert found(headers={"h": ["x", "y"]}, where={"n": 3}) == [3, 18, 33, 48]
    assert found(where={"n": "3"}, start=T + 10, end=T + 40) == [
        n for n in range(10, 40) if n % 5 == 3
    ]
    assert "n = 3" in str(log.plan_find(where={"n": 3}))
    rows = log.find(where={"n": 4}, fields={"n": "int8"}, columns=["key"]).read_all()
    assert set(rows["n"].to_pylist()) == {4}
    assert len(rows) == 12


@pytest.mark.parametrize(
    ("time", "kind"),
    [
        ("2026-01-01T00:00:00Z", "timestamp"),
        ("2026-01-01 00:00:00+0100", "timestamp"),
        ("2026-01-01T00:00:00", "string"),
        ("2026-01-01", "string"),
    ],
)
def test_times_that_name_no_zone_are_called_texts(tmp_path: Path, time: str, kind: str) -> None:
    """Nobody said that they are UTC."""
    log = log_of(str(tmp_path), [json.dumps({"t": time}).encode()])
    assert log.fields().types == {"t": kind}


def test_the_types_of_a_sample_are_taken_beside_the_columns_of_the_log(tmp_path: Path) -> None:
    """Of which a field may have the name: the list has it, and its type would be refused."""
    log = log_of(str(tmp_path), [b'{"timestamp": "2026-01-01T00:00:00Z", "offset": 7, "n": 1}'])
    found = log.fields()
    assert {each.name for each in found.fields} == {"timestamp", "offset", "n"}
    assert found.types == {"n": "int64"}
    assert log.read_range(T, T + 9, fields=found.types).read_all()["n"].to_pylist() == [1]


def test_the_fields_of_a_sample(tmp_path: Path) -> None:
    values: list[bytes | None] = [
        b'{"n": 1, "t": "2026-01-01T00:00:00Z", "u": {"a": 1, "b": [1]}, "m": "x", "z": null}',
        b'{"n": null, "t": "2026-01-01T01:00:00.5+01:00", "u": {"a": 1.5}, "m": 2, "ok": true}',
        b"broken", None,
    ]  # fmt: skip
    log = log_of(str(tmp_path), values)
    found = log.fields()
    assert (found.sampled, found.objects) == (4, 2)
    assert found.types == {
        "n": "int64", "t": "timestamp", "u.a": "float64", "u.b": "json", "m": "string",
        "z": "string", "ok": "bool",
    }  # fmt: skip
    assert {each.name: each.records for each in found.fields}["ok"] == 1
    stats = ReadStats()
    log.read_range(T, T + 9, fields=found.types, stats=stats).read_all()
    assert stats.misfits == dict.fromkeys(found.types, 1)  # the broken one
    assert "Fields in 2 values of 4 records" in str(found)
    assert log.fields(sample=1).sampled == 1
    assert listed([b'{"a":"\\ud800"}'], "").types == {"a": "string"}


def test_misfits_that_nobody_counts_are_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = log_of(str(tmp_path), [b'{"n":1}', b'{"n":"x"}', b"{}", b"broken"])
    with caplog.at_level("WARNING"):
        log.dataset(fields={"n": "int8"}).to_table()
        log.read_range(T, T + 9, fields=["n"]).read_all()
        log.read_range(T, T + 9, fields={"n": "int8"}, stats=ReadStats()).read_all()
    assert [record.getMessage() for record in caplog.records] == [
        "field 'n' is not of type int8 in 2 records, so it is null there",
        "field 'n' is not of type string in 1 record, so it is null there",
    ]


@given(st.lists(objects.map(str.encode), max_size=6))
@example([b'{"a":1e400,"b":1%s}' % (400 * b"0"), b'{"a":{"b":1},"b":2}'])
def test_a_field_holds_what_the_sample_has(values: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log, stats = log_of(folder, [*values, b"{}"]), ReadStats()
        types = log.fields().types
        if types:
            log.read_range(T, T + 99, columns=[], fields=types, stats=stats).read_all()
    assert not +stats.misfits
