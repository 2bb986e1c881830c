"""The short form of `make fuzz`: sound inputs, those that once crashed, and many in between."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.targets import FOUND
from tests.harness.tiers import rest_but

PROJECT = Path(__file__).parents[2]
STORED = (
    "logs",
    "records",
    "codecs",
    "indexes",
    "zone_maps",
    "blobs",
    "texts",
    "commits",
    "catalog_files",
    "broker_logs",
    "broker_notes",
)
INPUT = (
    "json_lines",
    "times",
    "line_files",
    "csv_files",
    "text_files",
    "event_files",
    "packed_files",
    "parquet_files",
)


def run(tmp_path: Path, *arguments: str) -> None:
    """A process of its own, which may not crash; if it does, the test says of what."""
    last = tmp_path / "last"
    last.write_bytes(b"")
    command = [sys.executable, "-m", "tests.fuzz.run", "--last", str(last), *arguments]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stderr}\nof the input {last.read_bytes()!r}"


@pytest.mark.slow
@pytest.mark.parametrize("inputs", rest_but(["100", "1000"], "100"))
def test_stored_bytes(tmp_path: Path, inputs: str) -> None:
    run(tmp_path, *STORED, "--inputs", inputs)


@pytest.mark.slow
@pytest.mark.parametrize("inputs", rest_but(["30", "300"], "30"))
@pytest.mark.long
def test_input_files(tmp_path: Path, inputs: str) -> None:
    run(tmp_path, *INPUT, "--inputs", inputs)


@pytest.mark.slow
@pytest.mark.rest
def test_kernels_can_be_interpreted(tmp_path: Path) -> None:
    """As `make fuzz` needs them, with a stand-in for every intrinsic."""
    run(tmp_path, *STORED, *INPUT, "--inputs", "2", "--mode", "interpreted")


def test_every_target_is_tried() -> None:
    from tests.fuzz import folders, inputs, stored  # noqa: PLC0415
    from tests.fuzz.targets import TARGETS  # noqa: PLC0415

    assert set(STORED + INPUT) == set(TARGETS)
    assert stored.__doc__
    assert folders.__doc__
    assert inputs.__doc__
    assert {folder.name for folder in FOUND.iterdir() if folder.is_dir()} <= set(TARGETS)


@pytest.mark.parametrize("crime", ["read", "memory", "time"])
def test_the_bounds_hold(crime: str) -> None:
    """What watches over the inputs is watched here."""
    program = {
        "read": "import ctypes; x = bounds.guarded(b'abc'); ctypes.string_at(x.ctypes.data, 4)",
        "memory": "bounds.limit_memory(2**28); bytearray(2**29)",
        "time": "bounds.limit_time(0.05)\nwhile True: pass",
    }[crime]
    command = [sys.executable, "-c", f"from tests.fuzz import bounds; {program}"]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, check=False)
    assert done.returncode == {"read": -11, "memory": 1, "time": -14}[crime]
