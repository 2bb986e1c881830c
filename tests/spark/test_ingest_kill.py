"""An ingest on Spark of which the driver, the JVM or a Python worker is killed."""

from pathlib import Path

from tests.chaos.kill import Campaign, Submitted


def test_a_kill_of_a_run_on_spark(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path, 4, Submitted, spark=True)
    campaign.run(1)
    assert len(campaign.kills) == 1
