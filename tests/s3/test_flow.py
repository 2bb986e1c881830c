"""The whole flow on a real S3 server: ingest, lookups, windows, races, Spark."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import seglake
from seglake.cli.app import app
from seglake.config import load
from seglake.errors import ConfigError, UsageError
from seglake.maintain.health.verify import verify
from seglake.read.lake import Lake
from seglake.store import open_store
from seglake.write.check import check_topic_settings
from tests.harness.counting import CountingStore
from tests.harness.s3_server import Server
from tests.harness.tiers import rest_but
from tests.makers.raw_events import (
    TINY,
    Line,
    T,
    assert_holds,
    ingest,
    pipeline_of,
    quarantined,
    read_back,
    read_lake,
    write_file,
    write_settings,
)
from tests.s3.proxy import Proxy

PROJECT = Path(__file__).parents[2]
KEYS = ["a", "b", "c", None]


def upload(path: Path, folder: str) -> str:
    """The URI of a copy of a local file."""
    open_store(folder).put(path.name, path.read_bytes())
    return f"{folder}/{path.name}"


def a_file(path: Path, count: int, start: int = T) -> Path:
    """Events a second apart, each tenth of them a minute late, each 17th line broken."""
    made = [
        Line(start + 1000 * n - 60_000 * (n % 10 == 9), KEYS[n % 4], broken=None if n % 17 else "{")
        for n in range(count)
    ]
    return write_file(path, made)


def window_of(log: Any, start: int, end: int) -> list[tuple[int, int]]:
    return [
        pair
        for batch in log.read_range(start, end, columns=["partition", "offset"])
        for pair in zip(*(column.to_pylist() for column in batch.columns), strict=True)
    ]


def assert_answers(root: str) -> None:
    """Lookups and windows of the lake against all its records."""
    log, records = seglake.open(root).topic("events"), read_lake(root)
    every = [record for each in records.values() for record in each]
    times = sorted({record.timestamp for record in every})
    for time in (0, times[0], times[7], times[len(times) // 2] + 1, times[-1], times[-1] + 1):
        found = log.offsets_for_times(dict.fromkeys(records, time))
        first = {
            p: next((r[1:3] for r in each if r.timestamp >= time), None)
            for p, each in records.items()
        }
        assert {p: answer and tuple(answer)[:2] for p, answer in found.items()} == first
    for start, end in ((times[3], times[-5]), (times[9], times[9] + 1), (0, times[-1] + 1)):
        wanted = [(r.partition, r.offset) for r in every if start <= r.timestamp < end]
        assert sorted(window_of(log, start, end)) == sorted(wanted)


@pytest.mark.parametrize("scheme", rest_but(["s3", "s3a"], "s3"))
def test_the_whole_flow(place: str, tmp_path: Path, scheme: str) -> None:
    place = place.replace("s3:", f"{scheme}:")
    first = [a_file(tmp_path / "a.jsonl", 200), a_file(tmp_path / "b.jsonl.gz", 100, T + 50_000)]
    for path in first:
        upload(path, f"{place}/in")
    settings = pipeline_of(f"{place}/lake", f"{place}/in/*.jsonl*", task=TINY)
    report = ingest(settings, "1")
    assert (report.input_rows, report.quarantined) == (300, 18)
    again = ingest(settings, "1")
    assert (again.status, again.attempt_id) == ("already done", report.attempt_id)
    lake = seglake.open(f"{place}/lake")
    held = lake.topic("events")

    late = a_file(tmp_path / "c.jsonl", 150, T - 100_000)
    upload(late, f"{place}/in")
    second = ingest(settings, "2")
    assert [Path(path).name for path in second.skipped_files] == ["a.jsonl", "b.jsonl.gz"]
    assert second.input_rows == 150
    assert sum(held.end_offsets().values()) == report.records
    assert sum(lake.refresh().topic("events").end_offsets().values()) == 282 + second.records

    assert_holds(read_lake(f"{place}/lake"), settings, [first, [late]])
    rejected = [(Path(r.path).name, r.number, r.raw) for r in quarantined(f"{place}/lake")]
    told = read_back([*first, late])[1]
    assert sorted(rejected) == sorted((Path(r.path).name, r.number, r.raw) for r in told)
    assert_answers(f"{place}/lake")
    checked = verify(f"{place}/lake", deep=True)
    assert (checked.findings, checked.orphans) == ([], [])
    assert checked.segments > 3


def test_input_and_lake_stand_where_the_options_say(
    running: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys come from the environment, the place from `[storage]`."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", running.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", running.secret_key)
    storage = {"endpoint": running.endpoint, "region": "us-east-1", "allow_http": "true"}
    path = a_file(tmp_path / "a.jsonl", 30)
    open_store("s3://seglake/options/in", storage).put("a.jsonl", path.read_bytes())
    settings = pipeline_of("s3://seglake/options", "s3://seglake/options/in", storage=storage)
    assert ingest(settings).records == 28
    log = seglake.open("s3://seglake/options", storage_options=storage).topic("events")
    assert sum(log.end_offsets().values()) == 28
    assert check_topic_settings(settings) == ""
    fewer = {"name": "events", "partitions": 2}
    with pytest.raises(ConfigError, match="has 3 partitions, which cannot be lowered to 2"):
        check_topic_settings(
            settings.model_copy(update={"topic": settings.topic.model_copy(update=fewer)})
        )


# ------------------------------------------------------------------ races


def test_put_if_absent_has_one_winner(place: str) -> None:
    for key in ("a", "b/c", "d"):
        start, won = threading.Barrier(8), list[int]()

        def race(number: int, key: str = key, start: Any = start, won: Any = won) -> None:
            store = open_store(place)
            start.wait()
            if store.put_if_absent(key, b"%d" % number * 1000):
                won.append(number)

        threads = [threading.Thread(target=race, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        assert bytes(open_store(place).read_all(key)) == b"%d" % won[0] * 1000


def test_a_draft_of_files_in_a_bucket_ingests_them(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = [Line(T + 1000 * n, KEYS[n % 4]) for n in range(100)]
    for name in ("a.jsonl", "b.jsonl.gz"):
        upload(write_file(tmp_path / name, made), f"{place}/in")
    init = ["init", f"{place}/in", "--root", f"{place}/lake", "--topic", "events"]
    told = CliRunner().invoke(app, init)
    assert told.exit_code == 0, told.output
    drafted = load("events.toml")
    assert (drafted.root, drafted.timestamp.field) == (f"{place}/lake", "ts")
    assert ingest(drafted).records == 200
    records = [each for log in read_lake(f"{place}/lake").values() for each in log]
    assert sorted(each.timestamp for each in records) == sorted(2 * [at for at, *_ in made])


# ------------------------------------------------------------------ costs


@pytest.mark.parametrize("count", [500, 12_000])
def test_a_cold_lookup_costs_three_requests(
    place: str, proxy: Proxy, tmp_path: Path, count: int
) -> None:
    """Of a zone map that is read whole, and of one of which fences and entries are."""
    made = [Line(T + 1000 * n, "k") for n in range(count)]
    topic = {"partitions": 1, "batch.size": 100, "index.interval.bytes": 0}
    ingest(pipeline_of(f"{place}/lake", write_file(tmp_path / "a.jsonl", made), topic=topic))
    options = {"endpoint": proxy.endpoint}
    large = count > 10_000
    for wanted in (0, count // 3, count - 1):
        store = CountingStore(open_store(f"{place}/lake", options))
        log = Lake(store).topic("events")
        store.counts.requests = store.counts.bytes_read = 0
        proxy.seen.clear()
        answer = log.offsets_for_times({0: T + 1000 * wanted})[0]
        assert answer is not None
        assert tuple(answer)[:2] == (wanted, T + 1000 * wanted)
        assert proxy.count("GET", r"\.zonemap") == 1 + large
        assert proxy.count("GET", r"\.log$") <= 1
        assert len(proxy.seen) <= 3
        assert store.counts.bytes_read <= 128 * 1024
        proxy.seen.clear()
        assert log.record_at(0, wanted).timestamp == T + 1000 * wanted
        assert proxy.count("GET", ".") == proxy.count("GET", r"\.log$") <= 1


# ------------------------------------------------------------------ processes of their own


@pytest.mark.rest
@pytest.mark.long
def test_spark_ingests_with_the_keys_of_the_environment(
    place: str, server: Server, tmp_path: Path
) -> None:
    paths = [a_file(tmp_path / f"{number}.jsonl", 300, T + number) for number in range(3)]
    for path in paths:
        upload(path, f"{place}/in")
    config = write_settings(
        tmp_path / "web.toml", f"{place}/lake", f"{place}/in",
        pipeline={"name": "web", "max_quarantine_ratio": 0.1}, key={"fields": ["k"]},
        topic={"partitions": 3},
    )  # fmt: skip
    job = [sys.executable, "jobs/ingest.py", "--conf-file", str(config), "--run-id", "1"]
    printed(job, server)
    settings = pipeline_of(f"{place}/lake", f"{place}/in")
    assert_holds(read_lake(f"{place}/lake"), settings, [paths])


def printed(command: list[str], server: Server) -> str:
    """Run a command that succeeds and prints no secret. Return its standard output."""
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=PROJECT,
        env={**os.environ, "PYTHONPATH": str(PROJECT / "src")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert server.secret_key not in done.stdout + done.stderr
    return done.stdout


READS = """
import json, sys
from seglake.datasource import register
from seglake.session import spark_session

root, start, end = sys.argv[1], *sys.argv[2:]
spark = spark_session("seglake on S3", master="local[2]", conf={"spark.ui.enabled": "false"})
register(spark)
options = {"subscribe": "events", "startingOffsets": "earliest"}
every = spark.read.format("seglake").options(**options, minPartitions="5").load(root)
times = {"subscribe": "events", "startTime": start, "endTime": end}
some = spark.read.format("seglake").options(**times).load(root)
stream = spark.readStream.format("seglake").options(**options).load(root)
query = stream.writeStream.format("memory").queryName("streamed").trigger(availableNow=True)
query.start().awaitTermination()
frames = every, some, spark.table("streamed")
rows = [frame.select("partition", "offset", "value").collect() for frame in frames]
print(json.dumps([[[row[0], row[1], bytes(row[2]).decode()] for row in each] for each in rows]))
"""


@pytest.mark.spark
@pytest.mark.rest
@pytest.mark.long
def test_spark_reads_the_format_with_the_keys_of_the_environment(
    place: str, server: Server, tmp_path: Path
) -> None:
    """A batch, a window of time and a stream."""
    ingest(pipeline_of(place, a_file(tmp_path / "a.jsonl", 300), task=TINY))
    root, start, end = place.replace("s3:", "s3a:"), T + 20_000, T + 90_000
    command = [sys.executable, "-c", READS, root, str(start), str(end)]
    answer = printed(command, server)
    records = [record for log in read_lake(place).values() for record in log]
    wanted = sorted([r.partition, r.offset, (r.value or b"").decode()] for r in records)
    inside = [(r.partition, r.offset) for r in records if start <= r.timestamp < end]
    every, some, streamed = (sorted(rows) for rows in json.loads(answer.splitlines()[-1]))
    assert every == streamed == wanted
    assert sorted((row[0], row[1]) for row in some) == sorted(inside)
    assert 0 < len(some) < len(every)


def test_a_lake_that_does_not_exist(place: str) -> None:
    with pytest.raises(UsageError, match="there is no lake"):
        seglake.open(place)
