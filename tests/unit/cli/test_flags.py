"""Every option of every command and job acts, or is refused: the table has a check for each."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import seglake
import seglake.serve
from seglake.catalog.schema import PartitionRow
from seglake.cli.app import app
from seglake.config import load
from seglake.engine import LocalEngine
from seglake.errors import ChangedFiles, ConfigError, SeglakeError, UsageError
from seglake.layout import new_attempt, success_key
from seglake.replay.run import ReplayReport, Tempo
from seglake.serve.settings import Settings
from seglake.times.instants import format_ms, to_epoch_ms
from tests.harness.flags import JOBS, Table, options_of_the_program
from tests.harness.narrow import narrow_terminal
from tests.harness.tiers import rest_but_today
from tests.makers.broker_folders import TOPIC_ID
from tests.makers.catalog_rows import commit_rows
from tests.makers.lakes import Event, LakeMaker, Shape, T, open_catalog
from tests.makers.raw_events import write_settings
from tests.makers.tiered_bucket import tier
from tests.unit.cli.test_every_command import DRY

TABLE = Table()


@dataclass
class Place:
    """A folder with a lake of its own, files to ingest, and their pipeline."""

    folder: Path

    @property
    def root(self) -> Path:
        return self.folder / "lake"

    def tell(self, *arguments: object) -> str:
        """What a command prints; raises its error."""
        with narrow_terminal(200):
            done = CliRunner().invoke(app, [str(argument) for argument in arguments])
        if isinstance(done.exception, AssertionError):
            raise done.exception
        if isinstance(done.exception, SeglakeError):
            raise done.exception
        self.code, self.errors = done.exit_code, done.stderr
        return done.stdout

    def json(self, *arguments: object) -> Any:
        return json.loads(self.tell(*arguments, "--json"))

    def rows(self, *arguments: object) -> list[dict[str, Any]]:
        """The JSON lines that a command prints."""
        return [json.loads(line) for line in self.tell(*arguments).splitlines()]

    def offsets(self, *arguments: object) -> list[int]:
        """The offset of each record that a command prints."""
        return [row["offset"] for row in self.rows(*arguments)]

    def lines(self, *arguments: object) -> list[tuple[int, int]]:
        """Partition and offset of each record that `read` prints."""
        rows = self.rows("read", self.root, "events", *arguments)
        return [(row["partition"], row["offset"]) for row in rows]

    def refused(self, match: str, *arguments: object) -> None:
        with pytest.raises(UsageError, match=match):
            self.tell(*arguments)

    def objects(self) -> dict[str, int]:
        return {str(p): p.stat().st_mtime_ns for p in self.root.rglob("*") if p.is_file()}

    def intervals(self, partition: int = 1) -> set[int]:
        table = open_catalog(str(self.root))
        rows = table.rows.segments(table.snapshot(), "events")
        return {row.index_policy.interval for row in rows if row.partition == partition}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("flags")
    maker = LakeMaker(folder / "lake", partitions=2)
    maker.run({0: [Event(T + 10), Event(-1), Event(T + 5)]}, Shape("zstd"))
    many = [Event(T + n, b"k", b"x" * 50) for n in range(300)]
    maker.run({1: many}, Shape("zstd"), interval=(T, T + 300))
    maker.topic = "other"
    maker.run({0: [Event(T)]})
    for name, first in (("a", 0), ("b", 2)):
        lines = [json.dumps({"ts": T + n, "k": str(n)}) for n in (first, first + 1)]
        (folder / f"{name}.jsonl").write_text("\n".join(lines))
    write_settings(folder / "web.toml", folder / "new", folder / "a.jsonl", "web")
    return folder


@pytest.fixture
def it(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setattr("seglake.engine.SparkEngine", lambda *_: LocalEngine())
    monkeypatch.setattr("logging.basicConfig", lambda **_: None)
    shutil.copytree(made, tmp_path / "place")
    pipeline = tmp_path / "place" / "web.toml"
    pipeline.write_text(pipeline.read_text().replace(str(made), str(tmp_path / "place")))
    return Place(tmp_path / "place")


def test_the_table_has_every_option() -> None:
    """A job is a command of the program (see test_jobs.py), so its options are not here."""
    assert set(TABLE) == options_of_the_program()


@TABLE.shows("help --all")
def _help(it: Place) -> None:
    assert "warm" in it.tell("help", "--all")
    assert "warm" not in it.tell("help")


@TABLE.shows("--version")
def _program_version(it: Place) -> None:
    assert it.tell("--version").startswith("seglake ")


@TABLE.shows("demo --events", "demo --count")
def _demo(it: Place) -> None:
    it.tell("demo", it.folder / "demo", "--events", it.folder / "made", "--count", 1000)
    assert len(list((it.folder / "made").iterdir())) > 1
    (run,) = it.json("history", it.folder / "demo")
    assert run["records"] == 1000


@TABLE.shows(
    "replay --to", "replay --start", "replay --end", "replay --last", "replay --zone",
    "replay --speed", "replay --topic", "replay --name",
    "replay --kafka",
    "replay --kafka-file", "replay --version", "replay --json",
)  # fmt: skip
def _replay(it: Place) -> None:
    """What the options become; replays into a broker are in tests/kafka."""
    sent, file = list[Any](), it.folder / "client"
    file.write_text("# secrets\nsasl.password = x=y\n")

    def send(log: Any, start: Any, end: Any, target: Any, **how: Any) -> ReplayReport:
        sent.append((log.version, *target, how["name"], start, end, how["tempo"]._speed))
        return ReplayReport("n", log.topic, target[1], log.version, 1, 2, True, {0: 4}, {1: 5})

    replays: Any = SimpleNamespace(replay_window=send, Tempo=Tempo)
    targets: Any = SimpleNamespace(Target=lambda *given: given)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "seglake.replay.run", replays)  # which need confluent-kafka
        patch.setitem(sys.modules, "seglake.replay.target", targets)
        asked = ("replay", it.root, "events", "--to", "kafka:9")
        report = it.json(
            *asked, "--start", "2026-06-01T12:00", "--end", "2026-06-01T13:00", "--zone",
            "Europe/Berlin", "--speed", "2.5", "--topic", "new", "--name",
            "once", "--kafka", "client.rack=a", "--kafka-file", file, "--version", "1",
        )  # fmt: skip
        it.tell(*asked, "--last", "1h")
        it.refused("needs --start and --end", *asked, "--start", str(T))
        it.refused("--speed must be a finite number", *asked, "--last", "1h", "--speed", "0")
        it.refused("KEY=VALUE", *asked, "--last", "1h", "--kafka", "secret")
    first, second = sent
    assert first[:3] == (1, "kafka:9", "new")
    assert (first[3]["client.rack"], first[3]["sasl.password"]) == ("a", "x=y")
    window = "2026-06-01T10:00:00.000Z", "2026-06-01T11:00:00.000Z"
    assert first[4:] == ("once", *window, 2.5)
    assert second[2] == "events"
    assert to_epoch_ms(second[6]) - to_epoch_ms(second[5]) == 3_600_000
    assert (report["records"], report["created"]) == (5, True)


@TABLE.shows(
    "serve --listen",
    "serve --advertise",
    "serve --topics",
    "serve --list",
    "serve --conf-file",
    "serve --insecure",
)
def _serve(it: Place) -> None:
    """What the options become; servers of them run in tests/clients."""
    config, served = it.folder / "serve.toml", list[Settings]()
    config.write_text('[server]\nrefresh_ms = 70\nlisten = "127.0.0.1:1"\n')
    with pytest.MonkeyPatch.context() as patch:
        run = SimpleNamespace(serve_lake=lambda _root, settings, started: served.append(settings))
        patch.setattr(seglake.serve, "run", run, raising=False)  # which needs kafka-python
        it.tell(
            "serve", it.folder, "--conf-file", config, "--listen", "[::1]:7", "--advertise", "h:8",
            "--topics", "a,b", "--insecure", "--list", "a.v1", "--list", "a.q*",
        )  # fmt: skip
    (found,) = served
    server = found.server
    assert (server.refresh_ms, server.listen, server.advertise) == (70, ("::1", 7), ("h", 8))
    assert (server.topics, server.insecure) == (("a", "b"), True)
    assert server.listed == ("a.v1", "a.q*")


@TABLE.shows("jobs --json")
def _jobs(it: Place) -> None:
    found = {row["job"]: Path(row["file"]) for row in it.json("jobs")}
    assert found.keys() == {job.stem for job in JOBS.glob("*.py")}
    assert all("main = " in file.read_text() for file in found.values())
    assert Path(it.tell("jobs", "ingest").rstrip()) == found["ingest"]
    it.refused("unknown job 'digest'. The jobs are ingest", "jobs", "digest")


@TABLE.shows(
    "ingest --master", "redrive --master"
)  # fmt: skip
def _master(it: Place) -> None:
    masters = []

    def engine(spark: None, master: str | None) -> LocalEngine:
        masters.append(master)
        return LocalEngine()

    conf = "--conf-file", it.folder / "web.toml", "--run-id", "1", "--master", "spark://far:7077"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("seglake.engine.SparkEngine", engine)
        it.tell("ingest", *conf)
        it.tell("ingest", *conf, "--replace")
        it.tell("redrive", it.folder / "new", "web", *conf)
    assert masters == ["spark://far:7077"] * 3


@TABLE.shows("ingest --local", "redrive --local")
def _local(it: Place) -> None:
    conf = "--conf-file", it.folder / "web.toml", "--run-id", "threads", "--local"
    with patch("seglake.engine.SparkEngine", None):
        it.tell("ingest", *conf, "--source", it.folder / "a.jsonl")
        it.tell("ingest", *conf, "--replace")
        it.tell("redrive", it.folder / "new", "web", *conf)
    for command in ("ingest", "redrive"):
        it.refused("--local contradicts --master", command, *conf, "--master", "local[2]")


@TABLE.shows("--install-completion", "--show-completion")
def _completion(it: Place) -> None:
    program = f"{sys.executable} -m seglake"
    home = {**os.environ, "HOME": str(it.folder)}
    for option in ("--show-completion", "--install-completion"):
        command = ["bash", "-c", f"{program} {option}; exit $?"]
        done = subprocess.run(command, env=home, capture_output=True, text=True, check=True)
        assert ("COMP_WORDS" in done.stdout) == (option == "--show-completion")
    assert "seglake" in (it.folder / ".bashrc").read_text()


@TABLE.shows(
    "init --output", "init -o", "init --root", "init --topic", "init --force", "init --json"
)
def _init(it: Place) -> None:
    file = it.folder / "drafted.toml"
    how = "--output", file, "--root", it.folder / "other", "--topic", "drafted"
    made = it.json("init", it.folder / "a.jsonl", *how)
    assert (made["file"], made["topic"]) == (str(file), "drafted")
    assert load(file).root.endswith("other")
    it.refused("already exists", "init", it.folder / "a.jsonl", *how)
    assert "Wrote " in it.tell("init", it.folder / "a.jsonl", "-o", file, "--force")
    assert load(file).root == "./lake"


@TABLE.shows("check --conf-file", "check --sample", "check --source", "check --json")
def _check(it: Place) -> None:
    found = it.json("check", "--conf-file", it.folder / "web.toml", "--sample", 1)
    (row,) = found["rows"]
    assert row["path"] == str(it.folder / "a.jsonl")
    told = it.tell(
        "check", "--conf-file", it.folder / "web.toml", "--source", it.folder / "*.jsonl"
    )
    assert "4 records in 4 rows" in told


@TABLE.shows(*(f"{command} --dry-run" for command in {case.arguments[0] for case in DRY.values()}))
def _dry_run(it: Place) -> None:
    """What it says is what the command does, and it writes nothing: see test_every_command.py."""
    before = it.objects()
    assert it.json("undo", it.root, "events", "--run-id", "run 1", "--dry-run")["dry_run"]
    assert it.objects() == before


@TABLE.shows(
    *(f"import --{name}" for name in ("root", "topic", "name", "json")),
    *(f"export --{name}" for name in ("start", "end", "zone", "topic-id", "version", "json")),
)
def _exchange(it: Place) -> None:
    export, folders = ("export", it.root, "events"), it.folder / "folders"
    told = it.json(*export, folders / "old", "--version", 1, "--topic-id", TOPIC_ID)
    assert told["partitions"][0]["end_offset"] == 3
    assert TOPIC_ID in (folders / "old" / "events-0" / "partition.metadata").read_text()
    day = "--start", "2023-11-14", "--end", "2023-11-15", "--zone", "UTC"
    assert "events-1" in it.tell(*export, folders / "day", *day)
    it.refused("is not empty", *export, folders / "day")
    take = "import", folders / "day", "--root", it.folder / "taken"
    (told,) = it.json(*take, "--topic", "events", "--name", "theirs")
    assert told["topic"] == "theirs"
    it.tell(*take)
    assert it.json("topics", it.folder / "taken")[0]["records"] == 302
    assert it.json(*take)[0]["records"] == 0


@TABLE.shows(*(f"attach --{name}" for name in ("root", "topic", "name", "json")))
def _attach(it: Place) -> None:
    it.tell("export", it.root, "events", it.folder / "folders")
    tier(it.folder / "folders" / "events-0", it.folder / "bucket")
    take = "attach", it.folder / "bucket", "--root", it.folder / "taken"
    (told,) = it.json(*take, "--topic", "events", "--name", "theirs")
    assert told["topic"] == "theirs"
    it.refused("has local logs of a broker", *take[:1], it.folder / "folders", *take[2:])
    (manifest, *_) = tier(it.folder / "folders" / "events-0", it.folder / "bucket", topic="bad")
    sound = manifest.read_text()
    manifest.write_text("{")
    it.tell(*take, "--topic", "events", "--topic", "bad")
    assert (it.code, "bad" in it.errors) == (1, True)
    it.tell(*take, "--topic", "events")
    assert it.code == 0
    (log, *_) = sorted((it.folder / "bucket").rglob("events-*/0/*.log"))
    log.unlink()
    manifest.write_text(sound)
    it.tell(*take, "--topic", "bad")
    it.tell(*take)
    assert (it.code, str(log) in it.errors) == (1, True)


@TABLE.shows("topics --version", "topics --json")
def _topics(it: Place) -> None:
    sizes = [
        {row["topic"]: row["records"] for row in it.json("topics", it.root, "--version", version)}
        for version in (1, 2, 3)
    ]
    assert sizes == [{"events": 3}, {"events": 303}, {"events": 303, "other": 1}]
    assert len(it.json("topics", it.root)) == 2


@TABLE.shows("segments --partition", "segments --version", "segments --json")
def _segments(it: Place) -> None:
    def partitions(*options: object) -> list[int]:
        return [row["partition"] for row in it.json("segments", it.root, "events", *options)]

    assert partitions() == [0, 1]
    assert partitions("--partition", 1) == [1]
    assert partitions("--version", 1) == [0]


@TABLE.shows("offsets --time", "offsets --partition", "offsets --version", "offsets --json")
def _offsets(it: Place) -> None:
    def offsets(*options: object) -> list[int | None]:
        return [row["offset"] for row in it.json("offsets", it.root, "events", *options)]

    assert offsets("--time", "latest") == [3, 300]
    assert offsets("--time", "earliest") == [0, 0]
    assert offsets("--time", "max-timestamp") == [0, 299]
    assert offsets("--time", T + 6) == [0, 6]
    assert offsets("--time", "latest", "--partition", 1) == [300]
    assert offsets("--time", "latest", "--version", 1) == [3, 0]


@TABLE.shows("history --topic", "history --failed", "history --json")
def _history(it: Place) -> None:
    assert len(it.json("history", it.root)) == 3
    assert len(it.json("history", it.root, "--topic", "other")) == 1
    assert it.json("history", it.root, "--failed") == []


@TABLE.shows(*(f"append --{name}" for name in ("time", "key", "zone", "run-id", "json")))
def _append(it: Place) -> None:
    file = it.folder / "naive.jsonl"
    file.write_text('{"at": "2026-06-01 12:00:00", "day": "2026-06-01T00:00Z", "k": "a"}\n')
    given = ("append", it.folder / "appended", "web", file, "--time", "at", "--key", "k")
    it.refused("--zone", *given)
    how = (*given, "--zone", "Europe/Berlin", "--run-id", "1", "--json")
    assert it.json(*how)["min_timestamp"] == 1_780_308_000_000
    assert it.json(*how)["status"] == "already done"


@TABLE.shows(*(f"redrive --{name}" for name in ("run-id", "conf-file", "json")))
def _redrive(it: Place) -> None:
    lines = [json.dumps({"when" if n == 2 else "ts": T + n}) for n in range(9)]
    (it.folder / "late.jsonl").write_text("\n".join(lines))
    conf, lake = it.folder / "web.toml", it.folder / "new"
    it.tell("ingest", "--conf-file", conf, "--run-id", "bad", "--source", it.folder / "late.jsonl")
    conf.write_text(conf.read_text().replace('field = "ts"', 'field = "when"'))
    given = "--run-id", "bad", "--conf-file", conf
    assert it.json("redrive", lake, "web", *given)["records"] == 1


@TABLE.shows("run-status --run-id", "run-status --pipeline", "run-status --json")
def _run_status(it: Place) -> None:
    (run,) = it.json("history", it.root, "--topic", "other")
    status = "run-status", it.root, "other", "--run-id"
    assert (it.json(*status, run["run_id"])["status"], it.code) == ("committed", 0)
    assert (it.json(*status, "no run")["status"], it.code) == ("not there", 1)
    found = it.json(*status, run["run_id"], "--pipeline", "nobody")
    assert (found["status"], it.code) == ("not there", 1)


@TABLE.shows("quarantine --run-id", "quarantine --limit", "quarantine --json")
def _quarantine(it: Place) -> None:
    (it.folder / "bad.jsonl").write_text("{\n[\n" + (it.folder / "a.jsonl").read_text())
    ingest = "ingest", "--conf-file", it.folder / "web.toml"
    it.tell(*ingest, "--run-id", "good")
    conf = it.folder / "web.toml"
    conf.write_text(f"[pipeline]\nmax_quarantine_ratio = 0.9\n{conf.read_text()[11:]}")
    it.tell(*ingest, "--run-id", "bad", "--source", it.folder / "bad.jsonl")
    quarantine = "quarantine", it.folder / "new", "web"
    assert [row["raw"] for row in it.json(*quarantine)] == ["{", "["]
    assert len(it.json(*quarantine, "--limit", 1)) == 1
    assert len(it.json(*quarantine, "--run-id", "bad")) == 2
    assert it.json(*quarantine, "--run-id", "good") == []


@TABLE.shows("read --partition", "read --offset", "read --max-records", "read --version")
def _read(it: Place) -> None:
    assert it.lines("--partition", 0) == [(0, 0), (0, 1), (0, 2)]
    assert it.lines("--partition", 0, "--offset", 1) == [(0, 1), (0, 2)]
    assert it.lines("--partition", 0, "--offset", 3) == it.lines("--max-records", 0) == []
    assert it.lines("--partition", 0, "--offset", 1, "--max-records", 1) == [(0, 1)]
    assert len(it.lines()) == 303
    assert len(it.lines("--version", 1)) == 3


@TABLE.shows("read --tail", "read --follow")
def _read_last(it: Place) -> None:
    assert it.lines("--tail", 2) == [(1, 298), (1, 299)]
    read = "read", it.root, "events"
    it.refused("--tail contradicts", *read, "--tail", 1, "--start", T)
    it.refused("leave out --format", *read, "--follow", "--format", "table")
    it.refused("eave out --start, --version", *read, "--follow", "--version", 1, "--start", T)
    interrupted = SimpleNamespace(sleep=Mock(side_effect=KeyboardInterrupt))
    with patch("seglake.read.log.time", interrupted):  # Py4J's threads sleep as ever
        assert it.lines("--tail", 1, "--partition", 0, "--follow") == [(0, 2)]


@TABLE.shows("read --start", "read --end", "read --order")
def _read_window(it: Place) -> None:
    assert it.lines("--start", T + 299) == [(1, 299)]
    assert it.lines("--end", T + 1) == [(1, 0)]
    window = "--start", T + 5, "--end", T + 6
    assert it.lines(*window, "--order", "offset") == [(0, 2), (1, 5)]
    assert it.lines("--partition", 0, "--start", T, "--order", "time") == [(0, 2), (0, 0)]


@TABLE.shows("read --times", "find --times", "dump --times")
def _times(it: Place) -> None:
    read, find = ("read", it.root, "events", "--tail", 3), _found(it)
    log = max(it.root.glob("topics/events-1/*/*.log"))
    for command in (read, find, ("dump", log, "--deep")):
        plain, iso = (
            [row["timestamp"] for row in it.rows(*command, *how)]
            for how in ((), ("--times", "iso"))
        )
        assert iso == [None if ms == -1 else format_ms(ms) for ms in plain] != []
    assert format_ms(T + 299) in it.tell(*read, "--times", "iso", "--format", "csv")
    assert it.tell(*read, "--times", "ms") == it.tell(*read)
    it.refused("--times is for jsonl and csv", *find, "--times", "iso", "--format", "arrow")
    it.refused("--times needs --deep", "dump", log, "--times", "iso")
    with patch("seglake.read.log.time", SimpleNamespace(sleep=Mock(side_effect=KeyboardInterrupt))):
        assert format_ms(T + 299) in it.tell(*read, "--times", "iso", "--follow")


@TABLE.shows("read --last", "read --zone", "offsets --zone")
def _read_times(it: Place) -> None:
    assert it.lines("--last", "1h") == []
    day = ["--start", "2023-11-14T22:13:20", "--end", "2023-11-15", "--partition", 1]
    assert it.lines(*day, "--zone", "UTC") == it.lines("--partition", 1)
    at = it.json("offsets", it.root, "events", "--time", "2023-11-14", "--zone", "Asia/Tokyo")
    assert [row["offset"] for row in at] == [0, 0]


@TABLE.shows("report --output", "report -o", "report --json")
def _report(it: Place) -> None:
    found = it.json("report", it.root)
    assert [topic["topic"] for topic in found["topics"]] == ["events", "other"]
    it.tell("report", it.root, "other", "--output", it.folder / "report.html")
    assert "other" in (it.folder / "report.html").read_text()


@TABLE.shows("metrics --output", "metrics -o", "metrics --push")
def _metrics(it: Place) -> None:
    told, file = it.tell("metrics", it.root, "events"), it.folder / "seglake.prom"
    assert 'seglake_records{topic="events"} 303.0' in told
    it.tell("metrics", it.root, "events", "--output", file)
    assert 'seglake_records{topic="events"} 303.0' in file.read_text()
    it.refused("Keep one", "metrics", it.root, "--output", file, "--push", "http://127.0.0.1:9")


def test_all_records_by_time_include_those_without_one(it: Place) -> None:
    assert it.lines("--partition", 0, "--order", "time") == [(0, 1), (0, 2), (0, 0)]
    everything = it.lines("--order", "time")
    assert everything[0] == (0, 1)
    assert sorted(everything) == it.lines()
    assert it.lines("--order", "time", "--max-records", 2) == [(0, 1), (1, 0)]


@TABLE.shows("read --format", "read --output", "read --json")
def _read_form(it: Place) -> None:
    read, file = ("read", it.root, "events"), it.folder / "out"
    it.tell(*read, "--format", "parquet", "--output", file)
    assert pq.read_table(file).num_rows == 303
    it.tell(*read, "--format", "arrow", "--output", file)
    assert pa.ipc.open_file(file.read_bytes()).read_all().num_rows == 303
    assert "offset" in it.tell(*read, "--format", "table").splitlines()[1]
    assert it.tell(*read, "--json") == it.tell(*read) == it.tell(*read, "--format", "jsonl")
    assert len(it.tell(*read, "--format", "csv").splitlines()) == 304
    for form in ("csv", "table", "arrow", "parquet"):
        it.refused(f"contradicts --format {form}", *read, "--json", "--format", form)
    it.refused("--output needs another format", *read, "--format", "table", "--output", file)


@TABLE.shows("read --explain")
def _explain(it: Place) -> None:
    read = "read", it.root, "events", "--explain"
    assert it.json(*read)[-1]["records_at_most"] == 303
    given = {"format": "jsonl", "order": "time", "max-records": 1, "output": it.folder / "out"}
    for name, value in given.items():
        it.refused(f"eave out --{name}", *read, f"--{name}", value)


def _found(it: Place) -> tuple[object, ...]:
    """The command that finds key "k": its records are at T, T + 10, …, T + 40 in partition 0."""
    maker = LakeMaker(it.root, topic="found", partitions=2)
    for run in (0, 30):
        maker.run({0: [Event(T + run + n, b"kj"[n % 10 > 0 :][:1]) for n in range(30 - run // 3)]})
    return "find", it.root, "found", "--key", "k"


def _with_fields(it: Place) -> str:
    """A topic whose values have a number and a text, and headers."""
    maker = LakeMaker(it.root, topic="fields", partitions=1)
    value, headers = b'{"n": %d, "u": {"name": "%s"}}', ((), (("h", b"x"),))
    maker.run(
        {0: [Event(T + n, b"k", value % (n, b"ab"[n % 2 :][:1]), headers[n % 2]) for n in range(6)]}
    )
    return "fields"


@TABLE.shows("read --fields", "find --fields")
def _fields(it: Place) -> None:
    topic, window = _with_fields(it), ("--start", T + 1, "--end", T + 4)
    asked = ("--fields", "n:int8,u.name")
    row = {"partition": 0, "offset": 1, "timestamp": T + 1, "n": 1, "u.name": "b"}
    for command in (
        ("read", it.root, topic, *window),
        ("find", it.root, topic, "--key", "k", *window),
    ):
        lines = it.tell(*command, *asked).splitlines()
        assert json.loads(lines[0]) == row
        assert len(lines) == 3
        table = it.tell(*command, *asked, "--format", "csv")
        assert table.splitlines()[:2] == [
            ",".join(f'"{name}"' for name in row),
            f'0,1,{T + 1},1,"b"',
        ]
        assert "u.name" in it.tell(*command, *asked, "--format", "table")
    it.refused("unknown type 'year'", "read", it.root, topic, "--fields", "n:year")
    it.refused("eave out --fields", "read", it.root, topic, "--fields", "n", "--explain")


@TABLE.shows("find --where", "find --header")
def _where(it: Place) -> None:
    find = "find", it.root, _with_fields(it)
    for condition in ("--where", "u.name=b"), ("--header", "h=x"):
        assert it.offsets(*find, *condition) == [1, 3, 5]
    assert it.offsets(*find, "--where", "n=1", "--where", "n=2", "--where", "u.name=a") == [2]
    it.refused("'n' is not of the form NAME=VALUE", *find, "--where", "n")
    it.refused("--key, --keys-from, --where or --header", *find)


@TABLE.shows("find --key", "find --keys-from", "find --newest", "find --partition")
def _find(it: Place) -> None:
    find, file = _found(it), it.folder / "keys"
    file.write_text("k\n")
    for command in find, (*find[:3], "--keys-from", file):
        assert it.offsets(*command) == [0, 10, 20, 30, 40]
    assert it.offsets(*find, "--key", "j") == [*range(50)]
    assert it.offsets(*find, "--partition", 0, "--newest", 2) == [30, 40]
    assert it.offsets(*find, "--partition", 1) == []
    it.refused("a search needs --key", *find[:3])


@TABLE.shows("find --start", "find --end", "find --last", "find --zone", "find --version")
def _find_window(it: Place) -> None:
    find = _found(it)

    def count(*arguments: object) -> int:
        return len(it.tell(*find, *arguments).splitlines())

    assert count() == 5
    assert (count("--start", T + 30), count("--end", T + 30), count("--last", "1s")) == (2, 3, 0)
    assert count("--start", "2023-11-14", "--zone", "Europe/Berlin") == 5
    assert count("--start", "2023-11-16", "--zone", "Europe/Berlin") == 0
    assert count("--version", seglake.open(str(it.root)).version - 1) == 3


@TABLE.shows("find --format", "find --output", "find --json", "find --explain")
def _find_form(it: Place) -> None:
    find, file = _found(it), it.folder / "out"
    it.tell(*find, "--format", "parquet", "--output", file)
    assert pq.read_table(file).num_rows == 5
    assert it.tell(*find, "--json") == it.tell(*find) == it.tell(*find, "--format", "jsonl")
    assert "k" in it.tell(*find, "--format", "table")
    total = it.json(*find, "--explain")[-1]
    assert (total["by_index"], total["scanned"], total["partition"]) == (0, 2, None)
    it.refused("eave out --newest", *find, "--explain", "--newest", 1)
    it.refused("--output needs another format", *find, "--format", "table", "--output", file)


@TABLE.shows("dump --deep", "dump --json")
def _dump(it: Place) -> None:
    file = max(it.root.glob("topics/events-1/*/*.log"))
    plain = it.tell("dump", file)
    batches = it.rows("dump", file, "--json")
    assert len(plain.splitlines()) == len(batches) > 1
    assert len(it.tell("dump", file, "--deep").splitlines()) == 300
    it.refused("valid for .log files", "dump", file.with_suffix(".index"), "--deep")


@TABLE.shows(
    "ingest --conf-file", "ingest --run-id", "ingest --source", "ingest --root",
    "ingest --interval-start", "ingest --interval-end", "ingest --json",
)  # fmt: skip
def _ingest(it: Place) -> None:
    conf = "--conf-file", it.folder / "web.toml"
    report = it.json("ingest", *conf)
    assert (report["status"], report["records"], report["pipeline"]) == ("committed", 2, "web")
    more = "--run-id", "r", "--source", it.folder / "b.jsonl", "--root", it.folder / "third"
    times = "--interval-start", T, "--interval-end", T + 100
    assert it.json("ingest", *conf, *more, *times)["status"] == "committed"
    assert it.json("ingest", *conf, *more, *times)["status"] == "already done"
    lake = seglake.open(str(it.folder / "third"))
    assert lake.topic("web").closed(T, T + 100, 0)
    values: list[Any] = lake.topic("web").read_range(0, 2**62).read_all()["value"].to_pylist()
    assert [json.loads(value)["ts"] for value in values] == [T + 2, T + 3]
    half = "--interval-start", T
    it.refused("has no start or no end", "ingest", "--conf-file", it.folder / "web.toml", *half)


@TABLE.shows("ingest --replace-with-nothing")
def _replace_with_nothing(it: Place) -> None:
    conf = "--conf-file", it.folder / "web.toml", "--run-id", "2"
    assert it.json("ingest", *conf, "--source", it.folder / "b.jsonl")["records"] == 2
    (it.folder / "b.jsonl").write_text("")
    asked = *conf, "--source", it.folder / "b.jsonl", "--replace", "--replace-with-nothing"
    report = it.json("ingest", *asked)
    assert (report["records"], report["replaced_records"]) == (0, 2)
    conf = "--conf-file", it.folder / "web.toml", "--run-id", "2"
    it.refused("needs --replace or --replace-int", "ingest", *conf, "--replace-with-nothing")


@TABLE.shows("ingest --replace", "ingest --replace-interval", "ingest --on-changed-source")
def _replace(it: Place) -> None:
    conf = "--conf-file", it.folder / "web.toml"
    for run_id, name in (("1", "a"), ("2", "b")):
        span = "--interval-start", T + int(run_id), "--interval-end", T + int(run_id) + 1
        source = "--source", it.folder / f"{name}.jsonl"
        assert it.json("ingest", *conf, "--run-id", run_id, *source, *span)["records"] == 2
    (it.folder / "a.jsonl").write_text(json.dumps({"ts": T, "k": "corrected"}))
    named = *conf, "--run-id", "1", "--interval-start", T + 1, "--interval-end", T + 2
    for error, value in ((ChangedFiles, "fail"), (ConfigError, "ignore")):
        with pytest.raises(error):
            it.tell("ingest", *named, "--on-changed-source", value)
    kept = it.json("ingest", *named, "--on-changed-source", "skip")
    assert (kept["status"], len(kept["changed_files"])) == ("already done", 1)
    report = it.json("ingest", *named, "--replace")
    assert (report["records"], report["replaced_runs"]) == (1, ["1"])
    day = "--interval-start", T, "--interval-end", T + 9
    report = it.json("ingest", *conf, "--run-id", "day", "--replace-interval", *day)
    assert (report["records"], sorted(report["replaced_runs"])) == (1, ["1", "2"])
    conf = "--conf-file", it.folder / "web.toml"
    it.refused("needs the --run-id", "ingest", *conf, "--replace")
    it.refused(
        "there is no interval to replace", "ingest", *conf, "--replace-interval", "--run-id", "1"
    )


@TABLE.shows("merge --partition", "merge --all", "merge --rebatch", "merge --json")
def _merge(it: Place) -> None:
    maker = LakeMaker(it.root, partitions=2)
    for partition in (0, 0, 1):
        maker.run({partition: [Event(T), Event(T + 1)]}, Shape("zstd"))
    merge = "merge", it.root, "events"
    assert it.json(*merge)["segments"] == 0  # so few can wait
    assert "2 segments became 1" in it.tell(*merge, "--all", "--partition", 1)
    maker.run({0: [Event(T)]}, Shape("zstd"))
    merged = it.json(*merge, "--all", "--rebatch")
    assert (merged["segments"], merged["new_segments"]) == (4, 1)
    batch = it.json("dump", next(it.root.glob(f"topics/*-0/{merged['attempt_id']}/*.log")))
    assert batch["last_offset"] == 7  # the only one


@TABLE.shows("undo --run-id", "undo --pipeline", "undo --force", "undo --json")
def _undo(it: Place) -> None:
    undo = "undo", it.root, "events", "--run-id", "run 1"
    assert "Would undo run 1: 300 records in 1 segment," in it.tell(*undo, "--dry-run")
    it.refused("has no run 'run 1'", *undo, "--pipeline", "another")
    table = open_catalog(str(it.root))
    base = table.snapshot()
    cleaned = PartitionRow(
        topic="events", partition=1, sequence=1, log_start_offset=0, next_offset=300,
        cleaned_offset=300,
    )  # fmt: skip
    commit_rows(table, [cleaned], base=base)
    it.refused("compaction has cleaned", *undo)
    assert it.json(*undo, "--pipeline", "test", "--force")["records"] == 300
    assert it.lines() == [(0, 0), (0, 1), (0, 2)]


@TABLE.shows("describe --json", "alter --delete", "alter --json")
def _settings(it: Place) -> None:
    def held() -> dict[str, Any]:
        told = it.json("describe", it.root, "events")
        return {each["key"]: each["value"] for each in told["settings"] if each["is_set"]}

    alter = "alter", it.root, "events"
    given = "retention.ms=604800000", "cleanup.policy=compact,delete"
    assert it.json(*alter, *given)["changes"]["retention.ms"] == [-1, 604_800_000]
    wanted = {"partitions": 2, "cleanup.policy": "compact,delete", "retention.ms": 604_800_000}
    assert held() == wanted
    it.tell(*alter, "--delete", "retention.ms", "--delete", "cleanup.policy")
    assert held() == {"partitions": 2}
    it.refused("Write retention.ms=VALUE", *alter, "retention.ms")
    it.refused("Write KEY=VALUE", *alter, "retention")
    it.refused("--delete index.fields", *alter, "index.fields=")
    it.refused("set twice", *alter, "retention.ms=1", "retention.ms=2")
    with pytest.raises(ConfigError, match=r"index\.keys"):
        it.tell(*alter, "index.keys=yes")
    assert "seglake reindex" not in it.tell(*alter, "retention.ms=7d")
    assert f"`seglake reindex {it.root} events`" in it.tell(*alter, "index.keys=true")


@TABLE.shows("retain --json")
def _retain(it: Place) -> None:
    assert "seglake alter" in it.tell("retain", it.root, "events")  # no limit is set
    assert it.json("retain", it.root, "events")[0]["moved"] == []
    it.tell("alter", it.root, "events", "retention.bytes=1000000")
    nothing = it.tell("retain", it.root)
    it.tell("alter", it.root, "events", "--delete", "retention.bytes", "retention.ms=1000")
    assert [each["topic"] for each in it.json("retain", it.root)] == ["events", "other"]
    assert it.lines() == []
    assert it.tell("retain", it.root) == nothing


@TABLE.shows(
    "delete-records --partition", "delete-records --before-offset", "delete-records --before-time",
    "delete-records --json",
)  # fmt: skip
def _delete_records(it: Place) -> None:
    delete = "delete-records", it.root, "events"
    zero = "--partition", 0, "--before-offset", 2
    assert it.json(*delete, *zero)["moved"][0]["after"] == 2
    assert it.lines("--partition", 0) == [(0, 2)]
    it.tell(*delete, "--before-time", T + 290, "--partition", 1, "--partition", 0)
    assert it.lines() == [(1, n) for n in range(290, 300)]
    it.tell(*delete, "--before-time", T + 295)
    assert len(it.lines()) == 5
    it.tell(*delete, "--partition", 1, "--before-offset", -1)
    assert it.lines() == []
    it.refused("needs exactly one --partition", *delete, "--before-offset", 5)
    both = "--partition", 0, "--before-offset", 5, "--before-time", T
    it.refused("contradicts", *delete, *both)
    it.refused("needs --before-offset or --before-time", *delete)
    it.refused("offset 301 is not in the log", *delete, "--partition", 1, "--before-offset", 301)


@TABLE.shows("maintain --grace-hours", "maintain --json")
def _maintain(it: Place) -> None:
    for name in ("events", "other"):
        it.tell("alter", it.root, name, "retention.ms=1000")
    failed = new_attempt()
    (it.root / "attempts" / failed).mkdir()
    (it.root / "attempts" / failed / "manifest.json").write_text("{}")
    parts = it.json("maintain", it.root)["parts"]
    retained = [each["topic"] for each in parts if each["operation"] == "retain"]
    assert retained == ["events", "other"]
    assert any(failed in key for key in parts[-1]["report"]["young"])
    assert it.json("maintain", it.root, "--grace-hours", 0)["parts"][-1]["report"]["young"] == []
    assert it.lines() == []


def _flip(file: Path, at: int) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    file.write_bytes(data)


@TABLE.shows("verify --topic", "verify --deep", "verify --json")
def _verify(it: Place) -> None:
    table = open_catalog(str(it.root))
    base = table.snapshot()
    row = table.rows.segments(base, "events")[0]
    changed = dataclasses.replace(row, max_lateness_ms=99)
    commit_rows(table, [changed], base=base, replaced=[(row.partition, row.base_offset)])
    assert (it.json("verify", it.root)["segments"], it.code) == (3, 0)
    assert (it.json("verify", it.root, "--topic", "other")["segments"], it.code) == (1, 0)
    assert it.json("verify", it.root, "--deep")["findings"]
    assert it.code == 1
    _flip(it.root / row.key("log"), 70)
    assert (len(it.json("verify", it.root, "--topic", "other")["findings"]), it.code) == (0, 0)
    assert (len(it.json("verify", it.root, "--topic", "events")["findings"]), it.code) == (1, 1)


@TABLE.shows(
    *(f"publish --{name}" for name in ("fields", "value", "key-as", "timestamp-ms", "strict")),
    *(f"publish --{name}" for name in ("replace", "forget", "memory-mib", "json")),
)
def _publish(it: Place) -> None:
    LakeMaker(it.root, partitions=2).run({0: [Event(T, b"k", b'{"n": 1, "s": "x"}')]})
    publish = "publish", it.root, "events"
    columns = "--fields", "n:int32,other=s", "--value", "--key-as", "string", "--timestamp-ms"
    it.refused("cannot hold the value", *publish, *columns, "--strict")
    done = it.json(*publish, *columns, "--memory-mib", 1)
    assert (done["rows"], done["misfits"]) == (304, {"n": 303, "other": 303})
    (row,) = pq.read_table(it.root / "tables/events", filters=[("n", "=", 1)]).to_pylist()
    assert (row["key"], row["other"], row["timestamp_ms"]) == ("k", "x", T)
    assert "Nothing was changed" in it.tell(*publish)
    assert it.json(*publish, "--replace")["removed"] == done["added"]
    assert "Stopped publishing" in it.tell(*publish, "--forget")
    it.refused("lists no table", *publish, "--forget")


@TABLE.shows("tag --version", "tag --until", "tag --delete", "tag --json")
def _tags(it: Place) -> None:
    tag = "tag", it.root
    made = it.json(*tag, "q3", "--version", 2, "--until", "2099-06-01")
    assert (made["name"], made["tagged"], made["until_ms"]) == ("q3", 2, 4_083_955_200_000)
    assert "already names version" in it.tell(*tag, "q3")
    it.tell("delete-records", it.root, "events", "--partition", 1, "--before-offset", -1)
    assert it.lines() == [(0, 0), (0, 1), (0, 2)]
    assert len(it.lines("--version", "q3")) == 303
    (held,) = it.json("tag", it.root)
    assert (held["name"], held["version"], held["held_segments"]) == ("q3", 2, 1)
    assert it.json("describe", it.root, "events")["tags"] == [held]
    for command in (("describe", it.root, "events"), ("vacuum", it.root)):
        assert "q3" in it.tell(*command)
    it.tell(*tag, "q3", "--delete")
    assert it.json("tag", it.root) == []
    it.refused("need the NAME", *tag, "--delete")
    it.refused("there is no tag 'q3'", "read", it.root, "events", "--version", "q3")


@TABLE.shows("vacuum --grace-hours", "vacuum --json")
def _vacuum(it: Place) -> None:
    def orphan() -> Path:
        file = it.root / f"topics/events-0/{new_attempt()}/{7:020}.log"
        file.parent.mkdir()
        file.write_bytes(b"x")
        return file

    vacuum, now = ("vacuum", it.root), ("--grace-hours", 0)
    left = orphan()
    key = str(left.relative_to(it.root))
    assert it.json(*vacuum)["young"] == [key]
    assert "Would delete" in it.tell(*vacuum, *now, "--dry-run")
    assert it.json(*vacuum, *now)["dry_run"] is False
    assert not left.exists()


@TABLE.shows("repair --json")
def _repair(it: Place) -> None:
    repair = "repair", it.root
    assert it.json(*repair) == []
    damaged = max(it.root.glob("topics/events-1/*/*.zonemap"))
    _flip(damaged, 40)
    (done,) = it.json(*repair)
    assert (done["topic"], done["segments"], it.code) == ("events", 1, 0)
    assert done["files"] == [str(damaged.relative_to(it.root))]
    assert it.json("verify", it.root)["findings"] == []


@TABLE.shows("repair --catalog", "repair --force", "repair --trust")
def _repair_catalog(it: Place) -> None:
    repair = "repair", it.root, "--catalog"
    before = it.objects()
    assert it.json(*repair)[0]["status"] == "already done"
    assert it.objects() == before
    (attempt,) = {path.parts[-2] for path in it.root.glob("topics/other-0/*/*")}
    (it.root / success_key(attempt)).unlink()
    shutil.rmtree(it.root / "catalog" / "log")
    (planned,) = it.json(*repair, "--dry-run")
    assert planned["untrusted"] == [attempt]
    (planned,) = it.json(*repair, "--dry-run", "--trust", attempt)
    assert planned["untrusted"] == []
    it.tell(*repair, "--trust", attempt)
    it.tell(*repair, "--force")
    assert list(it.root.glob("catalog/log.backup-*"))
    for option in (("--force",), ("--trust", attempt)):
        it.refused(f"{option[0]} is only valid with --catalog", "repair", it.root, *option)


@TABLE.shows(
    *(f"erase --{name}" for name in ("key", "keys-from", "raw-containing", "vacuum")),
    "erase --grace-hours", "erase --json", "erase --wait",
)  # fmt: skip
def _erase(it: Place) -> None:
    erase, now = ("erase", it.root, "events"), ("--grace-hours", 0)
    maker = LakeMaker(it.root)
    for keys in ([b"k1", b"k2", b"left"], [b"k1", b"\xff"]):
        maker.run({0: [Event(T + 7, key) for key in keys]})
    it.refused("an erasure needs a key", *erase)
    maker.store.put(f"attempts/{new_attempt()}/blobs/{new_attempt()}", b"x")
    it.refused("may still run", *erase, "--key", "k1")
    assert it.json(*erase, "--key", "k1", "--key", "k2", *now)["records"] == 3
    (it.folder / "keys").write_text("base64:/w==\n")
    done = it.json(*erase, "--keys-from", it.folder / "keys", "--vacuum", *now)
    assert (done["records"], sum(key.endswith(".log") for key in done["deleted"])) == (1, 2)
    assert it.json(*erase, "--raw-containing", "nobody", *now)["records"] == 0
    maker.store.put(f"attempts/{new_attempt()}/blobs/{new_attempt()}", b"x")
    it.refused("erase with --wait", *erase, "--key", "nobody")
    ended = partial(maker.store.delete, [each.key for each in maker.store.list("attempts")
                                         if "/blobs/" in each.key])  # fmt: skip
    with patch.object(time, "sleep", lambda _seconds: ended()):
        assert it.json(*erase, "--key", "nobody", "--wait")["records"] == 0
    assert [offset for p, offset in it.lines("--partition", 0)] == [0, 1, 2, 5]


@TABLE.shows("compact --force", "compact --json")
def _compact(it: Place) -> None:
    compact = "compact", it.root, "keyed"
    maker = LakeMaker(it.root, "keyed", settings={"cleanup.policy": "compact"})
    maker.run({0: [Event(T, b"a"), Event(T, b"b"), Event(T, b"a")]})
    for cleaned in (True, False):
        assert [each["cleaned"] for each in it.json(*compact)["partitions"]] == [cleaned]
    (again,) = it.json(*compact, "--force")["partitions"]
    assert (again["cleaned"], again["records"], again["superseded"]) == (True, 2, 0)


@TABLE.shows(
    "reindex --index-interval-bytes", "reindex --partition", "reindex --json",
)  # fmt: skip
def _reindex(it: Place) -> None:
    reindex = "reindex", it.root, "events"
    assert it.json(*reindex, "--index-interval-bytes", 7)["segments"] == 2
    it.tell(*reindex)
    assert it.intervals() == {7}
    it.tell(*reindex, "--partition", 0, "--index-interval-bytes", 9)
    assert (it.intervals(0), it.intervals(1)) == ({9}, {7})


@pytest.mark.parametrize(
    "check", rest_but_today(dict.fromkeys(TABLE.values())), ids=lambda check: check.__name__
)
def test_every_option_acts_or_is_refused(check: Callable[[Place], None], it: Place) -> None:
    check(it)
