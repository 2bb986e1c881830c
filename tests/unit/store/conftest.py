"""Requests that fail are made again at once."""

from datetime import timedelta

import pytest

from seglake.store import object_store


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seglake.store.interface.sleep", lambda _: None)
    short = {"init_backoff": timedelta(milliseconds=1), "max_backoff": timedelta(milliseconds=2)}
    monkeypatch.setitem(object_store._RETRIES, "backoff", {**short, "base": 2})
