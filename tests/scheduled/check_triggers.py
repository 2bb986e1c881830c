"""The triggers as a triggerer runs them: started, killed, started again. In Airflow's Python."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import Asset, AssetWatcher
from airflow.sdk.module_loading import import_string
from airflow.serialization.encoders import encode_trigger
from airflow.triggers.base import BaseEventTrigger, TriggerEvent

import seglake
from seglake.airflow import SeglakeClosedTrigger, SeglakeVersionTrigger
from seglake.config import Pipeline
from seglake.engine import LocalEngine
from seglake.errors import StoreError, UsageError
from seglake.read.lake import Lake
from seglake.write.driver.attempt import DeclaredRun
from seglake.write.driver.run import ingest_files

HOUR, T = 3_600_000, 1_700_000_400_000 // 3_600_000 * 3_600_000
POLL_SECONDS = 0.02
PATIENCE_S = 60


class Store:
    """An asset's state store that outlives triggers, and refuses as often as it is told to."""

    def __init__(self, refusals: int = 0) -> None:
        self.values: dict[str, str] = {}
        self.refusals = refusals

    def _refuse(self) -> None:
        self.refusals -= 1
        if self.refusals >= 0:
            raise RuntimeError("the API server is away")

    async def aget(self, key: str, default: Any = None) -> Any:
        self._refuse()
        return json.loads(self.values[key]) if key in self.values else default

    async def aset(self, key: str, value: Any) -> None:
        self._refuse()
        assert len(key) <= 512  # of Airflow's table
        self.values[key] = json.dumps(value)


class Hourly:
    """A lake to which hours are added."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.root = folder, str(folder / "lake")

    def ingest(self, hour: int) -> None:
        path = self.folder / f"{hour}.jsonl"
        path.write_text(json.dumps({"ts": T + hour * HOUR}) + "\n")
        tables = {
            "name": "web", "root": self.root, "input": {"paths": [str(path)], "format": "jsonl"},
            "timestamp": {"field": "ts", "format": "epoch_ms"},
            "topic": {"name": "web", "partitions": 1},
        }  # fmt: skip
        run = DeclaredRun(f"hour {hour}", (T + hour * HOUR, T + (hour + 1) * HOUR))
        ingest_files(LocalEngine(), Pipeline.model_validate(tables), run, lambda _: None)

    def versions(self) -> BaseEventTrigger:
        return SeglakeVersionTrigger(self.root, "web", poll_seconds=POLL_SECONDS)


class Triggerer:
    """Runs one trigger, and takes its events."""

    def __init__(self, trigger: BaseEventTrigger, store: Store | None) -> None:
        path, arguments = trigger.serialize()
        self.trigger = import_string(path)(**json.loads(json.dumps(arguments)))
        self.trigger.asset_state_store = store
        self.events: AsyncIterator[TriggerEvent] = self.trigger.run()

    async def next(self) -> dict[str, Any]:
        event = await asyncio.wait_for(anext(self.events), PATIENCE_S)
        payload: dict[str, Any] = json.loads(json.dumps(event.payload))
        return payload

    async def quiet(self, seconds: float = 0.4) -> None:
        """No event comes; ends the trigger."""
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(self.events), seconds)


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(int(PATIENCE_S / 0.02)):
        if holds():
            return
        await asyncio.sleep(0.02)
    raise TimeoutError


def run(scenario: Awaitable[None]) -> None:
    async def whole() -> None:
        await scenario

    asyncio.run(whole())


@pytest.fixture
def lake(tmp_path: Path) -> Hourly:
    return Hourly(tmp_path)


def test_new_runs_and_restarts(lake: Hourly) -> None:
    """What happens while no triggerer runs is told by the next; what was told is not repeated."""

    async def scenario() -> None:
        store = Store()
        first = Triggerer(lake.versions(), store)
        waiting = asyncio.ensure_future(first.next())
        await until(lambda: bool(store.values))  # it looked, and there was no lake
        lake.ingest(0)
        assert (await waiting)["run_id"] == "hour 0"
        saved = dict(store.values)
        waiting = asyncio.ensure_future(first.next())
        await until(lambda: store.values != saved)
        waiting.cancel()  # the triggerer dies
        lake.ingest(1)
        lake.ingest(2)
        second = Triggerer(lake.versions(), store)
        assert [(await second.next())["run_id"] for _ in range(2)] == ["hour 1", "hour 2"]
        await second.quiet()
        await Triggerer(lake.versions(), store).quiet()

    run(scenario())


def test_a_death_before_the_cursor_is_saved_repeats_the_event(lake: Hourly) -> None:
    async def scenario() -> None:
        store = Store()
        await Triggerer(lake.versions(), store).quiet()
        lake.ingest(0)
        events = [await Triggerer(lake.versions(), store).next() for _ in range(2)]
        assert events[0] == events[1]

    run(scenario())


def test_an_api_server_that_is_away(lake: Hourly) -> None:
    """A trigger waits for its cursor, and saves it later."""

    async def scenario() -> None:
        store = Store(refusals=3)
        triggerer = Triggerer(lake.versions(), store)
        waiting = asyncio.ensure_future(triggerer.next())
        await until(lambda: bool(store.values))
        lake.ingest(0)
        assert (await waiting)["run_id"] == "hour 0"
        store.refusals = 2
        before = dict(store.values)
        waiting = asyncio.ensure_future(triggerer.next())
        await until(lambda: store.values != before)
        lake.ingest(1)
        assert (await waiting)["run_id"] == "hour 1"

    run(scenario())


def test_storage_that_fails_for_a_while(
    lake: Hourly, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refresh, opened, failures = Lake.refresh, seglake.open, iter(range(5))

    def failing(whole: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def once(given: Any) -> Any:
            if next(failures, None) is not None:
                raise StoreError("catalog/log: 503 SlowDown")
            return whole(given)

        return once

    async def scenario() -> None:
        lake.ingest(0)
        store = Store()
        triggerer = Triggerer(lake.versions(), store)
        waiting = asyncio.ensure_future(triggerer.next())
        await until(lambda: bool(store.values))
        monkeypatch.setattr(Lake, "refresh", failing(refresh))
        monkeypatch.setattr(seglake, "open", failing(opened))
        lake.ingest(1)
        assert (await waiting)["run_id"] == "hour 1"

    run(scenario())
    assert next(failures, None) is None
    assert "catalog/log: 503 SlowDown" in "".join(capsys.readouterr())


def test_closed_windows(lake: Hourly) -> None:
    """An hour closes when the hour behind it is ingested; `since` asks for older ones."""

    async def scenario() -> None:
        how: dict[str, Any] = {
            "window_ms": HOUR,
            "lateness_ms": 60_000,
            "poll_seconds": POLL_SECONDS,
        }
        lake.ingest(0)
        store = Store()
        triggerer = Triggerer(SeglakeClosedTrigger(lake.root, "web", **how), store)
        waiting = asyncio.ensure_future(triggerer.next())
        await until(lambda: bool(store.values))
        lake.ingest(2)
        lake.ingest(1)
        starts = [(await waiting)["interval"][0], (await triggerer.next())["interval"][0]]
        assert len(set(starts)) == 2
        await triggerer.quiet()
        again = SeglakeClosedTrigger(lake.root, "web", since=starts[1], **how)
        triggerer = Triggerer(again, Store())
        assert (await triggerer.next())["interval"][0] == starts[1]
        await triggerer.quiet()

    run(scenario())


def test_a_watcher_that_several_assets_share_begins_anew(lake: Hourly) -> None:
    class Shared(Store):
        async def aget(self, key: str, default: Any = None) -> Any:
            raise ValueError("Task has 2 concrete inlets and outlets")

    async def scenario() -> None:
        lake.ingest(0)
        triggerer = Triggerer(lake.versions(), Shared())
        waiting = asyncio.ensure_future(triggerer.next())
        await asyncio.sleep(0.5)
        lake.ingest(1)
        assert (await waiting)["run_id"] == "hour 1"

    run(scenario())


@pytest.mark.parametrize(
    "trigger",
    [
        SeglakeVersionTrigger("s3://bucket/lake", "web"),
        SeglakeClosedTrigger(
            "lake", "web", window_ms=HOUR, lateness_ms=0, since="2026-11-20T01:00:00+01:00"
        ),
    ],
)
def test_a_trigger_travels(trigger: BaseEventTrigger) -> None:
    """Into the database and back it is the same, and an asset takes it."""
    path, arguments = trigger.serialize()
    again = import_string(path)(**json.loads(json.dumps(arguments)))
    assert again.serialize() == (path, arguments)
    assert encode_trigger(trigger)["classpath"] == path
    assert BaseEventTrigger.hash(path, arguments) == BaseEventTrigger.hash(*again.serialize())
    Asset("a", watchers=[AssetWatcher(name="a", trigger=trigger)])


@pytest.mark.parametrize(
    "how",
    [
        {"window_ms": 0, "lateness_ms": 0},
        {"window_ms": 1, "lateness_ms": -1},
        {"window_ms": 1, "lateness_ms": 0, "poll_seconds": 0},
        {"window_ms": 1, "lateness_ms": 0, "since": "2026-11-20T01:00:00"},
    ],
)
def test_what_has_no_meaning_is_an_error_of_the_dag(how: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        SeglakeClosedTrigger("lake", "web", **how)
