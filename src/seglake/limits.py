"""Define limits that several modules share."""

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)

NO_END = 2**63
"""An exclusive end after every timestamp. INT64_MAX would exclude records with that time."""

ALL_TIMES = INT64_MIN, INT64_MAX
"""Smallest and largest timestamp in ms, both inclusive."""

REQUESTS = 16
"""Concurrent requests to an object store."""

GAP_BYTES = 32 * 1024
"""The largest gap between ranges that share a request: reading it costs less than a request."""

GRACE_HOURS = 24.0
"""How old an object must be before a vacuum deletes it, unless the caller says otherwise."""
HOUR_MS = 3_600_000
