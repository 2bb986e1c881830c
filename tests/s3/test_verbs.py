"""Every command that changes a lake, on S3: as on a local disk, whatever becomes of its requests.

The story is that of the kill campaign (`tests.chaos.upkeep`): each command has something to do.
"""

from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest

from seglake.catalog import transaction
from seglake.errors import CommitConflict, StoreError
from seglake.maintain.health.verify import verify
from tests.chaos.upkeep import STORY, arrange, begin
from tests.chaos.verbs import VERBS, Failed
from tests.harness.observed import Observed, copy_lake, observe
from tests.harness.processes import race
from tests.harness.tiers import rest_but
from tests.s3.proxy import Choice, Fault, Proxy, nth
from tests.s3.test_flow import upload

COMMIT = r"_delta_log/\d{20}\.json$"
OFTEN, FAULTS = 41, (Fault.LOST, Fault.CUT, Fault.BUSY, Fault.RESET)
PEACE = nth(Fault.BUSY, 0)
WRITES = {  # requests that write, whatever the topic holds; the clock takes a put and a removal
    "alter": 6,  # fate, manifest, rows of two kinds, commit, mark
    "delete-records": 8,  # and rows of partitions, and of the segments that stay in two data files
    "retain": 10,
}

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


@pytest.mark.rest
@pytest.mark.long
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
    assert verify(lake, deep=True).findings == []  # checksums are those of the files
    assert all(0 < asked[verb] <= most for verb, most in WRITES.items()), asked


@pytest.mark.rest
@pytest.mark.long
def test_each_commits_once_whatever_becomes_of_the_reply(
    lake: str, story: Story, proxy: Proxy, behind: Callable[[str, Choice, str], None]
) -> None:
    """A commit whose acknowledgement was lost is found in the catalog, and not made again."""
    for verb in STORY:
        arrange(lake, verb)
        refused = nullcontext() if verb != "rebuild" else suppress(StoreError)
        with refused:  # delta-rs makes the first commit of a table, and asks only once
            behind(verb, reset_then_lost(), lake)
        fates = [each.fault for each in proxy.faults()]
        assert fates == [Fault.RESET, Fault.LOST] or verb in ("vacuum", "rebuild")
        if verb == "rebuild":
            behind(verb, PEACE, lake)
        assert observe(lake) == story[verb], f"{verb} left another lake"


def reset_then_lost() -> Choice:
    """Befalls the first two tries at a commit: the second one makes it."""
    reset, lost = (nth(fault, 1, "PUT", COMMIT) for fault in (Fault.RESET, Fault.LOST))

    def choice(method: str, path: str) -> Fault | None:
        return reset(method, path) or lost(method, path)

    return choice


@pytest.mark.parametrize("verbs", rest_but([STORY[:8], STORY]), ids=["eight", "all"])
@pytest.mark.long
def test_each_survives_a_server_that_is_bad_all_the_time(
    lake: str,
    story: Story,
    proxy: Proxy,
    behind: Callable[[str, Choice, str], None],
    verbs: tuple[str, ...],
) -> None:
    """It does its work, or says that storage failed; then it does it when it is called again."""
    for verb in verbs:
        arrange(lake, verb)
        with suppress(StoreError, CommitConflict, Failed):
            behind(verb, unsteady(), lake)
        assert proxy.faults(), f"{verb} met no fault"
        behind(verb, PEACE, lake)
        assert observe(lake) == story[verb], f"{verb} left another lake"


def unsteady() -> Choice:
    """Befalls one request of many; the faults take turns."""
    count = 0

    def choice(_method: str, _path: str) -> Fault | None:
        nonlocal count
        count += 1
        return None if count % OFTEN else FAULTS[count // OFTEN % len(FAULTS)]

    return choice


# Eight processes write to one topic of a lake on S3 at the same time.


@pytest.mark.parametrize("clock", rest_but(["CreateTime", "LogAppendTime"]))
def test_eight_writers_at_once_all_succeed(place: str, tmp_path: Path, clock: str) -> None:
    lake = f"{place}/lake"
    race(lake, tmp_path, clock, made_before=True, given=lambda path: upload(path, f"{place}/in"))
    assert verify(lake, deep=True).findings == []
