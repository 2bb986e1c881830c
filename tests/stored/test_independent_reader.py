"""A lake of many kinds of runs, read by a program that shares no code with Seglake."""

import ast
import json
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.stored import runs
from tests.stored.answers import KINDS, digest, of_lake, plain
from tests.stored.fixed_ingest import filled
from tests.stored.independent_reader import Lake, Record

RUNS = [*runs.runs(), *runs.of_gzip()]
TOPICS = sorted({run.settings["topic"]["name"] for run in RUNS})
READER = Path(__file__).with_name("independent_reader.py")
OWN_LIBRARIES = {"cramjam", "lz4", "zstandard", "pyarrow"}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return filled(tmp_path_factory.mktemp("independent"), RUNS)


@pytest.fixture(scope="module")
def answers(root: Path) -> dict[str, Any]:
    """Seglake's own answers."""
    found: dict[str, Any] = json.loads(json.dumps(of_lake(root)))
    assert sorted(found["logs"]) == TOPICS
    return found


@pytest.fixture(scope="module")
def lake(root: Path) -> Lake:
    return Lake(root)


def row(partition: int, record: Record) -> list[Any]:
    """A record as the answers have it: partition, offset, times, content, headers."""
    headers = [{"key": key, "value": value} for key, value in record.headers]
    told: list[Any] = plain([partition, *record[:-1], headers])
    return told


def summed(rows: Iterable[list[Any]]) -> list[Any]:
    listed = list(rows)
    return [len(listed), digest(listed)]


def found(answer: tuple[int, int] | None) -> list[int] | None:
    return None if answer is None else list(answer)


def test_it_shares_no_code_with_the_project() -> None:
    tree = ast.parse(READER.read_text())
    imports = [
        name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names
    ]
    named = {alias.name.split(".")[0] for alias in imports}
    named |= {str(n.module).split(".")[0] for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    assert named - sys.stdlib_module_names == OWN_LIBRARIES
    assert "importlib" not in named


@pytest.mark.parametrize("topic", TOPICS)
def test_offsets_and_records(lake: Lake, answers: dict[str, Any], topic: str) -> None:
    wanted = answers["logs"][topic]
    for p in lake.partitions(topic):
        assert lake.bounds(topic, p) == (wanted["begin"][str(p)], wanted["end"][str(p)])
        rows = [[topic, *row(p, record)] for record in lake.read(topic, p, 0)]
        assert summed(rows) == wanted["records"][str(p)]
        assert found(lake.newest(topic, p)) == wanted["newest"][str(p)]
    assert [str(p) for p in lake.partitions(topic)] == list(wanted["end"])


@pytest.mark.parametrize("topic", TOPICS)
def test_lookups(lake: Lake, answers: dict[str, Any], topic: str) -> None:
    wanted = answers["logs"][topic]
    for p in map(str, lake.partitions(topic)):
        for time, expected in wanted["times"].items():
            assert found(lake.offset_for_time(topic, int(p), int(time))) == expected[p]
        for told in wanted["spelled"][p]:
            record = next(lake.read(topic, int(p), told[2]))
            assert [topic, int(p), *plain(record)] == told
        end = wanted["end"][p]
        for start, fetched in zip((0, end // 3, end), wanted["fetches"][p], strict=True):
            records = zip(lake.read(topic, int(p), start), range(7), strict=False)
            assert summed(row(int(p), record) for record, _ in records) == fetched


@pytest.mark.parametrize("topic", TOPICS)
def test_windows(lake: Lake, answers: dict[str, Any], topic: str) -> None:
    for name, (by_offset, by_time) in answers["logs"][topic]["windows"].items():
        rows = [row(*each) for each in lake.window(topic, *map(int, name.split("..")))]
        assert summed(rows) == by_offset
        assert summed(sorted(rows, key=lambda each: (each[2], each[0], each[1]))) == by_time


def test_the_zone_map_leaves_blocks_out(lake: Lake) -> None:
    for segment in lake.segments("web", 0):
        low, high = segment.row["min_timestamp"], segment.row["max_timestamp"]
        every, some = list(segment.blocks(low, high + 1)), list(segment.blocks(high, high + 1))
        assert every[0].position == 0
        assert every[-1].end == segment.row["log_bytes"]
        assert (min(b.low for b in every), max(b.high for b in every)) == (low, high)
        assert [block for block in every if block.high == high] == some


def test_older_versions(root: Path, answers: dict[str, Any]) -> None:
    for version, ends in answers["versions"].items():
        lake = Lake(root, int(version))
        topics = [row["topic"] for row in lake.of("topic")]
        assert ends == {
            topic: {str(p): lake.bounds(topic, p)[1] for p in lake.partitions(topic)}
            for topic in topics
        }


def columns(rows: Iterable[dict[str, Any]]) -> list[list[Any]]:
    """Rows as the answers have them: the topic, then the other columns but the kind."""
    values = [[r["topic"], *(r[name] for name in r if name not in ("kind", "topic"))] for r in rows]
    return sorted(plain(values), key=json.dumps)


@pytest.mark.parametrize("kind", [*KINDS, "quarantine"])
def test_rows(lake: Lake, answers: dict[str, Any], kind: str) -> None:
    rows = lake.quarantined() if kind == "quarantine" else lake.of(kind)
    assert columns(rows) == answers["catalog"][kind]


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_the_manifests(lake: Lake, answers: dict[str, Any], kind: str) -> None:
    """A manifest leaves out what is null."""
    names = [name for row in lake.of(kind)[:1] for name in row]
    told = [row for row in lake.rows_of_manifests() if row["kind"] == kind]
    rows = [{name: row.get(name) for name in names} for row in told]
    assert columns(rows) == answers["catalog"][kind]


def test_settings_of_a_topic(lake: Lake) -> None:
    newest = max(lake.of("topic", "arrived"), key=lambda each: each["sequence"])
    settings = json.loads(newest["settings"])
    assert (settings["compression.type"], settings["index.interval.bytes"]) == ("snappy", 700)


@pytest.mark.parametrize("pattern", ["topics/web-0/*/*.zonemap", "topics/web-0/*/*.log",
                                     "catalog/log/kind=segment/topic=web/*.parquet"])  # fmt: skip
def test_damage_is_seen(root: Path, tmp_path: Path, pattern: str) -> None:
    shutil.copytree(root, tmp_path / "lake")
    for file in (tmp_path / "lake").glob(pattern):
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
    with pytest.raises(ValueError, match="is damaged"):
        list(Lake(tmp_path / "lake").window("web", 0, 2**62))


def test_it_runs_by_itself(root: Path, answers: dict[str, Any]) -> None:
    window = ["1699999944000", "1699999944001"]
    command = [sys.executable, "-I", str(READER), str(root), "web", *window]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    count, _ = answers["logs"]["web"]["windows"]["..".join(window)][0]
    assert len(done.stdout.splitlines()) == count > 0
