"""A short campaign; `make chaos` runs a long one, and docs/reliability.md says what it found."""

from pathlib import Path

import pytest

from tests.chaos.account import (
    BEGIN,
    END,
    LOCAL,
    SPARK,
    UPKEEP,
    Account,
    Difference,
    Kill,
    killed_in,
)
from tests.chaos.attempts import ANYTHING, Hit, kill_forked
from tests.chaos.clustered import DRIVER
from tests.chaos.kill import Campaign
from tests.chaos.upkeep import STORY, Maintenance
from tests.harness.tiers import rest_but

DOCUMENT = Path(__file__).parents[2] / "docs" / "reliability.md"


@pytest.fixture
def account() -> Account:
    return Account.begun(20, "the command")


@pytest.mark.parametrize("kills", rest_but([2, 20], 2))
@pytest.mark.long
def test_some_kills(tmp_path: Path, account: Account, kills: int) -> None:
    campaign = Campaign(account, LOCAL, tmp_path, str(tmp_path / "lakes"), kill_forked)
    campaign.run(kills)
    assert len(account.kills) >= kills
    assert account.differences == []
    assert len({kill.hit.what for kill in account.kills}) > kills // 5  # half come anywhere
    assert {kill.seen for kill in account.kills} <= {"old", "new"}
    assert kills < 20 or {kill.seen for kill in account.kills} == {"old", "new"}
    taken = {what for steps in campaign.steps.values() for _, what in steps.count}
    killed = {what for _, what in killed_in(DOCUMENT.read_text())}
    assert taken <= killed, "docs/reliability.md knows less than there is now: run `make chaos`"


@pytest.mark.parametrize(
    ("verbs", "kills"),
    [(("erase",), 1), pytest.param(STORY, 20, marks=pytest.mark.rest)],
    ids=["one", "all"],
)
@pytest.mark.long
def test_some_kills_of_maintenance(
    tmp_path: Path, account: Account, verbs: tuple[str, ...], kills: int
) -> None:
    place = str(tmp_path / "lakes")
    maintenance = Maintenance(account, UPKEEP, tmp_path, place, kill_forked, verbs)
    maintenance.run(kills)
    assert account.differences == []
    missed = set(verbs) - {kill.shape for kill in account.kills}
    assert len(missed) < 4, f"not killed: {missed}"  # a step that a command came not to
    assert verbs != STORY or {kill.seen for kill in account.kills} == {"old", "new"}
    taken = {what for steps in maintenance.steps.values() for _, what in steps.count}
    killed = {what for _, what in killed_in(DOCUMENT.read_text(), UPKEEP)}
    assert taken <= killed, "docs/reliability.md knows less than there is now: run `make chaos`"


def test_the_document_holds_what_the_last_campaign_found(tmp_path: Path, account: Account) -> None:
    before = Kill(LOCAL, "a story", Hit("the commit", "before", -9), "old")
    after = Kill(LOCAL, "a story", Hit("the commit", "after", -9), "new")
    anything = Kill(LOCAL, "another", Hit(ANYTHING, "during", -9), "old")
    on_spark = Kill(SPARK, "a story", Hit(DRIVER, "plan", 0), "new")
    account.kills.extend([before, after, before, anything, on_spark])
    account.differences.append(Difference(LOCAL, 7, "something is lost", after))
    document = tmp_path / "page.md"
    document.write_text(DOCUMENT.read_text())
    account.document(document)
    text = document.read_text()
    assert "seed 20: 5 kills, 1 differences." in text
    assert "| the commit | 2 | 0 | 1 | 2 | 1 | 1 |" in text
    assert "| anything | 0 | 1 | 0 | 1 | 0 | 0 |" in text
    assert "| the driver | 0 | 1 | 0 | 1 | 0 |" in text
    assert "| a story | 4 |" in text
    assert killed_in(text) == {
        ("before", "the commit"), ("after", "the commit"), ("during", ANYTHING),
    }  # fmt: skip
    account.document(document)
    assert document.read_text() == text
    for mark, part in ((BEGIN, 0), (END, 2)):
        assert text.partition(mark)[part] == DOCUMENT.read_text().partition(mark)[part]
