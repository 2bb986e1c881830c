"""A short search for states that a loss of power may leave and that break a lake; see `power`."""

import datetime as dt
import os
import random
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from seglake.store import open_store
from tests.harness.tiers import rest_but_today
from tests.simulation.power import Cut, Search, judge
from tests.simulation.power_disk import MODELS, Disk, Event, Recorder, is_unread
from tests.simulation.power_story import Recorded

STATES = 4  # of the short search
TRIES = 40  # at a state that a store leaves which does not sync


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> Search:
    """A search with the seed of the day."""
    seed = dt.datetime.now(dt.UTC).date().toordinal()
    print(f"python -m tests.simulation.power --seed {seed}")
    return Search(tmp_path_factory.mktemp("power"), seed)


@pytest.fixture
def begun(mine: Search) -> dict[str, Recorded]:
    return {each.name: each for each in mine.recorded}


def judge_all(recorded: Recorded, counts: Iterable[int], place: Path) -> int:
    """Judge each state that any model leaves at any of these events; returns how many."""
    seen = set[int]()
    for count in counts:
        disk = Disk(recorded.recorder, count)
        for model in MODELS:
            left = disk.left(model, random.Random(count))
            if left.signature not in seen:
                seen.add(left.signature)
                judge(Cut(recorded, count, model), left, place / str(len(seen)), rebuilds=False)
    return len(seen)


def around(recorded: Recorded, name: str, before: int = 1, after: int = 6) -> Iterator[int]:
    """The numbers of the events near each that gives a file this name."""
    for number, event in enumerate(recorded.recorder.events, 1):
        if event.added is not None and event.added[0] == name:
            yield from range(number - before, number + after)


@pytest.mark.parametrize("table", ["log", "quarantine"])
def test_the_first_commit_of_a_table_is_there_whole_or_not_at_all(
    begun: dict[str, Recorded], table: str, tmp_path: Path
) -> None:
    """An empty one would be no table, for ever."""
    recorded = begun["first ingest"]
    counts = [
        count
        for count in around(recorded, f"{0:020}.json")
        if f"catalog/{table}" in recorded.recorder.events[count - 1].what
    ]
    assert judge_all(recorded, counts, tmp_path) >= 2


@pytest.mark.rest
def test_a_checkpoint_is_on_the_disk_before_anyone_can_name_it(
    begun: dict[str, Recorded], tmp_path: Path
) -> None:
    """No reader passes one that is lost, or has lost its bytes."""
    hints = list(around(begun["alter"], "_last_checkpoint", before=12, after=4))
    assert hints
    assert judge_all(begun["alter"], hints, tmp_path) >= 2


def test_what_a_command_did_is_on_the_disk_when_it_ends(mine: Search) -> None:
    """All of it, and nothing that it removed comes back."""
    for recorded in mine.recorded:
        disk = Disk(recorded.recorder, len(recorded.recorder.events))
        least, most = (disk.left(model, random.Random(0)).files for model in ("none", "names"))
        odd = {key for key in least.keys() ^ most.keys() if not is_unread(key)}
        assert odd == set(), recorded.name


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("ingest", "log/_delta_log/"),
        ("alter", "log/_delta_log/"),
        ("alter", "/success"),
        ("erase", "quarantine/_delta_log/"),
    ],
)
def test_a_command_that_was_killed_and_run_again_has_ended(
    mine: Search, begun: dict[str, Recorded], name: str, named: str, tmp_path: Path
) -> None:
    """It was killed when its commit, or its mark, had a name that was not on the disk."""
    recorded, chance = begun[name], random.Random(1)
    at = next(
        number
        for number, event in enumerate(recorded.recorder.events, 1)
        if event.what.startswith(("linked", "renamed")) and named in event.what
    )
    again = mine.story.killed(recorded, tmp_path / "killed", at, chance)
    cut = Cut(again, len(again.recorder.events), "none")
    left = Disk(again.recorder, cut.at).left("none", chance)
    judge(cut, left, tmp_path, rebuilds=True)


@pytest.mark.parametrize("name", rest_but_today(["erase", "compact", "import", "repair"], 2))
def test_a_command_that_was_cut_before_its_mark_is_marked(
    begun: dict[str, Recorded], name: str, tmp_path: Path
) -> None:
    """Even if it has nothing left to do, or more."""
    recorded = begun[name]
    (*_, commit) = (
        number
        for number, event in enumerate(recorded.recorder.events, 1)
        if event.what.startswith("made") and "/success." in event.what
    )
    left = Disk(recorded.recorder, commit - 1).left("names", random.Random(1))
    judge(Cut(recorded, commit - 1, "names"), left, tmp_path, rebuilds=True)


def test_a_few_states_of_today(mine: Search) -> None:
    """Of all commands and models; the lake is as before or after, and the command ends."""
    numbers = random.Random(str(mine.seed)).sample(range(1000), STATES)
    broken = [str(found) for found in map(mine.cut, numbers) if found]
    assert not broken, "\n\n".join(broken)


def not_synced(event: Event, *, files: bool) -> bool:
    return event.is_sync and (event.node.names is None) == files


@pytest.mark.parametrize("files", [True, False])
def test_a_store_that_does_not_sync_is_found(files: bool, tmp_path: Path) -> None:
    """Neither the bytes of files, nor the names in folders."""
    mine = Search(tmp_path, 1, {"ingest"})
    (recorded,) = mine.recorded
    kept = [each for each in recorded.recorder.events if not not_synced(each, files=files)]
    recorded.recorder.events[:] = kept
    assert any(mine.cut(number) for number in range(TRIES))


# ---------------------------------------------------------------------- the models


@pytest.fixture
def record(tmp_path: Path) -> Callable[[Callable[[str], object]], Recorder]:
    """Record what something does to an empty lake."""

    def recorded(do: Callable[[str], object]) -> Recorder:
        (tmp_path / "place").mkdir()
        recorder = Recorder(tmp_path / "place")
        with recorder.recording(random.Random(1)):
            do(str(tmp_path / "place/lake"))
        return recorder

    return recorded


Record = Callable[[Callable[[str], object]], Recorder]


def contents(recorder: Recorder, key: str) -> set[bytes | None]:
    """What a file may hold after a cut at the end; None if it may be missing."""
    disk = Disk(recorder, len(recorder.events))
    drawn = (disk.left(model, random.Random(seed)) for model in MODELS for seed in range(200))
    return {left.files.get(f"lake/{key}") for left in drawn}


def test_a_durable_object_stays(record: Record) -> None:
    recorder = record(lambda lake: open_store(lake).put("a/b", b"abc"))
    assert contents(recorder, "a/b") == {b"abc"}


def test_another_one_may_be_torn_or_missing(record: Record) -> None:
    def do(lake: str) -> None:
        with open_store(lake).writer("a/b", durable=False) as stream:
            stream.write(b"abc" * 1000)

    found = contents(record(do), "a/b")
    assert {None, b"", b"abc" * 1000} < found
    assert any(each and len(each) < 3000 for each in found)
    assert any(each and len(each) == 3000 and b"\0" in each for each in found)


def test_a_replaced_object_is_the_old_or_the_new_one(record: Record) -> None:
    def do(lake: str) -> None:
        open_store(lake).put("a", b"old")
        Path(lake, "b").write_bytes(b"new")
        os.replace(Path(lake, "b"), Path(lake, "a"))  # noqa: PTH105  # as the store does

    assert contents(record(do), "a") >= {b"old", b"new", b""}


def test_a_removed_file_may_come_back(record: Record) -> None:
    def do(lake: str) -> None:
        open_store(lake).put("a/b", b"abc")
        Path(lake, "a/b").unlink()

    assert contents(record(do), "a/b") == {None, b"abc"}


def test_a_deleted_object_does_not(record: Record) -> None:
    def do(lake: str) -> None:
        store = open_store(lake)
        for key in ("a/b", "a/c", "d/e"):
            store.put(key, b"abc")
        store.delete(["a/b", "d/e"])

    recorder = record(do)
    assert contents(recorder, "a/b") == contents(recorder, "d/e") == {None}
    assert contents(recorder, "a/c") == {b"abc"}
