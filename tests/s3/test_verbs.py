"""Every command that changes a lake, on S3: as on a local disk, whatever becomes of its requests.

The story is that of the kill campaign (`tests.chaos.upkeep`): each command has something to do.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest

from seglake.catalog import transaction
from seglake.errors import CommitConflict, StoreError
from seglake.maintain.health.verify import verify
from tests.chaos.account import UPKEEP_S3, Account
from tests.chaos.attempts import kill_forked
from tests.chaos.upkeep import CHANGING, STORY, Maintenance, arrange, begin
from tests.chaos.verbs import VERBS, Failed
from tests.harness.observed import Observed, copy_lake, observe
from tests.s3.proxy import Choice, Fault, Proxy, nth

COMMIT = r"catalog/log/_delta_log/\d{20}\.json$"
OFTEN, FAULTS = 29, (Fault.LOST, Fault.CUT, Fault.BUSY, Fault.RESET)
PEACE = nth(Fault.BUSY, 0)
WRITES = {  # requests that write, whatever the topic holds; the clock takes a put and a removal
    "alter": 6,  # fate, manifest, rows of two kinds, commit, mark
    "delete-records": 8,  # and rows of partitions, and of the segments that stay in two data files
    "retain": 10,
}
KILLED = ("merge", "compact", "erase", "redrive", "maintain", "vacuum", "rebuild")

Story = dict[str, Observed]


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A lake on a local disk, before the story."""
    folder = tmp_path_factory.mktemp("verbs")
    lake = str(folder / "begun")
    begin(lake, folder / "files", str(folder / "lakes"), seed=20)
    return lake


@pytest.fixture(scope="module")
def story(begun: str, tmp_path_factory: pytest.TempPathFactory) -> Story:
    """What the lake shows after each command on a local disk, where nothing goes wrong."""
    lake = str(tmp_path_factory.mktemp("told") / "lake")
    copy_lake(begun, lake)
    seen = {}
    for verb in STORY:
        arrange(lake, verb)
        VERBS[verb](lake)
        seen[verb] = observe(lake)
    return seen


@pytest.fixture
def lake(begun: str, place: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The same lake on S3."""
    monkeypatch.setattr(transaction, "PAUSE_S", 0.01)
    copy_lake(begun, place)
    return place


@pytest.fixture
def behind(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Choice, str], None]:
    """A function that does a command through the proxy."""

    def do(verb: str, choice: Choice, lake: str) -> None:
        proxy.seen.clear()
        proxy.choice = choice
        with monkeypatch.context() as through:
            through.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
            VERBS[verb](lake)

    return do


def test_each_does_what_it_does_on_a_local_disk(
    lake: str, story: Story, proxy: Proxy, behind: Callable[[str, Choice, str], None]
) -> None:
    """Records, rows of the catalog, and the files by their checksums; in few writes."""
    asked = {}
    for verb in STORY:
        arrange(lake, verb)
        behind(verb, PEACE, lake)
        asked[verb] = sum(each.method not in ("GET", "HEAD") for each in proxy.seen)
        assert observe(lake) == story[verb], f"{verb} left another lake"
        if verb in CHANGING:  # the checksums are those of the files that stand there
            assert verify(lake, deep=True).findings == []
    assert all(0 < asked[verb] <= most for verb, most in WRITES.items()), asked


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.RESET])
def test_each_commits_once_whatever_becomes_of_the_reply(
    lake: str, story: Story, proxy: Proxy, behind: Callable[[str, Choice, str], None], fault: Fault
) -> None:
    """A commit whose acknowledgement was lost is found in the catalog, and not made again."""
    for verb in STORY:
        arrange(lake, verb)
        refused = nullcontext() if verb != "rebuild" else suppress(StoreError)
        with refused:  # delta-rs makes the first commit of a table, and asks only once
            behind(verb, nth(fault, 1, "PUT", COMMIT), lake)
        assert proxy.faults() or verb == "vacuum", f"{verb} made no commit"
        if verb == "rebuild":
            behind(verb, PEACE, lake)
        assert observe(lake) == story[verb], f"{verb} left another lake"


def test_each_survives_a_server_that_is_bad_all_the_time(
    lake: str, story: Story, proxy: Proxy, behind: Callable[[str, Choice, str], None]
) -> None:
    """It does its work, or says that storage failed; then it does it when it is called again."""
    for verb in STORY:
        arrange(lake, verb)
        with suppress(StoreError, CommitConflict, Failed):
            behind(verb, unsteady(), lake)
        assert proxy.faults(), f"{verb} met no fault"
        behind(verb, PEACE, lake)
        assert observe(lake) == story[verb], f"{verb} left another lake"


def unsteady() -> Choice:
    """Befalls each 29th request; the faults take turns."""
    count = 0

    def choice(_method: str, _path: str) -> Fault | None:
        nonlocal count
        count += 1
        return None if count % OFTEN else FAULTS[count // OFTEN % len(FAULTS)]

    return choice


def test_some_are_killed(place: str, tmp_path: Path) -> None:
    """A short campaign; `make chaos` has a long one."""
    account = Account.begun(20, "the command")
    campaign = Maintenance(account, UPKEEP_S3, tmp_path, place, kill_forked, KILLED)
    campaign.round(0)
    assert account.differences == []
    assert {kill.shape for kill in account.kills} <= set(KILLED)
    assert len(account.kills) >= len(KILLED) - 1  # one may be over before it is hit
