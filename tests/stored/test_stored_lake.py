"""A lake that version 1 of the format wrote, and what it answers: today as on its first day."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable
from pyarrow import parquet as pq

import seglake
from tests.harness.tiers import rest_but
from tests.stored import answers, runs
from tests.stored.events import START, events, jsonl, put, put_inputs
from tests.stored.kept import NAME, STORED, unpack
from tests.stored.steady import HERE, Tables, ingest, steady

WANTED: dict[str, Any] = json.loads((STORED / f"{NAME}.json").read_text())
RUNS = [*runs.of_gzip(), *runs.runs()]  # the ticks last
SOME = ("web", "arrived", "placed", "breaks", "rows", "stamped", "gzip-time", "silent")
NEWEST = {each.settings["topic"]["name"]: each.settings for each in RUNS}
INDEX_ATTEMPT = -2  # of a segment row's columns


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    root = unpack(tmp_path_factory.mktemp("stored") / "lake")
    told: dict[str, Any] = json.loads(json.dumps(answers.of_lake(root)))
    return told


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return unpack(tmp_path / "lake")


def records(lake: Path) -> dict[str, Any]:
    """The records that were there when the lake was stored, summed by partition."""
    opened = seglake.open(str(lake))
    return {
        topic: {
            p: answers.summed(opened.topic(topic).plan_offsets({int(p): (0, end)}).execute())
            for p, end in wanted["end"].items()
        }
        for topic, wanted in WANTED["logs"].items()
    }


def stored_records() -> dict[str, Any]:
    return {topic: wanted["records"] for topic, wanted in WANTED["logs"].items()}


def findings(lake: Path) -> Any:
    return answers.verified(lake)["findings"]


# ------------------------------------------------------------------ answers


@pytest.mark.parametrize("topic", WANTED["logs"])
def test_every_topic_answers_as_before(found: dict[str, Any], topic: str) -> None:
    assert found["logs"][topic] == WANTED["logs"][topic]


@pytest.mark.parametrize("kind", WANTED["catalog"])
def test_every_row_is_as_before(found: dict[str, Any], kind: str) -> None:
    assert found["catalog"][kind] == WANTED["catalog"][kind]


@pytest.mark.parametrize("part", sorted(WANTED.keys() - {"logs", "catalog"}))
def test_the_lake_answers_as_before(found: dict[str, Any], part: str) -> None:
    answer = found[part]
    if part == "verify":  # since only a commit binds, input lists are left over
        left = [key for key in answer["orphans"] if not key.endswith("/inputs.json")]
        assert len(answer["orphans"]) - len(left) == len(WANTED["catalog"]["run"])
        answer = {**answer, "orphans": left}
    assert answer == WANTED[part]
    assert WANTED["verify"]["findings"] == []


def test_duckdb_reads_the_same_rows(lake: Path) -> None:
    files = DeltaTable(str(lake / "catalog/log")).file_uris()
    connection = duckdb.connect()
    connection.from_parquet(files, hive_partitioning=True, union_by_name=True).create_view("log")
    for kind in ("segment", "run", "source", "topic"):
        names = pq.read_schema(next(file for file in files if f"kind={kind}/" in file)).names
        columns = ", ".join(f'"{name}"' for name in ["topic", *names])
        rows = connection.sql(f"SELECT {columns} FROM log WHERE kind = '{kind}'").fetchall()
        assert sorted(map(list, rows), key=json.dumps) == WANTED["catalog"][kind]


# ------------------------------------------------------------------ further runs


def test_every_stored_run_is_done(lake: Path, tmp_path: Path) -> None:
    with steady(tmp_path, "later"):
        for each in (*RUNS[: -runs.TICKS], RUNS[-1]):
            for run in (each, each.rival or each):
                report = ingest(run.settings, run.run_id, run.interval)
                assert (report["status"], report["version"]) == ("already done", -1)
    assert seglake.open(str(lake)).version == WANTED["version"]


def test_the_program_says_that_a_stored_run_is_done(lake: Path, tmp_path: Path) -> None:
    run, conf = runs.runs()[-1], tmp_path / "run.toml"
    tables = (f"[{table}]\n" + _keys(keys) for table, keys in run.settings.items())
    conf.write_text("\n".join(tables))
    assert run.interval is not None
    interval = ("--interval-start", run.interval[0], "--interval-end", run.interval[1])
    with contextlib.chdir(tmp_path):
        report = answers.told("ingest", "--conf-file", conf, "--run-id", run.run_id, *interval)
    assert (report["status"], report["pipeline"]) == ("already done", f"tick-{runs.TICKS - 1}")
    assert findings(lake) == []


def _keys(keys: Any) -> str:
    return "".join(f'"{key}" = {json.dumps(value)}\n' for key, value in keys.items())


def test_stored_files_are_not_ingested_again(lake: Path, tmp_path: Path) -> None:
    put_inputs(tmp_path)
    with steady(tmp_path, "later"):
        for settings in NEWEST.values():
            report = ingest(settings, "again")
            assert (report["status"], report["records"]) == ("committed", 0)
            assert report["skipped_files"]
    assert records(lake) == stored_records()


def new_input(settings: Tables) -> Tables:
    """The same settings for JSON lines that no run has read."""
    lines: Tables = {"input": {"paths": [f"{HERE}/in/new.jsonl"], "format": "jsonl"}}
    how: Tables = {"timestamp": {"field": "ts", "format": "epoch_ms"}, "key": {"fields": ["user"]}}
    return {**settings, **lines, **how, "value": {}, "headers": {}}


def test_offsets_go_on_at_the_stored_ends(lake: Path, tmp_path: Path) -> None:
    put(tmp_path / "in/new.jsonl", jsonl(events("new", 60, START + 10**7)))
    opened = seglake.open(str(lake))
    with steady(tmp_path, "later") as clock:
        for name in SOME:
            before = opened.topic(name).end_offsets()
            clock.ms += 10**9
            report = ingest(new_input(NEWEST[name]), "new")
            after = opened.refresh().topic(name).end_offsets()
            assert sum(after.values()) - sum(before.values()) == report["records"]
            assert {p: after[p] for p in report["end_offsets"]} == report["end_offsets"]
            added = opened.topic(name).plan_offsets({p: (before[p], after[p]) for p in before})
            assert len(added.execute().read_all()) == report["records"]
    assert records(lake) == stored_records()
    assert findings(lake) == []


# ------------------------------------------------------------------ maintenance


@pytest.mark.rest
def test_indexes_made_anew_are_the_same(lake: Path) -> None:
    for topic in SOME:
        report = answers.told("reindex", lake, topic)
        assert (report["skipped"], report["damaged"]) == (0, [])
        assert report["index_bytes"] == report["index_bytes_before"]
    assert _segments(lake) == _without_index_attempts(WANTED["catalog"]["segment"])
    assert findings(lake) == []


def _segments(lake: Path) -> list[Any]:
    return _without_index_attempts(answers.first_rows(lake)["segment"])


def _without_index_attempts(rows: list[Any]) -> list[Any]:
    return sorted([*row[:INDEX_ATTEMPT], *row[INDEX_ATTEMPT + 1 :]] for row in rows)


@pytest.mark.rest
def test_a_lost_index_is_made_anew(lake: Path) -> None:
    for suffix in ("index", "timeindex", "zonemap"):
        file = next(each for each in sorted(lake.glob(f"topics/web-0/*/*.{suffix}")))
        file.unlink()
    assert len(findings(lake)) == 3
    (report,) = answers.told("repair", lake)
    assert (report["topic"], report["damaged"]) == ("web", [])
    assert _segments(lake) == _without_index_attempts(WANTED["catalog"]["segment"])
    assert findings(lake) == []


@pytest.mark.parametrize("lost", [True, False])
def test_the_manifests_give_the_catalog_again(lake: Path, lost: bool) -> None:
    if lost:
        shutil.rmtree(lake / "catalog/log/_delta_log")
    force = [] if lost else ["--force"]
    (report,) = answers.told("repair", lake, "--catalog", *force)
    assert (report["untrusted"], report["missing"]) == ([], [])
    rows = answers.first_rows(lake)
    assert rows == {kind: WANTED["catalog"][kind] for kind in rows}
    assert records(lake) == stored_records()
    assert findings(lake) == []


@pytest.mark.parametrize("topic", rest_but(SOME, "web"))
def test_segments_are_merged(lake: Path, topic: str) -> None:
    """Every batch and answer stays; an older Seglake can still read the lake."""
    before = len(list(answers.told("segments", lake, topic, "--json")))
    report = seglake.merge(str(lake), topic, everything=True)
    assert (report.version > 0) == (report.segments > 0)
    assert len(list(answers.told("segments", lake, topic, "--json"))) <= before
    assert records(lake) == stored_records()
    assert findings(lake) == []
    table = DeltaTable(str(lake / "catalog/log"))
    assert table.metadata().configuration["seglake.format"] == "1"


@pytest.mark.rest
def test_a_stored_run_is_undone_and_ingested_again(lake: Path, tmp_path: Path) -> None:
    """Its row tells no offsets: the manifest does."""
    put_inputs(tmp_path)
    run = runs.runs()[0]
    topic = run.settings["topic"]["name"]
    log = seglake.open(str(lake)).topic(topic)
    whole = log.plan_offsets({p: (0, end) for p, end in log.end_offsets().items()}).execute()
    count = len(whole.read_all())
    report = seglake.undo(str(lake), topic, run.run_id, pipeline=run.settings["pipeline"]["name"])
    assert report.records > 0
    log = seglake.open(str(lake)).topic(topic)
    left = log.plan_offsets({p: (0, end) for p, end in log.end_offsets().items()}).execute()
    assert len(left.read_all()) == count - report.records
    assert findings(lake) == []
    with steady(tmp_path, "later"):
        grown = {**run.settings, "topic": NEWEST[topic]["topic"]}
        again = ingest(grown, run.run_id, run.interval)
    assert (again["status"], again["records"]) == ("committed", report.records)
    assert findings(lake) == []


def test_old_records_are_deleted_and_the_rest_stays(lake: Path) -> None:
    offset = WANTED["logs"]["web"]["end"]["0"] // 2
    report = seglake.delete_records(str(lake), "web", {0: offset})
    assert report.version > 0
    log = seglake.open(str(lake)).topic("web")
    assert log.beginning_offsets()[0] == offset
    assert log.read(0, offset, max_records=1).to_pylist()[0]["offset"] == offset
    assert findings(lake) == []
