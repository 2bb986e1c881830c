"""The time by which maintenance removes what is old."""

from seglake import layout
from seglake.maintain.report import now_ms
from seglake.store import Store


def time_of_storage(store: Store) -> int:
    """The time at which storage says that it stored an object just now, in milliseconds."""
    key = layout.new_clock_key()
    store.put(key, b"")
    modified_ms = store.stat(key).modified_ms
    store.delete([key])
    return modified_ms


def careful_now_ms(store: Store, *, dry_run: bool) -> int:
    """The time by this machine or by storage, whichever is earlier, in milliseconds.

    A clock that is ahead would remove what is still young; one that is behind keeps more. A dry run
    writes nothing, and goes by this machine alone.
    """
    return now_ms() if dry_run else min(now_ms(), time_of_storage(store))
