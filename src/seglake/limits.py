"""Bounds that several rooms share."""

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)

ALL_TIMES = INT64_MIN, INT64_MAX
"""Smallest and largest timestamp in ms, both inclusive."""

REQUESTS = 16
"""Concurrent requests to an object store."""

GAP_BYTES = 32 * 1024
"""Ranges of an object that are no further apart share a request: the gap costs less than one."""
