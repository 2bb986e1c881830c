"""Eight processes write to one topic of a lake on S3 at the same time."""

from pathlib import Path

import pytest

from seglake.maintain.health.verify import verify
from tests.harness.processes import race
from tests.harness.tiers import rest_but
from tests.s3.test_flow import upload


@pytest.mark.parametrize("clock", rest_but(["CreateTime", "LogAppendTime"]))
def test_eight_writers_at_once_all_succeed(place: str, tmp_path: Path, clock: str) -> None:
    lake = f"{place}/lake"
    race(lake, tmp_path, clock, made_before=True, given=lambda path: upload(path, f"{place}/in"))
    assert verify(lake, deep=True).findings == []
