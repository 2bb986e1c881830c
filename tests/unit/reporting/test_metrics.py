"""Metrics: the figures of the report, as a Prometheus server parses them, in a file and pushed."""

import sys
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from seglake.errors import ConfigError, StoreError
from seglake.reporting import metrics
from seglake.reporting.report import LakeReport, report
from tests.harness.listening import listening
from tests.harness.ports import free_ports
from tests.makers.lakes import Event, LakeMaker
from tests.makers.watched import HOUR_MS, NOW_MS


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
