"""The clock of this machine, asked in one place. Removal goes by that of storage as well."""

import time
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def now_ms() -> int:
    """Milliseconds since the epoch, in UTC."""
    return time.time_ns() // 1_000_000


def now() -> datetime:
    """The time in UTC, in whole microseconds."""
    return _EPOCH + timedelta(microseconds=time.time_ns() // 1000)
