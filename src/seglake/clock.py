"""The clock of this machine, asked in one place. Removal goes by that of storage as well."""

import time


def now_ms() -> int:
    """Milliseconds since the epoch, in UTC."""
    return time.time_ns() // 1_000_000
