"""What holds for all commands that change a lake: a dry run is true, and they can be run again."""

import json
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

import seglake
from seglake.cli.app import app
from seglake.engine import LocalEngine
from seglake.layout import new_attempt
from seglake.maintain.topic_settings import alter
from tests.harness.flags import options_of_the_program
from tests.harness.tiers import rest_but_today
from tests.makers.raw_events import Line, T, write_file, write_settings
from tests.makers.tiered_bucket import tier

RUNS = ("1", "2", "3")
GRACE = ("--grace-hours", "0")


def _conf(folder: Path, name: str, field: str, paths: Path) -> None:
    topic = {
        "partitions": 2, "cleanup.policy": "compact,delete", "compression.type": "none",
        "batch.size": 200,
    }  # fmt: skip
    pipeline = {"name": "web", "max_quarantine_ratio": 0.9}
    write_settings(
        folder / name, folder / "lake", paths, pipeline=pipeline, timestamp={"field": field},
        key={"fields": ["k"]}, topic=topic,
    )  # fmt: skip


def _invoke(*arguments: object) -> Any:
    with _in_this_process():
        return CliRunner().invoke(app, [str(each) for each in arguments])


@contextmanager
def _in_this_process() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("seglake.engine.SparkEngine", lambda *_: LocalEngine())
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake of three runs, the first with rejects that other settings can read; and its copies."""
    folder = tmp_path_factory.mktemp("made")
    later = Line(0, broken=json.dumps({"time": T, "k": "k1", "p": 0}))
    for number, run_id in enumerate(RUNS):
        keys = [Line(T + 10 * n, f"k{n % 5}") for n in range(20 + number)]
        write_file(folder / "in" / run_id / "a.jsonl", [*keys, *[later] * (2 * (number == 0))])
        _conf(folder, "web.toml", "ts", folder / "in" / run_id)
        done = _invoke("ingest", "--conf-file", folder / "web.toml", "--run-id", run_id)
        assert done.exit_code == 0, done.output
    _conf(folder, "corrected.toml", "time", folder / "in" / "1")
    assert _invoke("export", folder / "lake", "events", folder / "broker").exit_code == 0
    tier(folder / "broker" / "events-0", folder / "bucket")
    return folder


@pytest.fixture
def place(made: Path, tmp_path: Path) -> Path:
    """A copy of it, whose pipelines are of the copy. The input stays where it was ingested."""
    shutil.copytree(made, tmp_path / "place")
    for name in ("web.toml", "corrected.toml"):
        text = (made / name).read_text()
        text = text.replace(f"{made}/lake", f"{tmp_path}/place/lake")
        (tmp_path / "place" / name).write_text(text)
    return tmp_path / "place"


def _unchanged(_place: Path) -> None:
    """The lake as it was made."""


def _old_and_small(place: Path) -> None:
    alter(str(place / "lake"), "events", {"retention.bytes": 3000, "retention.ms": 2**60})


def _orphans(place: Path) -> None:
    """What an attempt that died left."""
    log = f"topics/events-0/{new_attempt()}/{0:020}.log"
    for name in (f"attempts/{new_attempt()}/blobs/1", log):
        (place / "lake" / name).parent.mkdir(parents=True)
        (place / "lake" / name).write_bytes(b"x" * 77)


def _lost_index(place: Path) -> None:
    next((place / "lake" / "topics").rglob("*.timeindex")).unlink()


def _lost_catalog(place: Path) -> None:
    shutil.rmtree(place / "lake" / "catalog" / "log")


def _corrected(place: Path) -> None:
    """The third run reads another file than before."""
    write_file(place / "3" / "b.jsonl", [Line(T + n, "k0") for n in range(7)])
    _conf(place, "web.toml", "ts", place / "3")


class Case(NamedTuple):
    """A command on a lake: "{}" in an argument is its folder."""

    arguments: tuple[str, ...]
    prepare: Callable[[Path], None] = _unchanged

    def run(self, place: Path, *more: str) -> Any:
        return _invoke(*(each.format(place) for each in self.arguments), *more)


LAKE, CONF = "{}/lake", ("--conf-file", "{}/web.toml")
DRY = {
    "undo": Case(("undo", LAKE, "events", "--run-id", "1")),
    "merge": Case(("merge", LAKE, "events", "--all")),
    "merge batches": Case(("merge", LAKE, "events", "--all", "--rebatch")),
    "merge nothing": Case(("merge", LAKE, "events")),
    "alter": Case(("alter", LAKE, "events", "retention.bytes=3000")),
    "retain": Case(("retain", LAKE), _old_and_small),
    "delete-records": Case(
        ("delete-records", LAKE, "events", "--partition", "0", "--before-offset", "12")
    ),
    "delete-records by time": Case(
        ("delete-records", LAKE, "events", "--before-time", str(T + 100))
    ),
    "compact": Case(("compact", LAKE, "events", "--force")),
    "compact what is due": Case(("compact", LAKE, "events")),
    "erase": Case(("erase", LAKE, "events", "--key", "k1", *GRACE)),
    "erase with vacuum": Case(("erase", LAKE, "events", "--key", "k1", "--vacuum", *GRACE)),
    "redrive": Case(
        ("redrive", LAKE, "events", "--run-id", "1", "--conf-file", "{}/corrected.toml")
    ),
    "publish": Case(("publish", LAKE, "events", "--value")),
    "maintain": Case(("maintain", LAKE, *GRACE), _orphans),
    "vacuum": Case(("vacuum", LAKE, *GRACE), _orphans),
    "repair": Case(("repair", LAKE), _lost_index),
    "repair nothing": Case(("repair", LAKE)),
    "repair --catalog": Case(("repair", LAKE, "--catalog"), _lost_catalog),
    "import": Case(("import", "{}/broker", "--root", "{}/new")),
    "attach": Case(("attach", "{}/bucket", "--root", "{}/new")),
}
OTHERS = {
    "ingest": Case(("ingest", *CONF, "--run-id", "new"), _corrected),
    "ingest --replace": Case(("ingest", *CONF, "--run-id", "3", "--replace"), _corrected),
    "reindex": Case(("reindex", LAKE, "events", "--index-interval-bytes", "300")),
}
CASES = DRY | OTHERS


@pytest.mark.parametrize("name", rest_but_today(CASES))
def test_a_command_that_is_done_is_done_again(name: str, place: Path) -> None:
    """As after a kill, when nobody knows how far it came: it exits 0, and the lake stays."""
    CASES[name].prepare(place)
    assert CASES[name].run(place).exit_code == 0
    root = str(place / ("new" if name in {"import", "attach"} else "lake"))
    records = [len(log.read_range(0, 2 * T).read_all()) for log in _logs(root)]
    again = CASES[name].run(place, "--json")
    assert (again.exit_code, again.exception) == (0, None), again.output
    assert json.loads(again.stdout) is not None
    assert [len(log.read_range(0, 2 * T).read_all()) for log in _logs(root)] == records


UNKNOWN = {  # what a dry run cannot know: when, under which id and version, and for how long
    "attempt_id", "version", "started_at_ms", "now_ms", "seconds", "backup",
    "dry_run", "status",  # these two say what it was
}  # fmt: skip
UNWRITTEN = {  # a redrive's dry run reads and sorts, and writes no segment
    "redrive": {
        "segments", "output_bytes", "index_bytes", "min_timestamp", "max_timestamp", "end_offsets",
    },
    "publish": {"rows", "lake_version", "data_change"},  # no segment is decoded
}  # fmt: skip


@pytest.mark.parametrize("name", rest_but_today(DRY))
def test_a_dry_run_tells_what_the_deed_does(name: str, place: Path) -> None:
    """The same keys, the same figures; and nothing is written."""
    DRY[name].prepare(place)
    before = _tree(place)
    told = DRY[name].run(place, "--dry-run", "--json")
    assert (told.exit_code, told.exception) == (0, None), told.output
    assert _tree(place) == before
    done = DRY[name].run(place, "--json")
    assert done.exit_code == told.exit_code
    unknown = UNKNOWN | UNWRITTEN.get(name, set())
    assert _known(json.loads(told.stdout), unknown) == _known(json.loads(done.stdout), unknown)


def _tree(place: Path) -> dict[str, tuple[int, int]]:
    files = (path for path in place.rglob("*") if path.is_file())
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in files}


def _known(told: Any, unknown: Collection[str]) -> Any:
    """A report with the keys alone of what a dry run cannot know."""
    if isinstance(told, list):
        return [_known(each, unknown) for each in told]
    if isinstance(told, dict):
        return {
            name: None if name in unknown else _known(value, unknown)
            for name, value in told.items()
        }
    return told


def _logs(root: str) -> list[Any]:
    lake = seglake.open(root)
    return [lake.topic(name) for name in lake.topics()]


def test_every_command_that_changes_a_lake_is_here() -> None:
    dry = {option.split()[0] for option in options_of_the_program() if option.endswith("--dry-run")}
    assert {case.arguments[0] for case in DRY.values()} == dry
