"""What all tests share: markers by folder, Hypothesis profiles, the folder of real logs."""

import gc
import multiprocessing
import os
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import typer.testing
from hypothesis import HealthCheck, settings

pytest_plugins = [
    "tests.harness.left_out", "tests.harness.serve_fixtures", "tests.harness.shared_out",
    "tests.harness.tiers",
]  # fmt: skip
TESTS = Path(__file__).parent
# What the optimising compiler costs, a JVM that lives for seconds never earns back.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
# A kernel that changed is compiled at its first call: no process beside compiles all of them.
os.environ.setdefault("SEGLAKE_KERNELS", "wait")
MARKED_FOLDERS = {
    "spark": ("spark",), "kafka": ("kafka",), "s3": ("s3",), "chaos": ("slow",),
    "browser": ("browser",), "scheduled": ("airflow", "rest"), "clients": ("slow",),
    "simulation": ("slow",), "stored": ("slow",),
}  # fmt: skip

# `steady` tries the same examples each time; the second part of `make test-all` takes it.
# `quick`, which `make test` takes, tries a twentieth as many, new ones each day.
# `pytest --hypothesis-profile explore` looks for new ones; what it prints reproduces a failure.
settings.register_profile(
    "steady",
    derandomize=True,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "quick", settings.get_profile("steady"), derandomize=False, database=None, max_examples=5
)
settings.register_profile("explore", deadline=None, print_blob=True, max_examples=2_000)
settings.load_profile("steady")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test in some folders has markers without saying so."""
    for item in items:
        folder = item.path.relative_to(TESTS).parts[0]
        for marker in MARKED_FOLDERS.get(folder, ()):
            item.add_marker(marker)


def pytest_collection_finish() -> None:
    """What was imported stays, so garbage collections need not look through it again."""
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _no_wait_for_the_disk() -> Iterator[None]:
    """No test cuts the power: tests/simulation/power.py builds what that would leave."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _fd: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def _commands_are_made_once() -> Iterator[None]:
    """Typer would make all commands anew for each call of one: 30 ms."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.testing, "_get_command", cache(typer.main.get_command))
        yield


@pytest.fixture(scope="session", autouse=True)
def _own_temporary_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Processes that tests kill leave their temporary files where pytest deletes them."""
    folder = str(tmp_path_factory.mktemp("t"))
    of_spark = f"{os.environ['SPARK_SUBMIT_OPTS']} -Djava.io.tmpdir={folder}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", folder)
        # Else multiprocessing would delete a folder of its own there after pytest did.
        patch.setitem(vars(multiprocessing.current_process())["_config"], "tempdir", folder)
        patch.setenv("TMPDIR", folder)
        patch.setenv("SPARK_SUBMIT_OPTS", of_spark)
        yield


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Real logs to read: $SEGLAKE_DATA, or shared/data beside the project."""
    chosen = os.environ.get("SEGLAKE_DATA")
    folder = Path(chosen) if chosen else TESTS.parents[1] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no real logs in {folder}: set SEGLAKE_DATA to a folder of them")
    return folder
