"""A short campaign; `make chaos` runs a long one, and tests/chaos/README.md says what it found."""

from pathlib import Path

import pytest

from tests.chaos.account import LOCAL, UPKEEP, Account, killed_in
from tests.chaos.attempts import kill_forked
from tests.chaos.kill import Ingests
from tests.chaos.upkeep import STORY, Maintenance
from tests.harness.tiers import of_today, rest_but, seed_of_the_day

DOCUMENT = Path(__file__).with_name("README.md")


@pytest.fixture
def account() -> Account:
    return Account.begun(20, "the command")


@pytest.mark.parametrize("kills", rest_but([1, 20], 1))
@pytest.mark.long
def test_some_kills(tmp_path: Path, account: Account, kills: int) -> None:
    campaign = Ingests(account, LOCAL, tmp_path, str(tmp_path / "lakes"), kill_forked)
    campaign.run(kills, first=seed_of_the_day() if kills == 1 else 0)
    assert len(account.kills) >= kills
    assert account.differences == []
    assert len({kill.hit.what for kill in account.kills}) > kills // 5  # half come anywhere
    assert {kill.seen for kill in account.kills} <= {"old", "new"}
    assert kills < 20 or {kill.seen for kill in account.kills} == {"old", "new"}
    taken = {what for steps in campaign.steps.values() for _, what in steps.count}
    killed = {what for _, what in killed_in(DOCUMENT.read_text())}
    assert taken <= killed, "tests/chaos/README.md knows less than there is now: run `make chaos`"


(SHORT,) = of_today([("replace", "publish"), ("publish", "erase")], 2)


@pytest.mark.parametrize("told", rest_but([SHORT, STORY], SHORT))
@pytest.mark.long
def test_some_kills_of_maintenance(tmp_path: Path, account: Account, told: tuple[str, ...]) -> None:
    place, kills = str(tmp_path / "lakes"), 20 if told == STORY else 2
    maintenance = Maintenance(account, UPKEEP, tmp_path, place, kill_forked, told)
    maintenance.run(kills, first=seed_of_the_day() if told == SHORT else 0)
    assert account.differences == []
    missed = set(told) - {kill.shape for kill in account.kills}
    assert len(missed) < 4, f"not killed: {missed}"  # a step that a command came not to
    assert told != STORY or {kill.seen for kill in account.kills} == {"old", "new"}
    taken = {what for steps in maintenance.steps.values() for _, what in steps.count}
    killed = {what for _, what in killed_in(DOCUMENT.read_text(), UPKEEP)}
    assert taken <= killed, "tests/chaos/README.md knows less than there is now: run `make chaos`"
