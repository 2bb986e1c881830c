"""Notify open readers of deleted logs, so that they close the files and drop cached data.

Otherwise, an open reader would return cached records after an erasure has deleted their log. So:

    1. A process that deletes logs replaces the object `catalog/deletions` before and after it
       deletes them.
    2. A reader checks that object from time to time. If it has changed, the reader closes all
       files and drops its caches. A later read of a deleted log raises VersionExpired.
"""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from collections.abc import Callable, Iterable, Iterator

from seglake import layout
from seglake.compile.locks import fork_safe_lock
from seglake.errors import MissingObject, StoreError
from seglake.store import Store

_LOCAL_S, _REMOTE_S = 1.0, 30.0  # between checks of a reader that is not refreshed
# While a deletion has not ended, the caches are dropped at this interval. The deletion of a killed
# process never ends.
_UNENDED_S = 60.0


@contextlib.contextmanager
def notify_readers(store: Store, keys: Iterable[str]) -> Iterator[None]:
    """Notify readers before and after the `with` block that deletes `keys`, if a key is a log."""
    if not any(key.startswith(f"{layout.TOPICS}/") for key in keys):
        yield
        return
    token = str(uuid.uuid4())
    _write_token(store, token, ended=False)
    yield
    _write_token(store, token, ended=True)


def _write_token(store: Store, token: str, *, ended: bool) -> None:
    store.put(layout.DELETIONS, json.dumps({"token": token, "ended": ended}).encode())


class DeletionMonitor:
    """Checks for deleted logs, and calls `forget` when logs may have been deleted. Thread-safe."""

    def __init__(self, store: Store, forget: Callable[[], None]) -> None:
        self._store, self._forget = store, forget
        self._pause_s = _REMOTE_S if store.remote else _LOCAL_S
        self._due = time.monotonic() + self._pause_s
        self._seen, self._again, self._forgot = b"", False, 0.0
        self._lock = fork_safe_lock()

    def check_if_due(self) -> None:
        """Call `check` if enough time has passed since the last check."""
        if time.monotonic() >= self._due:
            self.check()

    def request_check(self) -> None:
        """Make the next `check_if_due` check immediately, for example because a log is missing."""
        self._due = 0.0

    def check(self) -> None:
        """Call `forget` if logs were deleted since the last check. Ignores StoreError."""
        self._due = time.monotonic() + self._pause_s
        with contextlib.suppress(StoreError):
            said = b""
            with contextlib.suppress(MissingObject):
                said = bytes(self._store.read_all(layout.DELETIONS))
            with self._lock:
                self._compare(said)

    def _compare(self, said: bytes) -> None:
        """Call `forget` after a change of the object, and once more at the next check.

        A read that is in progress at the first call may cache data. The second call drops it.
        """
        changed, now = said != self._seen, time.monotonic()
        unended = b'"ended": false' in said and now - self._forgot > _UNENDED_S
        if changed or self._again or unended:
            self._seen, self._again, self._forgot = said, changed, now
            self._forget()
