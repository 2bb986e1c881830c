"""An ingest tells of itself where the environment says so, and is never the worse for it."""

import json
import logging
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import seglake
from seglake.cli.app import app
from seglake.config import Pipeline, from_tables
from seglake.engine import LocalEngine
from seglake.errors import SeglakeError
from seglake.jobs.ingest import main
from seglake.reporting.run import report_run
from seglake.write.api import run_pipeline
from tests.harness.listening import listening
from tests.makers.raw_events import write_settings
from tests.makers.watched import BEGIN_MS, HOUR_MS

PARENT = "01926f6c-0000-7000-8000-000000000000"


class Listener(BaseHTTPRequestHandler):
    heard: list[tuple[str, bytes]]
    status = 200

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            import gzip  # noqa: PLC0415

            body = gzip.decompress(body)
        self.heard.append((self.path, body))
        self.send_response(self.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def address() -> Iterator[str]:
    Listener.heard, Listener.status = [], 200
    with listening(Listener) as started:
        yield started


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    monkeypatch.setattr("seglake.engine.SparkEngine", lambda *_: LocalEngine())
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps({"ts": BEGIN_MS + n}) + "\n" for n in range(9)))
    return from_tables(
        {
            "pipeline": {"root": str(tmp_path / "lake"), "name": "hourly"},
            "input": {"format": "jsonl", "paths": [str(source)]},
            "timestamp": {"field": "ts", "format": "epoch_ms"},
            "topic": {"name": "web", "partitions": 1},
        }
    )


def ingest(pipeline: Pipeline) -> Any:
    interval = (str(BEGIN_MS), str(BEGIN_MS + HOUR_MS))
    with report_run(pipeline, interval) as run:
        run.report = run_pipeline(pipeline, run_id="R", interval=interval)
    return run.report


def events() -> list[dict[str, Any]]:
    return [json.loads(body) for path, body in Listener.heard if "lineage" in path]


def test_nothing_is_told_unless_it_is_asked_for(pipeline: Pipeline, address: str) -> None:
    assert ingest(pipeline).records == 9
    assert Listener.heard == []


def test_metrics_of_the_topic_are_written(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEGLAKE_METRICS_FILE", str(tmp_path / "{topic}.prom"))
    ingest(pipeline)
    assert 'seglake_last_run_records{topic="web"} 9.0' in (tmp_path / "web.prom").read_text()


def test_openlineage_hears_of_the_run(
    pipeline: Pipeline, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENLINEAGE_URL", address)
    monkeypatch.setenv("OPENLINEAGE_PARENT_ID", f"airflow/dag.task/{PARENT}")
    report = ingest(pipeline)
    begin, end = events()
    assert [begin["eventType"], end["eventType"]] == ["START", "COMPLETE"]
    assert begin["run"]["runId"] == end["run"]["runId"] == report.attempt_id
    assert (end["job"]["namespace"], end["job"]["name"]) == ("seglake", "hourly.web")
    assert [each["name"] for each in end["inputs"]] == list(pipeline.input.paths)
    (output,) = end["outputs"]
    assert output["name"].endswith("lake/topics/web")
    assert output["facets"]["version"]["datasetVersion"] == str(report.version)
    assert output["outputFacets"]["outputStatistics"]["rowCount"] == 9
    facets = end["run"]["facets"]
    assert facets["nominalTime"]["nominalStartTime"] == "2026-06-01T00:00:00.000Z"
    assert facets["nominalTime"]["nominalEndTime"] == "2026-06-01T01:00:00.000Z"
    assert facets["parent"]["run"]["runId"] == PARENT


def test_openlineage_hears_of_a_failure(
    pipeline: Pipeline, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENLINEAGE_URL", address)
    Path(pipeline.input.paths[0]).unlink()
    with pytest.raises(SeglakeError):
        ingest(pipeline)
    begin, end = events()
    assert (begin["eventType"], end["eventType"]) == ("START", "FAIL")
    assert "in.jsonl" in end["run"]["facets"]["errorMessage"]["message"]


@pytest.mark.parametrize("options", [[], ["--replace"], ["--replace-interval"]])
@pytest.mark.parametrize("call", [lambda given: CliRunner().invoke(app, ["ingest", *given]), main])
def test_the_command_and_the_job_tell_of_their_runs(
    call: Callable[[list[str]], Any],
    options: list[str],
    pipeline: Pipeline,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("seglake.engine.SparkEngine", lambda *_: LocalEngine())
    monkeypatch.setenv("SEGLAKE_METRICS_FILE", str(tmp_path / "web.prom"))
    conf = write_settings(tmp_path / "web.toml", pipeline.root, tmp_path / "in.jsonl", "web")
    interval = ["--interval-start", str(BEGIN_MS), "--interval-end", str(BEGIN_MS + HOUR_MS)]
    call(["--conf-file", str(conf), "--run-id", "R", *interval, *options])
    assert 'seglake_last_run_records{topic="web"} 9.0' in (tmp_path / "web.prom").read_text()


@pytest.mark.parametrize(
    "variable", ["SEGLAKE_METRICS_FILE", "SEGLAKE_PUSHGATEWAY", "OPENLINEAGE_URL"]
)
def test_metrics_target_that_does_not_answer_is_a_warning(
    variable: str,
    pipeline: Pipeline,
    address: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, logger="seglake.reporting.run")
    Listener.status = 400
    monkeypatch.setenv(variable, "/dev/null/x" if variable.endswith("FILE") else address)
    assert ingest(pipeline).status == "committed"
    assert "cannot send the run's lineage to" in caplog.text
    assert seglake.open(str(pipeline.root)).topic("web").end_offsets() == {0: 9}
