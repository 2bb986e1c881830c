"""Deletions of logs, told to open readers: what they hold open or cached would outlive its file.

Whoever deletes logs replaces the object `catalog/deletions` before, and again after. A reader looks
at it now and then. If it is another one, the reader lets go of all files and caches, and reads what
it needs anew: of a log that is gone it learns that its version has expired.
"""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from collections.abc import Callable, Iterable, Iterator

from seglake import layout
from seglake.compile.locks import Lock
from seglake.errors import MissingObject, StoreError
from seglake.store import Store

_LOCAL_S, _REMOTE_S = 1.0, 30.0  # between looks of a reader that nobody refreshes
_UNENDED_S = 60.0  # between losses of the caches while a deletion has not ended: it may be killed


@contextlib.contextmanager
def announced(store: Store, keys: Iterable[str]) -> Iterator[None]:
    """In the block, some objects may be deleted; readers are told if there are logs among them."""
    if not any(key.startswith(f"{layout.TOPICS}/") for key in keys):
        yield
        return
    token = str(uuid.uuid4())
    _say(store, token, ended=False)
    yield
    _say(store, token, ended=True)


def _say(store: Store, token: str, *, ended: bool) -> None:
    store.put(layout.DELETIONS, json.dumps({"token": token, "ended": ended}).encode())


class Deletions:
    """Has `forget` called when logs may be gone. Safe for threads."""

    def __init__(self, store: Store, forget: Callable[[], None]) -> None:
        self._store, self._forget = store, forget
        self._pause_s = _REMOTE_S if store.remote else _LOCAL_S
        self._due = time.monotonic() + self._pause_s
        self._seen, self._again, self._forgot = b"", False, 0.0
        self._lock = Lock()

    def look_if_due(self) -> None:
        """Look, unless somebody has just looked. A failure of storage is left to the reads."""
        if time.monotonic() >= self._due:
            self.look()

    def make_due(self) -> None:
        """Let the next read look for deletions: a log is missing."""
        self._due = 0.0

    def look(self) -> None:
        """Look for deletions since the last look. A failure of storage is left to the reads."""
        self._due = time.monotonic() + self._pause_s
        with contextlib.suppress(StoreError):
            said = self._said()
            with self._lock:
                self._heard(said)

    def _said(self) -> bytes:
        try:
            return bytes(self._store.read_all(layout.DELETIONS))
        except MissingObject:
            return b""

    def _heard(self, said: bytes) -> None:
        """Forget at each change and once more after it, for reads that were under way."""
        changed, now = said != self._seen, time.monotonic()
        unended = b'"ended": false' in said and now - self._forgot > _UNENDED_S
        if changed or self._again or unended:
            self._seen, self._again, self._forgot = said, changed, now
            self._forget()
