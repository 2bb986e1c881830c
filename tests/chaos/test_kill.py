"""A short campaign; `make chaos` runs a long one."""

from pathlib import Path

from tests.chaos.kill import ANY_MOMENT, Campaign, Forked, Kill, table


def test_thirty_kills(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path, 20, Forked)
    campaign.run(30)
    assert len(campaign.kills) == 30
    assert len({kill.where for kill in campaign.kills}) > 5


def test_the_table_has_a_line_for_each_step() -> None:
    kills = [Kill("a", "before commit", "old"), Kill("a", ANY_MOMENT, "new")] * 2
    assert table(kills).splitlines() == [
        "| killed | kills | readers saw the old version | the new one |",
        "|---|--:|--:|--:|",
        "| before commit | 2 | 2 | 0 |",
        "| at any moment | 2 | 0 | 2 |",
        "",
        "4 kills of runs: 4 a.",
    ]
