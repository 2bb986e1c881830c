"""An ingest on a cluster whose machines die."""

from pathlib import Path

import pytest

from tests.harness.s3_server import NoServerError, binary
from tests.scale.cluster import Setup, played

pytestmark = [pytest.mark.rest, pytest.mark.s3, pytest.mark.spark]


@pytest.fixture(autouse=True)
def server() -> None:
    """Skips only where the S3 server is not cached and cannot be built."""
    try:
        binary()
    except NoServerError as reason:
        pytest.skip(f"no S3 server: {reason}")


@pytest.mark.rest
@pytest.mark.long
def test_a_run_ends_though_its_machines_die(tmp_path: Path) -> None:
    outcome = played(tmp_path, Setup(0.05, 8, after_s=1.0, file_bytes=5_000_000))
    assert outcome.report["records"] == outcome.events
    assert outcome.killed
    assert outcome.requests["PutObject, spool"] + outcome.requests["UploadPart, spool"] > 0
    assert {"driver", "task"} <= outcome.peak_mb.keys()
