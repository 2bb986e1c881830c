"""Text in other encodings: the same records as of the UTF-8 file, however it is cut."""

import codecs
import importlib
import json
from encodings.aliases import aliases
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from seglake.config import Input
from seglake.engine import LocalEngine
from seglake.errors import InputError
from seglake.format.records import Spans
from seglake.write.driver.redrive import redrive
from seglake.write.driver.run import DeclaredRun, ingest_files
from seglake.write.input.encodings import Utf8Stream, encode_rows, is_single_byte
from tests.makers.files import pipeline, read_bytes
from tests.makers.strategies import examples

SEVERAL = ("latin-1", "cp1252", "utf-16", "utf-16-be", "utf-32", "shift_jis", "gb18030", "cp037",
           "iso2022_jp", "koi8-r", "utf-7", "big5")  # fmt: skip
PATTERN = r"(?P<k>[^;]*);(?P<v>.*)"


def encodings_of_python() -> list[str]:
    """Every encoding of text that a pipeline may name."""
    found = set[str]()
    for name in {*aliases.values(), "utf-8"}:
        try:
            found.add(Input(paths=("a",), format="text", encoding=name).encoding)
        except ValidationError:
            continue
    return sorted(found)


EVERY = encodings_of_python()


def can_be(letter: str, encoding: str) -> bool:
    """Whether a letter comes back from an encoding, and is no line end to any format."""
    try:
        return letter.encode(encoding).decode(encoding) == letter
    except UnicodeError:
        return False


def letters(encoding: str) -> st.SearchStrategy[str]:
    """Letters that an encoding has."""
    some = "abz09 .:-äßéœ€Ж日本語한中文😀ÿ\t"
    return st.sampled_from([letter for letter in some if can_be(letter, encoding)])


@st.composite
def texts(draw: st.DrawFn) -> tuple[str, str]:
    """An encoding, and lines of text that it has."""
    encoding = draw(st.sampled_from([*SEVERAL, draw(st.sampled_from(EVERY))]))
    field = st.text(letters(encoding), max_size=8)
    lines = draw(st.lists(st.tuples(field, field).map(";".join), max_size=12))
    end = draw(st.sampled_from(["\n", "\r\n"]))
    return encoding, end.join(lines) + draw(st.sampled_from(["", end]))


def read(data: bytes, form: str, encoding: str, split_bytes: int, chunk_bytes: int) -> Any:
    settings: dict[str, Any] = {"encoding": encoding, "compression": "none"}
    tables: dict[str, Any] = {"task": {"split_bytes": split_bytes, "chunk_bytes": chunk_bytes}}
    if form == "csv":
        settings |= {"delimiter": ";", "multiline": False}
        tables["key"] = {"fields": ["k"]}
    elif form == "events":
        form, starts = "text", {"multiline_start_pattern": "[a-zä]", "multiline_max_bytes": 60}
        settings |= starts
    elif form == "text":
        settings |= {"pattern": PATTERN}
        tables["key"] = {"fields": ["k"]}
        tables["value"] = {"from": "field", "field": "v"}
    found = read_bytes(data, form, input=settings, **tables)
    return found.rows, found.rejects


@given(texts(), st.sampled_from(["csv", "text", "jsonl", "events"]), st.integers(1, 120),
       st.integers(200, 400))  # fmt: skip
@examples(200)
def test_the_records_are_those_of_the_utf_8_file(
    made: tuple[str, str], form: str, split_bytes: int, chunk_bytes: int
) -> None:
    encoding, text = made
    if form == "csv":
        text = "k;v\n" + text.replace('"', "")
    elif form == "jsonl":
        rows = [json.dumps({"v": line}, ensure_ascii=False) for line in text.splitlines()]
        text = "\n".join(rows)
    expected = read(text.encode(), form, "utf-8", split_bytes, chunk_bytes)
    assert read(text.encode(encoding), form, encoding, split_bytes, chunk_bytes) == expected


@given(st.lists(st.sampled_from([b"\n", b";", b"ab", b"\xe4", b"\x81", b"\x8d;"])).map(b"".join),
       st.sampled_from(["csv", "text", "events"]), st.integers(1, 40))  # fmt: skip
def test_rows_that_are_not_in_the_encoding_wherever_it_is_cut(
    data: bytes, form: str, split_bytes: int
) -> None:
    data = b"k;v\n" + data
    whole = read(data, form, "cp1252", 2**20, 400)
    assert read(data, form, "cp1252", split_bytes, 400) == whole
    _, rejects = whole
    lines = data.split(b"\n")
    for line, reason, raw in rejects:
        if form != "events" and reason.startswith("not in encoding"):
            assert raw == lines[line]


@given(st.text(), st.sampled_from(["utf-16", "utf-16-le", "utf-32", "utf-8", "utf-7"]),
       st.integers(1, 9), st.integers(1, 5))  # fmt: skip
def test_a_stream_in_pieces(text: str, encoding: str, piece: int, room: int) -> None:
    try:
        data = text.encode(encoding)
    except UnicodeEncodeError:
        return
    pieces = [data[at : at + piece] for at in range(0, len(data), piece)]

    class Pieces:
        def readinto(self, target: memoryview, /) -> int:
            part = pieces.pop(0) if pieces else b""
            target[: len(part)] = part
            return len(part)

    stream, out = Utf8Stream(Pieces(), encoding, ""), bytearray()
    block = memoryview(bytearray(room))
    while size := stream.readinto(block):
        out += block[:size]
    assert out.decode() == text


def test_which_encodings_can_be_cut() -> None:
    """Those that Python decodes by a table of 256 letters."""
    assert len(EVERY) >= 80
    for encoding in EVERY:
        module = importlib.import_module(f"encodings.{encoding.replace('-', '_')}")
        table = hasattr(module, "decoding_table") or encoding in {"ascii", "iso8859-1"}
        assert is_single_byte(encoding) == table, encoding


@given(st.lists(st.binary(max_size=12), max_size=6), st.sampled_from(EVERY))
@examples(300)
def test_bytes_of_a_row_come_back(rows: list[bytes], encoding: str) -> None:
    """As they were in encodings of single bytes; else as bytes that mean the same."""

    def utf8(row: bytes) -> bytes:
        data = [row]

        class One:
            def readinto(self, target: memoryview, /) -> int:
                part = data.pop() if data else b""
                target[: len(part)] = part
                return len(part)

        stream, block = Utf8Stream(One(), encoding, ""), memoryview(bytearray(200))
        return bytes(block[: stream.readinto(block)])

    marks = {"utf-16": codecs.BOM_UTF16_LE, "utf-32": codecs.BOM_UTF32_LE}
    read_in = [utf8(marks.get(encoding, b"") + row) for row in rows]
    back = encode_rows(Spans.from_list(list(read_in)), encoding).tolist()
    if is_single_byte(encoding):
        again = [utf8(row or b"") for row in back]
        assert again == read_in
    assert len(back) == len(rows)


def test_a_row_that_is_cut_loses_the_cut_letter() -> None:
    rows = [b"a\xc3", b"\xe6\x97", b"\xf0\x9f\x98", "ä".encode(), "日".encode(), b"", None]
    assert encode_rows(Spans.from_list(rows), "utf-16").tolist() == [
        b"a\0", b"", b"", b"\xe4\0", b"\xe5\x65", b"", b"",
    ]  # fmt: skip


UNREADABLE = {"cp1252": b"x;\x81\x8d", "ascii": "x;é".encode(), "shift_jis": b"x;\x83",
              "utf-16-le": b"x\0;\0\0\xd8"}  # fmt: skip


@pytest.mark.parametrize("encoding", UNREADABLE)
@pytest.mark.parametrize("form", ["csv", "text"])
def test_what_is_not_in_the_encoding_is_a_reject_with_its_bytes(form: str, encoding: str) -> None:
    end, bad = "\n".encode(encoding), UNREADABLE[encoding]
    data = b"".join(line + end for line in ("k;v".encode(encoding), "a;b".encode(encoding), bad))
    rows, rejects = read(data, form, encoding, 2**20, 400)
    assert [row.key for row in rows][-1] == b"a"
    assert [reject[1:] for reject in rejects] == [("not in encoding: see input.encoding", bad)]


def test_utf_16_without_a_mark_is_refused() -> None:
    for encoding in ("utf-16", "utf-32"):
        with pytest.raises(InputError, match=f"file cannot .* {encoding}-le or {encoding}-be"):
            read_bytes("ab".encode(f"{encoding}-be"), "text", input={"encoding": encoding})
        assert read_bytes(b"", "text", input={"encoding": encoding}).rows == []


def settings(folder: Path, form: str, **tables: Any) -> Any:
    return pipeline(
        folder / "in", form,
        root=str(folder / "lake"), max_quarantine_ratio=0.9,
        timestamp={"field": "t", "format": "epoch_ms"}, **tables,
    )  # fmt: skip


JSON_ROWS = [{"t" if n % 3 else "when": 1_700_000_000_000 + n, "v": "Käse" * n} for n in range(9)]


@pytest.mark.parametrize("gone", [False, True])
@pytest.mark.parametrize(("first", "second"), [
    ("cp1252", "cp1252"), ("utf-8", "latin-1"), ("ascii", "cp1252"), ("utf-16", "utf-16"),
    ("shift_jis", "shift_jis"),
])  # fmt: skip
def test_rejects_are_redriven(tmp_path: Path, first: str, second: str, gone: bool) -> None:
    """By another time field, or in another encoding, from the file or from the quarantine."""
    (tmp_path / "in").mkdir()
    file, word = tmp_path / "in" / "a.jsonl", "ケ" if first == "shift_jis" else "Käse"
    lines = [json.dumps(row, ensure_ascii=False).replace("Käse", word) for row in JSON_ROWS]
    lines.append('{"t": 1700000000000, "v": "plain"}')
    file.write_bytes("\n".join(lines).encode(second))

    def make(encoding: str) -> Any:
        return settings(tmp_path, "jsonl", input={"encoding": encoding})

    done = ingest_files(LocalEngine(), make(first), DeclaredRun("one"))
    assert 0 < done.quarantined < 10
    if gone:
        file.unlink()
    changed = make(second)
    if first == second:
        times = changed.timestamp.model_copy(update={"field": "when"})
        changed = changed.model_copy(update={"timestamp": times})
    report = redrive(LocalEngine(), changed, "one")
    expected = 3 if first == second else done.quarantined - 3
    assert (report.records, report.refused) == (expected, {})


def test_an_encoding_with_another_name() -> None:
    def make(**keys: Any) -> Input:
        return Input(paths=("a",), **{"format": "text", **keys})

    assert make(encoding="UTF8").encoding == make(encoding="utf-8-sig").encoding == "utf-8"
    assert make(encoding="Latin-1").encoding == "iso8859-1"
    for name in ("latn-1", "", "rot13", "base64", "idna", "a\0b"):
        with pytest.raises(ValidationError, match="is not an encoding"):
            make(encoding=name)
    with pytest.raises(ValidationError, match=r"input\.encoding contradicts"):
        make(format="parquet", encoding="latin-1")
    assert (
        "encoding"
        not in pipeline("a", input={"encoding": "utf8"}).model_dump(exclude_defaults=True)["input"]
    )
