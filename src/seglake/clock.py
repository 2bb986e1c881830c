"""Read the clock of this machine. Commands that remove data also use the clock of storage."""

import time
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def now_ms() -> int:
    """Return the current time in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def now() -> datetime:
    """Return the current time in UTC, in whole microseconds."""
    return _EPOCH + timedelta(microseconds=time.time_ns() // 1000)
