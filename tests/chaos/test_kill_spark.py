"""Ingests on Spark whose processes are killed, and whose tasks fail, dawdle and run twice."""

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.account import SPARK, Account
from tests.chaos.clustered import DRIVER, EXECUTOR, JVM, SETTINGS, WORKER, OnSpark, Submitted
from tests.chaos.kill import Ingests
from tests.chaos.scenarios import SHAPES, Scenario
from tests.chaos.verbs import OTHER, RUN
from tests.harness.cluster import standalone_cluster
from tests.harness.s3_server import BUCKET, NoServerError, binary, environment, s3_server

pytestmark = [pytest.mark.spark, pytest.mark.rest]


@pytest.mark.long
def test_a_kill_of_a_run_on_spark(tmp_path: Path) -> None:
    account = Account.begun(4, "")
    settings = {**SETTINGS, "spark.master": "local[2,3]"}
    attack = OnSpark(settings, tmp_path / "notes", (DRIVER, JVM, WORKER))
    campaign = Ingests(account, SPARK, tmp_path, str(tmp_path / "lakes"), attack)
    campaign.round(0)
    attack.end()
    assert account.kills
    assert account.differences == []


def has_second_copy(note: Path) -> bool:
    """Whether Spark started a task again that is only slow."""
    return bool(list(note.parent.glob(note.name.replace("-0 dawdles", "-1 *"))))


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A bucket whose place and keys are in the environment."""
    try:
        binary()
    except NoServerError as reason:
        pytest.skip(f"no S3 server: {reason}")
    with s3_server(tmp_path) as server:
        for name, value in environment(server).items():
            monkeypatch.setenv(name, value)
        yield f"s3://{BUCKET}"


@pytest.mark.s3
@pytest.mark.long
def test_lost_executors_slow_and_failing_tasks_change_nothing(tmp_path: Path, bucket: str) -> None:
    """On machines that share nothing but the bucket."""
    shape = next(shape for shape in SHAPES if shape.other == "overtakes")
    scenario = Scenario(shape, tmp_path, bucket, random.Random(1))
    lake, notes = f"{bucket}/lake", tmp_path / "notes"
    notes.mkdir()
    scenario.begin(lake)
    scenario.arrange(RUN)
    with standalone_cluster(tmp_path) as master:
        settings = {**SETTINGS, "spark.master": master}
        job = scenario.job(lake, RUN)._replace(spark=settings, unruly=(1, 60, str(notes)))
        driver = Submitted(job, tmp_path / "trace")
        while not any(map(has_second_copy, notes.glob("* dawdles"))):
            assert driver.runs(), driver.log.read_text()
            time.sleep(0.05)
        assert driver.kill(EXECUTOR, random.Random(1))
        assert driver.ended() == 0, driver.log.read_text()
        driver.end()
    assert len(list(tmp_path.glob("worker-*/app-*/*"))) > 2  # executors
    assert len({note.name.split("-")[0] for note in notes.glob("* fails")}) > 1  # stages
    assert scenario.seen(lake) == {RUN, OTHER}
    scenario.assert_same_again(lake, RUN)
