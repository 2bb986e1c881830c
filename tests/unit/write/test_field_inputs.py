"""Small inputs from bug reports, in the folder of real logs: `check` and an ingest read them."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from seglake.config import Pipeline, from_tables, load
from seglake.infer.pipeline import infer_pipeline
from seglake.write.check import check
from tests.makers.raw_events import ingest, read_lake

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
