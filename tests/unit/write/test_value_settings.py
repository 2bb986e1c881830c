"""An ingest that makes a topic of raw lines tells how their fields are found, and no other does."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

import seglake
from seglake.config import Pipeline, Topic, combined_topic, from_tables, load
from seglake.config.topic import VALUE_SETTINGS
from seglake.datasource.batch import SparkBatchReader
from seglake.datasource.options import Options
from seglake.engine import LocalEngine
from seglake.errors import ConfigError
from seglake.infer.pipeline import infer_pipeline
from seglake.maintain.health.reindex import reindex
from seglake.maintain.health.verify import verify
from seglake.maintain.topic_settings import alter
from seglake.write.check import check
from seglake.write.driver.redrive import redrive
from tests.makers.lakes import T, open_catalog
from tests.makers.raw_events import ingest, pipeline_of, read_lake, segments_of

PATTERN = r"(?P<ts>\d+) (?P<k>\S*) (?P<path>\S+)"
KEYS = [None, "a", "b", 'say "hi"', "käse", "x,y", "two\nlines"]
SMALL = {"batch.size": 300, "index.fields": ["k", "path"], "partitions": 2}


def _csv(path: Path, header: str = "ts,k,path", count: int = 60) -> Path:
    """A file whose rows have each a number, a key, and a path that is the number, too."""
    cells = [(KEYS[n % len(KEYS)] or "").replace('"', '""') for n in range(count)]
    rows = [f'{T + n},"{cell}",{n}' for n, cell in enumerate(cells)]
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join([header, *rows, ""]))
    return path


def _text(path: Path, count: int = 60) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{T + n} k{n % 7} /{n}\n" for n in range(count)))
    return path


def _settings(root: Path) -> dict[str, Any]:
    row = open_catalog(str(root)).snapshot().topic("events")
    return {key: value for key, value in json.loads(row.settings).items() if key in VALUE_SETTINGS}


def _pipeline(root: Path, paths: Any, form: str = "csv", **changes: Any) -> Any:
    given = {"format": form, **({"pattern": PATTERN} if form == "text" else {})}
    changes["input"] = {**given, **changes.get("input", {})}
    changes["topic"] = {**SMALL, **changes.get("topic", {})}
    return pipeline_of(root, paths, **changes)


CSV = {"value.format": "csv", "value.columns": ["ts", "k", "path"]}


@pytest.mark.parametrize("order", ["time", "arrival"])
def test_csv_gives_its_columns_and_its_fields_are_those_of_the_ingest(
    tmp_path: Path, order: str
) -> None:
    root = tmp_path / "lake"
    for run in "12":
        ingest(_pipeline(root, _csv(tmp_path / run / "a.csv"), order=order), run)
    assert _settings(root) == CSV
    log = seglake.open(str(root)).topic("events")
    records = log.find(where={"ts": [str(T + n) for n in range(60)]}, fields=["k"],
                       columns=["key"]).read_all()  # fmt: skip
    assert len(records) == 120
    assert [key and key.decode() for key in records["key"].to_pylist()] == (
        records["k"].to_pylist()
    )
    assert len(log.find(where={"k": "two\nlines", "path": 13}).read_all()) == 2
    assert log.plan_find(where={"path": 13}).scanned == 0
    before = [(root / row.key("keyindex")).read_bytes() for row in segments_of(root)]
    reindex(str(root), "events")
    assert [(root / row.key("keyindex")).read_bytes() for row in segments_of(root)] == before
    assert not verify(str(root), deep=True).findings


def test_text_gives_its_pattern(tmp_path: Path) -> None:
    root = tmp_path / "lake"
    ingest(_pipeline(root, _text(tmp_path / "in" / "a.log"), "text"))
    assert _settings(root) == {"value.format": "text", "value.pattern": PATTERN}
    log = seglake.open(str(root)).topic("events")
    assert log.find(where={"path": "/13"}, columns=["key"]).read_all()["key"].to_pylist() == [b"k6"]
    assert log.plan_find(where={"path": "/13"}).scanned == 0


def test_delimiter_and_quote_and_odd_names_come_along(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes("\ufeffts;k;x;'an x;y';;x\n1;'a;b';2;3;4;5\n".encode())
    ingest(_pipeline(tmp_path / "lake", path, input={"delimiter": ";", "quote": "'"}))
    assert _settings(tmp_path / "lake") == {
        "value.format": "csv", "value.columns": ["ts", "k", "", "an x;y", "", ""],
        "value.delimiter": ";", "value.quote": "'",
    }  # fmt: skip
    log = seglake.open(str(tmp_path / "lake")).topic("events")
    assert len(log.find(where={"an x;y": 3, "k": "a;b"}).read_all()) == 1


def test_fields_of_values_are_found_with_the_escape(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("ts,k,path\n" + r'1,"say \"hi\", C:\\dir",1' + "\n2,a,2\n")
    ingest(_pipeline(tmp_path / "lake", path, input={"escape": "\\"}))
    assert _settings(tmp_path / "lake") == {**CSV, "value.escape": "\\"}
    log = seglake.open(str(tmp_path / "lake")).topic("events")
    (key,) = log.find(where={"k": 'say "hi", C:\\dir'}, columns=["key"]).read_all()["key"]
    assert key.as_py() == rb'say "hi", C:\dir'
    assert log.plan_find(where={"k": "a"}).scanned == 0


def test_columns_of_comments_give_no_value_format(tmp_path: Path) -> None:
    path = tmp_path / "u_ex.log"
    path.write_text("#Fields: ts k path\n1 a 1\n#Fields: path ts k\n2 2 b\n")
    report = ingest(_pipeline(tmp_path / "lake", path, input={"comment": "#", "delimiter": " "}))
    assert (report.records, report.input_rows, report.comment_lines) == (2, 2, 2)
    assert report.summary == "2 records, 0 rejected, 2 comment lines left out"
    assert _settings(tmp_path / "lake") == {}


def test_what_is_stored_decides(tmp_path: Path) -> None:
    path, text = _csv(tmp_path / "a.csv"), _text(tmp_path / "a.log")
    jsonl = tmp_path / "a.jsonl"
    jsonl.write_text('{"ts":1,"k":"a"}\n')
    pipelines = [
        _pipeline(tmp_path / "0", path, value={"from": "columns"}),
        _pipeline(tmp_path / "1", path, value={"from": "field", "field": "k"}),
        _pipeline(tmp_path / "2", jsonl, "jsonl"),
        _pipeline(tmp_path / "3", path, topic={"value.format": "json"}),
        _pipeline(tmp_path / "4", text, "text", input={"pattern": None}, key={"fields": []},
                  timestamp={"field": None, "format": None, "allow_1970": False}, order="arrival",
                  topic={"message.timestamp.type": "LogAppendTime"}),
    ]  # fmt: skip
    for number, pipeline in enumerate(pipelines):
        assert ingest(pipeline).records > 0
        assert _settings(tmp_path / str(number)) == {}


def test_what_a_pipeline_says_goes_first_and_alter_changes_it(tmp_path: Path) -> None:
    root, path = tmp_path / "lake", _csv(tmp_path / "a.csv")
    said = {"value.format": "csv", "value.columns": "when,who,what"}
    ingest(_pipeline(root, path, topic=said))
    assert _settings(root) == {**CSV, "value.columns": ["when", "who", "what"]}
    other = _pipeline(root, _csv(tmp_path / "b.csv"), topic={"value.format": "json"})
    with pytest.raises(ConfigError, match=r"value\.format = 'csv', but .* 'json'"):
        ingest(other, "2")
    report = alter(str(root), "events", {"value.format": "json"})
    assert _settings(root) == {}
    assert {*report.changes} == {"value.format", "value.columns"}
    ingest(other, "2")


def test_a_later_run_changes_no_setting_and_says_what_differs(tmp_path: Path) -> None:
    root = tmp_path / "lake"
    assert ingest(_pipeline(root, _csv(tmp_path / "a.csv"))).findings == []
    changed = _csv(tmp_path / "b.csv", "ts,path,k")
    (found,) = ingest(_pipeline(root, changed), "2").findings
    assert (found.code, found.subject) == ("other-value-format", "value.columns")
    assert found.facts == {"has": ["ts", "k", "path"], "own": ["ts", "path", "k"]}
    assert _settings(root) == CSV


def test_a_redrive_with_another_pattern_says_what_differs(tmp_path: Path) -> None:
    """Else its records would lack the fields that the others have, and nobody would know."""
    root, path, limit = tmp_path / "lake", tmp_path / "a.log", {"max_quarantine_ratio": 0.9}
    path.write_text(f"{T} a /1\nGET {T} /2\n{T} b /3\n")
    ingest(_pipeline(root, path, "text", **limit))
    other = r"GET (?P<ts>\d+) (?P<path>\S+)"
    changed = _pipeline(root, path, "text", input={"pattern": other}, key={"fields": []}, **limit)
    report = redrive(LocalEngine(), changed, "1")
    assert report.records == 1
    (found,) = report.findings
    assert (found.subject, found.facts) == ("value.pattern", {"has": PATTERN, "own": other})


def test_spark_finds_fields_of_topics_by_the_format_of_each(tmp_path: Path) -> None:
    root = tmp_path / "lake"
    ingest(_pipeline(root, _csv(tmp_path / "a.csv"), topic={"name": "a"}))
    ingest(_pipeline(root, _text(tmp_path / "b.log"), "text", topic={"name": "b"}))
    ingest(_pipeline(root, _csv(tmp_path / "c.csv"), topic={"name": "c"}, name="c"))
    options = {
        "path": str(root), "subscribe": "a,b,c", "fields": "path", "columns": "topic",
        "where": json.dumps({"path": ["13", "/13"]}),
    }  # fmt: skip
    reader = SparkBatchReader(Options(options))
    parts = reader.partitions()
    found = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
    assert sorted((row["topic"], row["path"]) for row in found) == [
        ("a", "13"), ("b", "/13"), ("c", "13"),
    ]  # fmt: skip
    assert len({part.value.value_format for part in parts}) == 2


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"value.format": "csv"}, "value.columns is missing"),
        ({"value.format": "csv", "value.columns": ","}, "value.columns is missing"),
        ({"value.format": "csv", "value.columns": "a,b,a"}, "'a' occurs twice"),
        ({"value.columns": "a"}, "value.columns contradicts value.format = 'json'"),
        ({"value.format": "text"}, "value.pattern is missing"),
        ({"value.format": "text", "value.pattern": "("}, "Use RE2 syntax"),
        ({"value.format": "text", "value.pattern": r"(?P<a>x)(?P<a>y)"}, "'a' occurs twice"),
        ({"value.format": "text", "value.pattern": r"\d+"}, "no named group"),
        ({"value.pattern": r"(?P<a>.)"}, "value.pattern contradicts"),
        ({**CSV, "value.delimiter": '"'}, "the same character"),
        ({**CSV, "value.delimiter": "ab"}, "value.delimiter"),
        ({**CSV, "value.columns": [f"{n}{'x' * 900}" for n in range(99)]}, "Shorten the names"),
        ({"value.format": "xml"}, "'json', 'csv' or 'text'"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem.replace("(", r"\(")):
        Topic.model_validate({"name": "events", **settings})


def test_another_format_replaces_what_the_first_one_needed() -> None:
    stored = combined_topic({}, {"name": "events", **CSV, "value.delimiter": ";"}).settings
    text = combined_topic(stored, {"name": "events", "value.format": "text",
                                   "value.pattern": PATTERN})  # fmt: skip
    assert {k: v for k, v in text.settings.items() if k in VALUE_SETTINGS} == {
        "value.format": "text", "value.pattern": PATTERN,
    }  # fmt: skip
    columns = combined_topic(stored, {"name": "events", "value.columns": "a, b c,"})
    assert columns.value_columns == ("a", "b c", "")
    assert columns.value_delimiter == ";"


def test_a_setting_goes_back_to_its_default(tmp_path: Path) -> None:
    root = tmp_path / "lake"
    ingest(_pipeline(root, _csv(tmp_path / "a.csv")))
    alter(str(root), "events", {}, delete=["value.delimiter", "value.pattern"])
    assert _settings(root) == CSV
    with pytest.raises(ConfigError, match=r"value\.columns is missing"):
        alter(str(root), "events", {}, delete=["value.columns"])
    alter(str(root), "events", {}, delete=["value.format"])
    assert _settings(root) == {}


# Small inputs from bug reports, in the folder of real logs: `check` and an ingest read them.

SETTINGS: dict[str, dict[str, Any]] = {  # by case, those that its pipeline does not have yet
    "csv-backslash": {"input.escape": "\\"},
    "csv-header-lines": {},
    "time-optional-fraction": {},
}


def case(name: str, data_dir: Path) -> tuple[Path, dict[str, Any]]:
    folder = data_dir / "field" / name
    if not folder.is_dir():
        pytest.skip(f"no input in {folder}: set SEGLAKE_DATA to a folder with it")
    return folder / "in", json.loads((folder / "expected.json").read_text())


def require(pipeline: Pipeline, expected: dict[str, Any]) -> None:
    checked, report = check(pipeline, 1000), ingest(pipeline)
    assert report.findings == checked.findings
    assert report.input_rows == len(checked.rows)
    records = read_lake(pipeline.root, pipeline.topic.name)[0]
    values = [(record.value or b"").decode() for record in records]
    objects = [json.loads(value) if value.startswith("{") else value for value in values]
    found = {
        "records": report.records,
        "rejects": report.quarantined,
        "values": objects,
        "timestamps": [record.timestamp for record in records],
        "msg": [each.get("msg") if isinstance(each, dict) else None for each in objects],
    }
    assert {key: found[key] for key in found.keys() & expected.keys()} == {
        key: expected[key] for key in found.keys() & expected.keys()
    }


@pytest.mark.parametrize("by_init", [False, True])
@pytest.mark.parametrize("name", [*SETTINGS, "w3c-comments"])
def test_field_input_is_read_with_its_setting_and_with_what_init_writes(
    name: str, by_init: bool, data_dir: Path, tmp_path: Path
) -> None:
    paths, expected = case(name, data_dir)
    made = tomllib.loads(infer_pipeline([str(paths)], root=str(tmp_path / "lake")).toml)
    made["pipeline"]["name"] = "p"
    made |= {"value": {"from": "columns"}} if name.startswith("csv") else {}
    own = {"pipeline.root": made["pipeline"]["root"], "input.paths": str(paths)}
    if by_init or name not in SETTINGS:
        require(from_tables(made), expected)
    else:
        require(load(paths.parent / "p.toml", {**own, **SETTINGS[name]}), expected)
