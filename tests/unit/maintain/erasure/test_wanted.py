"""Rejected rows are chosen by the keys that stand in them, however the row spells them."""

import base64
import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglake.errors import UsageError
from seglake.maintain.erasure.criteria import ErasureCriteria, parse_keys
from tests.makers.strategies import examples

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8)
WORDS = st.text("ab1_", min_size=1, max_size=3)

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
    st.lists(TEXTS, min_size=1, max_size=4),
    st.sampled_from([as_csv, as_json, as_utf8_json, as_escaped_json]),
    st.data(),
)
@examples(150)
def test_a_row_with_a_field_that_is_a_key__goes(
    fields: list[str], write: Callable[[list[str]], bytes], data: st.DataObject
) -> None:
    key = data.draw(st.sampled_from(fields))
    assert goes(ErasureCriteria.from_keys([key, "another"]), write(fields)) == [True]


@given(st.lists(WORDS, max_size=6), st.lists(WORDS, min_size=1, max_size=3))
@examples(100)
def test_a_row_without_the_word__stays(words: list[str], keys: list[str]) -> None:
    for separator in (" ", '":"', "\n", "é"):
        row = separator.join(words).encode()
        assert goes(ErasureCriteria.from_keys(keys), row) == [not set(words).isdisjoint(keys)]


@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=3), st.lists(TEXTS, max_size=4))
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
