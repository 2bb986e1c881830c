"""Events in arrays of JSON documents, against Python's json."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

import seglake
from seglake.config import Pipeline, load
from seglake.engine import LocalEngine
from seglake.errors import InputError
from seglake.infer.pipeline import infer_pipeline
from seglake.write.check import check
from seglake.write.driver.redrive import redrive
from seglake.write.driver.run import DeclaredRun, ingest_files
from tests.makers.files import Result, pipeline, read_bytes

PATHS = [".", "[]", "r[]", "a.b[]", "r[].s[].t[]", "[].r[]", "r[][]"]
NAMES = ["r", "s", "t", "a", "b", "x", "y", "é", 'q"\\']
NOWHERE = "no array of events: see input.records"
Pairs = list[tuple[str, Any]]

texts = st.text(st.characters(codec="utf-8"), max_size=40) | st.sampled_from(
    ["]}", '"', "\\", "{["]
)
scalars = st.none() | st.booleans() | st.integers() | texts
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3)
    ),
    max_leaves=8,
)
events = st.dictionaries(st.sampled_from(["x", "y", "e", "é"]), values, max_size=3)


def steps_of(path: str) -> list[str]:
    """The path with [] as a step for itself."""
    return [step for step in path.replace("[]", ".[]").split(".") if step]


@st.composite
def documents(draw: st.DrawFn, steps: list[str]) -> Any:
    """A document with events at the end of the steps, between other members."""
    if not steps:
        return draw(events)
    step, *rest = steps
    if step == "[]":
        return [draw(documents(rest)) for _ in range(draw(st.integers(0, 3)))]
    others = draw(st.dictionaries(st.sampled_from(["i", "j", "z"]), values, max_size=2))
    members = [*others.items(), (step, draw(documents(rest)))]
    return dict(draw(st.permutations(members)))


def written(draw: Any, value: Any) -> bytes:
    indent = draw(st.sampled_from([None, None, 1, "\t"]))
    text = json.dumps(value, ensure_ascii=draw(st.booleans()), indent=indent)
    blank: str = draw(st.sampled_from(["", " ", "\n", "\r\n"]))
    return (blank + text).encode()


def walk(value: Any, steps: list[str], inherited: dict[str, Any], names: list[str]) -> list[Pairs]:
    """The members of each event, the inherited ones first."""
    if not steps:
        outer = [(name, inherited[name]) for name in names if name in inherited]
        return [[*outer, *value.items()]]
    step, *rest = steps
    if step == "[]":
        return [event for each in value for event in walk(each, rest, inherited, names)]
    inner = inherited | {name: value[name] for name in names if name in value}
    return walk(value[step], rest, inner, names)


def outcome(data: bytes, path: str, names: list[str], chunk_bytes: int) -> Result | str:
    """The rows of a file, or the end of the error."""
    try:
        return read_bytes(
            data, input={"records": path, "inherit": names}, task={"chunk_bytes": chunk_bytes}
        )
    except InputError as error:
        return str(error).partition(": ")[2]


@given(st.data())
def test_events_are_those_that_python_finds(data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(PATHS))
    names = (
        data.draw(st.lists(st.sampled_from(["i", "j"]), unique=True)) if path.strip("[].") else []
    )
    some = data.draw(st.lists(documents(steps_of(path)), max_size=3))
    between = data.draw(st.sampled_from([b"", b"\n", b","])) if path == "." else b""
    file = between.join(written(data.draw, each) for each in some)
    wanted = [event for each in some for event in walk(each, steps_of(path), {}, names)]
    found = outcome(file, path, names, 2**20)
    assert isinstance(found, Result)
    read = [json.loads(row.value or b"", object_pairs_hook=list) for row in found.rows]
    assert read == [json.loads(json.dumps(dict(e)), object_pairs_hook=list) for e in wanted]
    assert not found.rejects
    if not names:
        assert all((row.value or b"") in file for row in found.rows)
    small = outcome(file, path, names, data.draw(st.integers(64, len(file) + 64)))
    assert small[:2] == found[:2] if isinstance(small, Result) else "has more than" in small


@given(st.data())
def test_damage_gives_the_same_rows_in_any_chunks(data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(PATHS))
    names = ["i"] if path.strip("[].") else []
    file = bytearray(
        b"\n".join(written(data.draw, data.draw(documents(steps_of(path)))) for _ in "ab")
    )
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(file)))
        byte = data.draw(st.sampled_from(b'{}[],:"\\ \n0n\x00\x80\xc3\xff'))
        file[at : at + data.draw(st.integers(0, 2))] = bytes([byte])
    found = outcome(bytes(file), path, names, 2**20)
    small = outcome(bytes(file), path, names, data.draw(st.integers(64, len(file) + 64)))
    if isinstance(found, Result):
        assert all(isinstance(json.loads(row.value or b""), dict) for row in found.rows)
        places = [*(reject.line for reject in found.rejects)]
        assert places == sorted({*places})
    if isinstance(small, Result):
        assert isinstance(found, Result)
        assert small[:2] == found[:2]


T = "2026-11-20T10:00:00Z"
CLOUDTRAIL = [{"eventTime": T, "userIdentity": {"userName": f"u{n % 3}"}} for n in range(40)]
LOGS = [
    {"timeUnixNano": f"{1795168807 + n}000000000", "traceId": f"{n % 7:032x}"} for n in range(20)
]
SCOPES: list[Any] = [{"scope": {"name": f"s{s}"}, "logRecords": LOGS} for s in range(2)]
HITS: Any = {"n": 40, "hits": {"n": 40, "hits": [{"_source": each} for each in CLOUDTRAIL]}}
OTLP = {"resourceLogs": [{"scopeLogs": SCOPES, "resource": {"attributes": []}}]}


@pytest.mark.parametrize(
    ("name", "content", "rows", "first"),
    [
        ("ct.json.gz", gzip.compress(json.dumps({"Records": CLOUDTRAIL}).encode()), 40,
         CLOUDTRAIL[0]),
        ("logs.json", f"{json.dumps(OTLP)}\n{json.dumps(OTLP)}\n".encode(), 80,
         {"resource": {"attributes": []}, "scope": {"name": "s0"}, **SCOPES[0]["logRecords"][0]}),
        ("pretty.json", json.dumps(OTLP, indent=2).encode(), 40, None),
        ("array.json", json.dumps(CLOUDTRAIL, indent=1).encode(), 40, CLOUDTRAIL[0]),
        ("azure.json", json.dumps({"n": 40, "records": CLOUDTRAIL}).encode(), 40, CLOUDTRAIL[0]),
        ("hits.json", json.dumps(HITS, indent=1).encode(), 40, HITS["hits"]["hits"][0]),
        ("cut.json", json.dumps({"a": "]", "r": 4000 * CLOUDTRAIL[:1]}, indent=1).encode(), 4000,
         CLOUDTRAIL[0]),
        ("over.json", "\n".join(json.dumps(each, indent=1) for each in CLOUDTRAIL).encode(), 40,
         CLOUDTRAIL[0]),
        ("joined.json", "".join(map(json.dumps, CLOUDTRAIL)).encode(), 40, CLOUDTRAIL[0]),
    ],
)  # fmt: skip
def test_init_check_and_ingest_agree(
    tmp_path: Path, name: str, content: bytes, rows: int, first: dict[str, Any] | None
) -> None:
    (tmp_path / name).write_bytes(content)
    made = infer_pipeline([str(tmp_path / name)], root=str(tmp_path / "lake"))
    (tmp_path / "p.toml").write_text(made.toml)
    settings = load(tmp_path / "p.toml")
    sampled = check(settings, 5000).rows
    report = ingest_files(LocalEngine(), settings, DeclaredRun("a"))
    assert (len(sampled), report.records, report.quarantined) == (rows, rows, 0)
    assert [row.line for row in sampled] == [*range(1, rows + 1)]
    (documents,) = (each.count for each in report.findings if each.code == "documents")
    assert documents == {"logs.json": 2, "over.json": 40, "joined.json": 40}.get(name, 1)
    is_unsure = "events-in-array" in {each.code for each in made.findings}
    assert is_unsure == (name in {"azure.json", "hits.json", "cut.json"})
    assert first is None or json.loads(sampled[0].value or "") == first


def test_rejected_event_is_redriven(tmp_path: Path) -> None:
    """It is found by its number in the file, or, if the file is gone, made of its raw bytes."""
    late = [{"ts": 5, "n": 0}, {"n": 1, "when": 5}, {"ts": 5, "n": 2}]
    for name in ("a", "b"):
        (tmp_path / name).write_text(json.dumps({"s": name, "r": late}))
    tables: dict[str, Any] = {
        "name": "p", "root": str(tmp_path / "lake"), "max_quarantine_ratio": 0.5,
        "input": {"paths": [str(tmp_path / "[ab]")], "format": "jsonl", "records": "r[]",
                  "inherit": ["s"]},
        "timestamp": {"field": "ts", "format": "epoch_ms", "allow_1970": True},
        "topic": {"name": "t"},
    }  # fmt: skip
    report = ingest_files(LocalEngine(), Pipeline.model_validate(tables), DeclaredRun("a"))
    assert (report.records, report.quarantined) == (4, 2)
    (tmp_path / "b").unlink()
    tables["timestamp"]["field"] = "when"
    again = redrive(LocalEngine(), Pipeline.model_validate(tables), "a")
    assert (again.records, again.quarantined) == (2, 0)
    values = seglake.open(tables["root"]).topic("t").read_range(None, None).read_all()["value"]
    assert sorted(json.loads(each.as_py())["s"] for each in values) == ["a"] * 3 + ["b"] * 3


def test_rows_that_are_no_events_are_rejects_with_their_place() -> None:
    mark = b"\xef\xbb\xbf"
    good = mark + b'{"r":[{"a":1},5,{"a":tru},{"a":"\xff"}]}\n'
    data = good + b'noise\n{"x":1}\n{"r":null}\n{"r":7}\n' + mark + b'{"r":[{}]}' + mark
    found = read_bytes(data, input={"records": "r[]"})
    assert [row.value for row in found.rows] == [b'{"a":1}', b"{}"]
    assert found.rejects == [
        (1, "not parseable", b"5"),
        (2, "not parseable", b'{"a":tru}'),
        (3, "invalid UTF-8", b'{"a":"\xff"}'),
        (4, NOWHERE, b"noise"),
        (5, NOWHERE, b'{"x":1}'),
        (6, NOWHERE, b"7"),
    ]


@pytest.mark.parametrize(
    ("data", "inherit", "words"),
    [
        (b'{"r":[{"a":1},{"a":2}', [], "at byte 22, the file ends inside a document"),
        (b'{"r":[{"a":1}}', [], "after event 1, at byte 14, brackets or quotes do not match"),
        (b'{"r":[{"a":"x\n"}]}', [], "brackets or quotes do not match"),
        (b'{"r":["%b"]}' % (b"x" * 4096), [], "has more than 4 KiB"),
        (b'{"r":[%b]}' % b",".join([b'{"a":12345}'] * 500), ["i"], "Without input.inherit"),
        (b'{"r":[{},{"i":null}],"i":1}', ["i"], "event 2 has a member 'i' itself"),
    ],
)
def test_errors_name_the_place_and_the_remedy(data: bytes, inherit: list[str], words: str) -> None:
    with pytest.raises(InputError, match=words):
        read_bytes(data, input={"records": "r[]", "inherit": inherit}, task={"chunk_bytes": 4096})


@pytest.mark.parametrize(
    "tables",
    [{"records": text} for text in ("", "r", "r[].", ".r[]", "r[]s[]", "[", "r[].s")]
    + [
        {"inherit": ["a"]},
        {"records": "[]", "inherit": ["a"]},
        {"records": ".", "inherit": ["a"]},
        {"records": "r[]", "inherit": ["a.b"]},
    ]
    + [{"records": "r[]", "format": "csv"}],
)
def test_settings_that_name_no_array_are_refused(tables: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        pipeline("x", input=tables)
