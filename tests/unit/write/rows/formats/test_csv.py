"""The CSV scanner against Python's csv module."""

import csv
import io
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from seglake.errors import InputError
from seglake.format.records import Spans
from seglake.format.value_format import value_format_of
from seglake.text.value_fields import field_finder
from tests.makers.files import pipeline, read, read_bytes
from tests.makers.inputs import splits_of
from tests.makers.strategies import examples

fields = st.text(st.sampled_from(list("ab,;\"\n\r'é \\")), max_size=8)
tables = st.lists(st.lists(fields, min_size=3, max_size=3), max_size=12)
KEYS = {"fields": ["y"]}


def written(
    rows: list[list[str]], delimiter: str, every: bool, escape: str | None = None
) -> list[bytes]:
    """Each record without its end; fields in quotes where RFC 4180 demands it, or everywhere.

    With an escape as Spark writes it, see tests/spark.
    """

    def cell(text: str) -> str:
        plain = not every and not any(mark in text for mark in (delimiter, '"', "\r", "\n"))
        text = text.replace(escape, escape * 2) if escape and not plain else text
        return text if plain else '"' + text.replace('"', (escape or '"') + '"') + '"'

    return [delimiter.join(map(cell, row)).encode() for row in rows]


@given(
    tables,
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from(",;"),
    st.booleans(),
    st.booleans(),
    st.sampled_from([None, "\\"]),
)
@example([["", "", ""]], "\n", ",", False, False, None)
@example([["a", "b", "c"], ["x", "y", '"']], "\r\n", ",", False, True, None)
@example([["\\", "b\\", '\\"'], ["x\\\\", "\\y", '"\\"']], "\n", ",", False, True, "\\")
def test_records_and_fields(
    rows: list[list[str]], ending: str, delimiter: str, every: bool, ended: bool, escape: str | None
) -> None:
    records = written([["x", "y", "z"], *rows], delimiter, every, escape)
    data = ending.encode().join(records) + (ending.encode() if ended else b"")
    if every or escape is None:  # outside of quotes, Python reads escapes that nobody writes
        text = io.StringIO(data.decode(), newline="")
        parsed = list(csv.reader(text, delimiter=delimiter, escapechar=escape))
        assert parsed[1:] == rows  # Python reads what was written
    headers = {"fields": ["x", "z"]}
    settings: dict[str, Any] = {
        "input": {"delimiter": delimiter, "escape": escape}, "headers": headers, "key": KEYS,
    }  # fmt: skip
    for chunk_bytes in (64, 200, 100_000):
        found = read_bytes(data, "csv", task={"chunk_bytes": chunk_bytes}, **settings)
        if any(reject.reason == "record too large" for reject in found.rejects):
            continue
        assert found.rejects == []
        assert [row.value for row in found.rows] == records[1:]
        cells = [(h[0][1], row.key, h[1][1]) for row in found.rows for h in [row.headers]]
        assert cells == [tuple(cell.encode() or None for cell in row) for row in rows]
        columns = {"value.columns": ["x", "y", "z"], "value.delimiter": delimiter,
                   "value.escape": escape}  # fmt: skip
        find = field_finder(value_format_of({"value.format": "csv", **columns}), ["y"])
        fields = find(Spans.from_list([row.value for row in found.rows]))  # as an ingest finds them
        assert fields.text("y").tolist() == [row.key for row in found.rows]


@examples(40)
@given(
    st.lists(st.lists(fields.map(lambda f: f.replace("\n", "")), min_size=3, max_size=3)),
    st.sampled_from([None, "\\"]),
    st.sets(st.integers(0, 5)),
    st.integers(0, 2),
)
def test_cut_files_give_the_same_records(
    rows: list[list[str]], escape: str | None, marked: set[int], skipped: int
) -> None:
    lines = [*[b'n,ot"e'] * skipped, *written([["x", "y", "z"], *rows], ",", False, escape)]
    marks = [b"\xef\xbb\xbf" * (number in marked) for number in range(len(lines))]
    data = b"\n".join(mark + line for mark, line in zip(marks, lines, strict=True))
    text = {"escape": escape, "skip_lines": skipped}
    whole = read_bytes(data, "csv", key=KEYS, input=text, headers={"fields": ["x"]})
    assert [row.key for row in whole.rows] == [cells[1].encode() or None for cells in rows]
    for split_bytes in (1, 7, 20):
        cut = read_bytes(
            data, "csv", key=KEYS, input={"multiline": False, **text}, headers={"fields": ["x"]},
            task={"split_bytes": split_bytes, "chunk_bytes": 200},
        )  # fmt: skip
        assert cut.rows == whole.rows


@given(st.text(st.sampled_from(list('ab,"\n\r')), max_size=40), st.integers(64, 90))
def test_any_text_comes_out_once(text: str, chunk_bytes: int) -> None:
    """Records and rejects together are the text, but for line ends and empty lines."""
    data = text.encode()
    found = read_bytes(b"x,y\n" + data, "csv", task={"chunk_bytes": chunk_bytes})
    numbered = read_bytes(b"x,y\n" + data, "csv", headers={"source": True})
    lines = [int(row.headers[1][1] or b"0") - 1 for row in numbered.rows]
    parts = [*zip(lines, [row.value or b"" for row in found.rows], strict=True)]
    parts += [(reject.line, reject.raw) for reject in found.rejects]
    joined = b"".join(part for _, part in sorted(parts))
    drop = bytes.maketrans(b"", b"")
    assert joined.translate(drop, b"\r\n") == data.translate(drop, b"\r\n")


class Section(NamedTuple):
    """The columns that a comment names, and the lines below it: cells, comments or blank lines."""

    columns: list[str]
    lines: list[list[str] | str]


cells = st.lists(st.sampled_from(["a", "-", "NULL", "\xe9"]), min_size=1, max_size=3)
others = st.sampled_from(["", "#", "#x: y", "#fields of gold", "#Field: a", "# Fields: a"])
sections = st.lists(
    st.builds(
        Section,
        st.permutations(["x", "y", "z"]).flatmap(lambda p: st.sampled_from([p, p[:2], ["x", "y"]])),
        st.lists(cells | others, max_size=6),
    ),
    min_size=1,
    max_size=4,
)


@given(
    sections, st.sampled_from([" ", "\t", ","]), st.integers(64, 300), st.sampled_from([1, 9, 100])
)
def test_comments_name_columns_wherever_the_file_is_cut(
    parts: list[Section], delimiter: str, chunk_bytes: int, split_bytes: int
) -> None:
    parts[0].columns[:] = sorted({*parts[0].columns, "x", "y"})  # the settings use these
    lines, good, bad, comments = ["#Software: s"], [], [], len(parts) + 1
    for part in parts:
        blanks = " " if delimiter == "\t" else delimiter  # as CloudFront
        lines.append(f"#Fields: {blanks.join(part.columns)}")
        for line in part.lines:
            raw = line if isinstance(line, str) else delimiter.join(line)
            comments += raw.startswith("#")
            lines.append(raw)
            if not isinstance(line, str) and len(line) == len(part.columns):
                row = {n: c for n, c in zip(part.columns, line, strict=True) if c != "-"}
                fields = [row.get(name, "").encode() or None for name in "xy"]
                good.append((raw.encode(), *fields, b"%d" % len(lines)))
            elif not isinstance(line, str):
                bad.append((len(lines) - 1, raw.encode()))
    found = read_bytes(
        "\r\n".join([*lines, ""]).encode(), "csv",
        input={"comment": "#", "delimiter": delimiter, "null_values": ["-", "\\N"]},
        key={"fields": ["x"]}, headers={"fields": ["y"], "source": True},
        task={"chunk_bytes": chunk_bytes, "split_bytes": split_bytes},
    )  # fmt: skip
    rows = [(row.value, row.key, row.headers[0][1], row.headers[2][1]) for row in found.rows]
    assert (rows, [(each.line, each.raw) for each in found.rejects]) == (good, bad)
    assert found.comments == comments


def test_columns_that_a_later_comment_does_not_name_are_null() -> None:
    data = b"#fields\tx\ty\n1\t2\n#fields\tz\n3\n#fields\ty\tx\n4\t5\n"
    tables: dict[str, Any] = {
        "input": {"comment": "#", "delimiter": "\t"},
        "value": {"from": "columns"},
    }
    found = read_bytes(data, "csv", key={"fields": ["x"]}, **tables)
    assert [row.key for row in found.rows] == [b"1", None, b"5"]
    values = [b'{"x":"1","y":"2"}', b'{"z":"3"}', b'{"y":"4","x":"5"}']
    assert [row.value for row in found.rows] == values
    with pytest.raises(InputError, match="file has no column 'nope' in its header"):
        read_bytes(data, "csv", key={"fields": ["nope"]}, **tables)


def test_files_of_comments_may_differ_but_need_the_columns_of_the_settings(tmp_path: Path) -> None:
    for name, columns in (("a", "x y"), ("b", "z x"), ("c", "")):
        (tmp_path / name).write_text(f"#Fields: {columns}\n1 2\n" if columns else "# empty\n")
    text = {"comment": "#", "delimiter": " "}
    found = read(pipeline(tmp_path, "csv", input=text, key={"fields": ["x"]}))
    assert ([row.key for row in found.rows], found.comments) == ([b"1", b"2"], 3)
    settings = pipeline(tmp_path, "csv", input=text, key={"fields": ["y"]})
    with pytest.raises(InputError, match=r"b has no column 'y' in its header"):
        splits_of(settings)


def test_a_header_after_comments_and_skipped_lines() -> None:
    data = b'exported by\n"x\n#\n# y\nx,"y\nz",w\n1,2,\\N\n#3,4,5\n\xef\xbb\xbf5,NULL,"\\N"\n'
    nulls = {"null_values": ["\\N", "NULL"]}
    tables: dict[str, Any] = {
        "input": {"skip_lines": 2, "comment": "#", **nulls},
        "value": {"from": "columns"},
    }
    found = read_bytes(data, "csv", headers={"source": True}, **tables)
    assert [row.value for row in found.rows] == [
        b'{"x":"1","y\\nz":"2","w":null}', b'{"x":"5","y\\nz":null,"w":null}'
    ]  # fmt: skip
    assert ([row.headers[1][1] for row in found.rows], found.comments) == ([b"7", b"9"], 3)


@pytest.mark.parametrize("header", [b'"x",y"', b'"x","y', b'"x"z,y'])
def test_header_with_wrong_quotes_is_one_line(header: bytes) -> None:
    for rows in (b"1,2\n3,4", b'1,2\n3,"4"', b"1,2\n" * 9):
        found = read_bytes(header + b"\n" + rows, "csv")
        assert [row.value for row in found.rows] == rows.split()


@pytest.mark.parametrize("data", [b"x,y\n1,2\n3,4\n", b"x,y\n#\n#\n3,4"])
def test_file_with_fewer_lines_than_are_skipped_is_an_error(data: bytes) -> None:
    text = {"skip_lines": 4, "comment": "#"}
    with pytest.raises(InputError, match=r"file has no header after input\.skip_lines = 4"):
        read_bytes(data, "csv", input=text)
    assert read_bytes(b"", "csv", input=text).rows == []


def test_header_over_lines_needs_multiline() -> None:
    with pytest.raises(InputError, match=r"file has a quote .* that is not closed .*multiline"):
        read_bytes(b'x,"y\nz"\n1,2\n', "csv", input={"multiline": False})


def test_comments_without_the_setting_are_an_error_that_names_it() -> None:
    with pytest.raises(InputError, match=r"file begins with '#'. Set input.comment = '#'"):
        read_bytes(b"#Fields: x y\n1 2\n", "csv", key={"fields": ["x"]})


def test_wrong_quotes_cost_one_line() -> None:
    lines = [b"x,y", b'1,"a"b', b"2,c", b'3,"open', b"4,d", b"5,e,f", b"6", b'7,g"h', b'8,""']
    found = read_bytes(b"\n".join(lines), "csv", key=KEYS)
    assert [row.key for row in found.rows] == [b"c", b"d", b'g"h', None]
    assert [(r.line, r.raw, r.reason) for r in found.rejects] == [
        (number, lines[number], "not parseable") for number in (1, 3, 5, 6)
    ]


def test_a_quote_that_never_closes_costs_one_line_in_a_large_file() -> None:
    lines = [b"x,y", b'1,"open', *(b"%d,a" % k for k in range(2, 5_000))]
    found = read_bytes(b"\n".join(lines), "csv", task={"chunk_bytes": 1_000})
    assert [row.value for row in found.rows] == lines[2:]
    assert [(r.line, r.raw) for r in found.rejects] == [(1, lines[1])]


def test_a_chunk_of_very_many_short_records() -> None:
    data = b"x,y\n" + b"\n" * 100_000 + b"".join(b"%d,\n" % k for k in range(150_000))
    found = read_bytes(data, "csv", key=KEYS, value={"from": "field", "field": "x"})
    assert [row.value for row in found.rows] == [b"%d" % k for k in range(150_000)]


def test_values_from_columns() -> None:
    data = 'x,y\n1,"a ""b"""\n,é\n'.encode() + b"2,\xff\n"
    found = read_bytes(data, "csv", value={"from": "columns"})
    assert [row.value for row in found.rows] == [
        b'{"x":"1","y":"a \\"b\\""}',
        '{"x":null,"y":"é"}'.encode(),
    ]
    assert [(r.reason, r.raw) for r in found.rejects] == [("invalid UTF-8", b"2,\xff")]
    chosen = read_bytes(data, "csv", value={"from": "columns", "columns": ["y"]})
    assert chosen.rows[0].value == b'{"y":"a \\"b\\""}'


def test_the_header_may_begin_with_a_byte_order_mark() -> None:
    found = read_bytes(b'\xef\xbb\xbf"x",y\r\n1,2\r\n', "csv", key={"fields": ["x"]})
    assert [(row.key, row.value) for row in found.rows] == [(b"1", b"1,2")]


def test_a_wanted_column_must_be_there() -> None:
    told = r"file has no column 'nope' in its header. Correct .* The header has 'x', 'y'"
    with pytest.raises(InputError, match=told):
        read_bytes(b"x,y\n1,2", "csv", key={"fields": ["nope"]})


@pytest.mark.parametrize("count", [1, 3])
def test_json_lines_are_named(count: int, tmp_path: Path) -> None:
    for number in range(count):
        (tmp_path / f"{number}.csv").write_text(f'{{"ts": {number}, "user": "a"}}\n')
    with pytest.raises(InputError, match=r"0\.csv: the file has JSON lines. Set input.format"):
        splits_of(pipeline(tmp_path, "csv", key={"fields": ["user"]}))


@pytest.mark.parametrize(("delimiter", "shown"), [(";", '";"'), ("\t", r'"\\t"'), ("|", r'"\|"')])
def test_a_wrong_delimiter_is_met_with_the_right_one(delimiter: str, shown: str) -> None:
    told = f"which is one column, .*. With input.delimiter = {shown}, it has 2"
    with pytest.raises(InputError, match=told):
        read_bytes(delimiter.join("xy").encode() + b"\n1,2", "csv", key={"fields": ["x"]})


def test_a_wanted_column_must_be_there_once() -> None:
    data = b"x,y,x\n1,2,3"
    assert [row.key for row in read_bytes(data, "csv", key={"fields": ["y"]}).rows] == [b"2"]
    for tables in ({"key": {"fields": ["x"]}}, {"value": {"from": "columns"}}):
        with pytest.raises(InputError, match="file has x more than once in its header"):
            read_bytes(data, "csv", **tables)


@pytest.mark.parametrize("wrong", ["1", "3"])
@pytest.mark.parametrize(
    ("header", "told"),
    [
        ("tss,x", "has no column 'ts' in its header. Correct the settings or the file, or "),
        ("ts;x", "has no column 'ts' in its header, which is one column, 'ts;x'. "),
    ],
)
def test_the_one_file_that_is_wrong_is_named(
    header: str, told: str, wrong: str, tmp_path: Path
) -> None:
    for name in "123":
        (tmp_path / f"{name}.csv").write_text((header if name == wrong else "ts,x") + "\n1,2\n")
    timed = {"field": "ts", "format": "epoch_ms"}
    with pytest.raises(InputError) as error:
        splits_of(pipeline(tmp_path, "csv", timestamp=timed))
    assert f"/{wrong}.csv {told}" in str(error.value)


def test_files_must_have_the_same_header(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_bytes(b"x,y\n1,2\n")
    (tmp_path / "2.csv").write_bytes(b"")
    (tmp_path / "3.csv").write_bytes(b"x,z\n1,2\n")
    settings = pipeline(tmp_path, "csv")
    with pytest.raises(InputError, match=r"schema changed: .*3\.csv and .*1\.csv differ \(y, z\)"):
        splits_of(settings)
    (tmp_path / "3.csv").write_bytes(b"y,x\n1,2\n")
    with pytest.raises(InputError, match="order of columns"):
        splits_of(settings)
    (tmp_path / "3.csv").write_bytes(b"x,y\n3,4\n")
    assert [row.value for row in read(settings).rows] == [b"1,2", b"3,4"]


def test_lines_that_end_with_cr_alone_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"ts,user\r1,a\r2,b\r\n3,c\n")
    with pytest.raises(InputError, match=r"the header of .*a.csv cannot be read"):
        read(pipeline(tmp_path / "a.csv", "csv"))
