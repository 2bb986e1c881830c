"""The wheel in an environment of its own, outside the checkout, without Spark.

`make test-wheel` gives the tests an environment that pip made, in SEGLAKE_WHEEL_PYTHON.
"""

import ctypes
import json
import os
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.harness import installed
from tests.makers.lakes import Event, LakeMaker, T
from tests.makers.raw_events import write_settings

PROJECT = Path(__file__).parents[2]
DAC_OVERRIDE, CAPBSET_DROP = 1, 24

READ = """
import sys, duckdb, polars, seglake
log = seglake.open(sys.argv[1]).topic("events")
assert log.offsets_for_times({0: 1_700_000_000_050})[0].offset == 50
events = log.read_range(1_700_000_000_010, 1_700_000_000_020)
assert duckdb.sql("SELECT count(*), min(\\"offset\\") FROM events").fetchall() == [(10, 10)]
frame = polars.from_arrow(log.read_range(1_700_000_000_010, 1_700_000_000_020).read_all())
assert frame["offset"].to_list() == list(range(10, 20))
print(seglake.__version__, seglake.__file__, "pyspark" in sys.modules, "pandas" in sys.modules)
"""


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed.build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if made := os.environ.get("SEGLAKE_WHEEL_PYTHON"):
        return Path(made)
    place = tmp_path_factory.mktemp("environment") / "env"
    return installed.install(wheel, place, "duckdb", "polars")


@pytest.fixture(scope="session")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    maker = LakeMaker(tmp_path_factory.mktemp("packaging") / "lake")
    maker.run({0: [Event(T + i, b"k", b"v") for i in range(100)]})
    return maker.root


def called(python: Path, *arguments: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
    """What a program of the environment answers, outside the checkout."""
    command = [python, *arguments]
    if arguments[0] == "seglake":
        command = [python.parent / "seglake", *arguments[1:]]
    environment = installed.lonely() | {"PYTHONDONTWRITEBYTECODE": "1"} | more
    return subprocess.run(
        command, env=environment, cwd="/", capture_output=True, text=True, check=False
    )


def test_the_wheel_has_everything_and_nothing_else(wheel: Path) -> None:
    names = ZipFile(wheel).namelist()
    for wanted in ("py.typed", "log4j2.properties", "jobs/ingest.py", "extras.py"):
        assert f"seglake/{wanted}" in names
    assert "pyspark_seglake.py" in names
    assert {name.split("/")[0].split("-")[0] for name in names} == {"seglake", "pyspark_seglake.py"}
    (information,) = (name for name in names if name.endswith("METADATA"))
    said = ZipFile(wheel).read(information).decode()
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    assert f"\nVersion: {project['version']}\n" in said
    assert "\nLicense-Expression: Apache-2.0\n" in said
    assert any(name.endswith("licenses/LICENSE") for name in names)


@pytest.mark.rest
@pytest.mark.long
def test_it_reads_without_spark_and_pandas(python: Path, lake: Path) -> None:
    done = called(python, "-c", READ, lake)
    assert done.returncode == 0, done.stderr
    version, file, *imported = done.stdout.split()[-4:]  # DuckDB draws a bar
    assert version == tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["version"]
    assert Path(file).is_relative_to(python.parents[1])
    assert imported == ["False", "False"]


@pytest.mark.rest
def test_the_program_reads(python: Path, lake: Path) -> None:
    done = called(python, "seglake", "offsets", lake, "events", "--time", str(T + 7), "--json")
    assert json.loads(done.stdout)[0]["offset"] == 7, done.stderr
    few = called(python, "seglake", "read", lake, "events", "--max-records", "2")
    assert [json.loads(line)["offset"] for line in few.stdout.splitlines()] == [0, 1]


@pytest.mark.rest
@pytest.mark.long
def test_it_ingests_without_spark(python: Path, tmp_path: Path) -> None:
    rows = [{"ts": T + n, "user": f"u{n}"} for n in range(5)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    file = write_settings(tmp_path / "web.toml", tmp_path / "lake", tmp_path / "in.jsonl", "web")
    done = called(python, "seglake", "ingest", "--conf-file", file, "--local", "--json")
    assert json.loads(done.stdout)["records"] == 5, done.stderr
    read = called(python, "seglake", "read", tmp_path / "lake", "web").stdout
    assert [json.loads(line)["timestamp"] for line in read.splitlines()] == [
        T + n for n in range(5)
    ]


@pytest.mark.rest
def test_the_files_of_the_jobs_are_there(python: Path) -> None:
    rows = json.loads(called(python, "seglake", "jobs", "--json").stdout)
    assert {row["job"] for row in rows} == {path.stem for path in (PROJECT / "jobs").glob("*.py")}
    file = Path(called(python, "seglake", "jobs", "ingest").stdout.strip())
    assert file.is_relative_to(python.parents[1])
    for how in ([str(file)], ["-m", "seglake.jobs.ingest"]):
        assert "--conf-file" in called(python, *how, "--help").stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["seglake", "demo", "{tmp}/lake", "--events", "{tmp}/events", "--count", "1000"],
        ["-m", "seglake.jobs.verify", "{lake}"],
        ["-c", "import seglake.datasource"],
        ["-c", "import seglake.session"],
    ],
)  # fmt: skip
@pytest.mark.rest
def test_a_missing_extra_is_one_sentence(
    python: Path, lake: Path, tmp_path: Path, arguments: list[str]
) -> None:
    done = called(python, *(each.format(lake=lake, tmp=tmp_path) for each in arguments))
    assert done.returncode in {1, 2}
    assert done.stderr.splitlines()[-1].endswith(
        "needs the package 'pyspark'. Install it: pip install 'seglake[spark]'"
    )
    assert ("Traceback" in done.stderr) == (arguments[0] == "-c")


@pytest.fixture
def locked(python: Path, lake: Path, tmp_path: Path) -> Iterator[dict[str, str]]:
    """Nobody may write to the package, to the temporary files, or home, which is nowhere."""
    (package,) = python.parents[1].glob("lib/python*/site-packages/seglake")
    folders = [path for path in (package, *package.rglob("*")) if path.is_dir()]
    for folder in (*folders, tmp_path):
        folder.chmod(0o555)
    yield {"HOME": "/proc/none", "TMPDIR": str(tmp_path), "XDG_CACHE_HOME": "/proc/none"}
    for folder in (*folders, tmp_path):
        folder.chmod(0o755)


def obey_permissions() -> None:
    """After the next exec, root has no right to pass them over."""
    if os.geteuid() == 0:
        assert ctypes.CDLL(None).prctl(CAPBSET_DROP, DAC_OVERRIDE, 0, 0, 0) == 0


@pytest.mark.rest
def test_it_reads_where_nothing_can_be_written(
    python: Path, lake: Path, locked: dict[str, str]
) -> None:
    done = subprocess.run(
        [python.parent / "seglake", "read", lake, "events", "--max-records", "3"],
        env=installed.lonely() | locked, cwd="/", capture_output=True, text=True, check=False,
        preexec_fn=obey_permissions,
    )  # fmt: skip
    assert len(done.stdout.splitlines()) == 3, done.stderr
    assert shutil.which("seglake", path=str(python.parent))
