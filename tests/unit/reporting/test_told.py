"""An ingest tells of itself where the environment says so, and is never the worse for it."""

import json
import logging
import sys
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

import seglake
from seglake.cli.app import app
from seglake.config import Pipeline, from_tables
from seglake.engine import LocalEngine
from seglake.errors import ConfigError, SeglakeError, StoreError
from seglake.jobs.ingest import main
from seglake.reporting import metrics
from seglake.reporting.report import LakeReport, report
from seglake.reporting.run import report_run
from seglake.write.api import run_pipeline
from tests.harness.listening import listening
from tests.harness.ports import free_ports
from tests.makers.lakes import Event, LakeMaker
from tests.makers.raw_events import write_settings
from tests.makers.watched import BEGIN_MS, HOUR_MS, NOW_MS

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


# Metrics: the figures of the report, as a Prometheus server parses them, in a file and pushed.


@pytest.fixture
def made(tmp_path: Path) -> LakeReport:
    maker = LakeMaker(tmp_path, partitions=2)
    begin = NOW_MS - 9 * HOUR_MS
    for hour in (0, 1, 4):
        rows = [Event(begin + hour * HOUR_MS + second * 1000) for second in range(7)]
        start = begin + hour * HOUR_MS
        maker.run({0: rows}, interval=(start, start + HOUR_MS))
    return report(str(tmp_path), now_ms=NOW_MS)


def values(text: str) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *(v for k, v in sorted(sample.labels.items()) if k != "topic")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_the_text_has_the_figures(made: LakeReport) -> None:
    found = values(metrics.prometheus_text(made))
    assert found["seglake_coverage_lag_seconds",] == 7 * 3600
    assert found["seglake_coverage_holes",] == 1
    assert found["seglake_coverage_hole_seconds",] == 2 * 3600
    assert found["seglake_closed_until_timestamp_seconds",] == (NOW_MS - 7 * HOUR_MS) / 1000
    assert found["seglake_records",] == 21
    assert found["seglake_end_offset", "0"] == 21
    assert found["seglake_end_offset", "1"] == 0
    assert found["seglake_last_run_records",] == 7
    assert found["seglake_alerts", "problem"] == 1
    assert found["seglake_version",] == made.version


def test_a_file_is_replaced_as_a_whole(made: LakeReport, tmp_path: Path) -> None:
    path = tmp_path / "out.prom"
    path.write_text("old")
    kept = path.open()
    metrics.write_file(made, path)
    assert kept.read() == "old"  # a reader of the old file keeps it: it was renamed over
    assert values(path.read_text()) == values(metrics.prometheus_text(made))
    assert [each.name for each in tmp_path.glob("out.prom*")] == ["out.prom"]
    with pytest.raises(StoreError, match="cannot be written"):
        metrics.write_file(made, tmp_path / "none" / "out.prom")


class Gateway(BaseHTTPRequestHandler):
    taken: list[tuple[str, str, bytes]]

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.taken.append((self.command, self.path, body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


def test_metrics_are_pushed(made: LakeReport) -> None:
    Gateway.taken = []
    with listening(Gateway) as address:
        metrics.push(made, address)
    ((method, path, body),) = Gateway.taken
    assert (method, path) == ("PUT", "/metrics/job/seglake/topic/events")
    assert values(body.decode()) == values(metrics.prometheus_text(made))


def test_a_gateway_that_is_not_there_is_named(made: LakeReport) -> None:
    (port,) = free_ports(1)
    with pytest.raises(StoreError, match="did not accept the metrics"):
        metrics.push(made, f"http://127.0.0.1:{port}")


def test_without_the_extra_the_remedy_is_named(
    made: LakeReport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(ConfigError, match=r"pip install 'seglake\[metrics\]'"):
        metrics.prometheus_text(made)
