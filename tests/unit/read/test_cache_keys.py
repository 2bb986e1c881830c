"""What is unpickled answers for the lake that was pickled, whatever is at its root by now."""

import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest

import seglake
from seglake.credentials import from_environment
from seglake.datasource import batch
from seglake.errors import VersionExpired
from seglake.maintain.health.repair import rebuild_catalog
from seglake.read import origin
from seglake.read.log import Log
from seglake.read.origin import Origin
from seglake.store import open_store
from tests.makers.lakes import Event, LakeMaker
from tests.makers.strategies import T


def made(root: Path, runs: int = 1) -> LakeMaker:
    maker = LakeMaker(root)
    for _ in range(runs):
        maker.run({0: [Event(T + i, b"k", b"v") for i in range(100)]}, interval=(T, T + 100))
    return maker


def sent(thing: Any) -> Any:
    """What another process gets; this one has unpickled things of the same root before."""
    return pickle.loads(pickle.dumps(thing))


def test_a_log_of_a_lake_that_was_made_anew_finds_its_own_catalog(tmp_path: Path) -> None:
    root = tmp_path / "lake"
    made(root)
    old = pickle.dumps(seglake.open(str(root)).topic("events"))
    assert len(pickle.loads(old).segments())
    shutil.rmtree(root)
    made(root, runs=2)
    log = seglake.open(str(root), 1).topic("events")
    assert sent(log).segments().to_arrow().equals(log.segments().to_arrow())
    assert sent(log).at(2).end_offsets() == {0: 200}


def test_a_log_of_a_rebuilt_catalog_finds_that(tmp_path: Path) -> None:
    made(tmp_path)
    assert len(sent(seglake.open(str(tmp_path)).topic("events")).segments())
    rebuild_catalog(str(tmp_path), dry_run=False, force=True)
    log = seglake.open(str(tmp_path)).topic("events")
    assert sent(log).segments().to_arrow().equals(log.segments().to_arrow())


@pytest.mark.parametrize("fresh", [True, False])
def test_another_lake_does_not_answer_for_the_one_that_was_pickled(
    fresh: bool, tmp_path: Path
) -> None:
    """It has the same topic, and the same number of a version."""
    root = tmp_path / "lake"
    made(root)
    lake = seglake.open(str(root))
    pickled, whole = pickle.dumps(lake.topic("events")), pickle.dumps(lake)
    assert fresh or len(pickle.loads(pickled).segments())
    shutil.rmtree(root)
    made(root)
    if fresh:
        origin._origin_at.cache_clear()
    for ask in (Log.segments, Log.coverage):
        with pytest.raises(VersionExpired):
            ask(pickle.loads(pickled))
    with pytest.raises(VersionExpired):
        pickle.loads(whole)


def test_other_credentials_are_not_those_of_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store finds its credentials in the environment, once."""
    given, stores = Origin(open_store("s3://bucket/lake")), list[object]()
    for token in ("first", "second"):
        monkeypatch.setenv("AWS_SESSION_TOKEN", token)
        assert sent(given) is sent(given)
        stores.append(sent(given).store)
        stores.append(batch._store("s3://bucket/lake", (), batch._items(from_environment())))
    assert len({id(store) for store in stores}) == 4
