"""Which rejects are gone, by the rows of maintenance: those that expired, and those of erasures.

A commit of the operation `expire-rejects` has in its report the list `attempts`: their rejects no
longer count, and a vacuum deletes their files.

An erasure commits to the catalog first, and then to the quarantine. Its row has the operation
`erase`, and its report the counts that the quarantine has after both, of the attempts that lost
rejects:

    "rejects_left": {"<attempt>": 3}
"""

import json
from collections.abc import Iterable

from seglake.catalog.schema import MaintenanceRow

ERASE, EXPIRE = "erase", "expire-rejects"
_RECENT = 100  # erasures of a topic, by clocks that may differ


def expired_attempts(rows: Iterable[MaintenanceRow]) -> set[str]:
    """The attempts whose rejects have expired, given all rows of maintenance."""
    return {
        attempt_id
        for row in rows
        if row.operation == EXPIRE
        for attempt_id in json.loads(row.report)["attempts"]
    }


def rejects_left(rows: Iterable[MaintenanceRow]) -> dict[str, int]:
    """The count of each attempt that lost rejects, given all rows of maintenance.

    Of several erasures the last left the fewest.
    """
    left: dict[str, int] = {}
    for row in rows:
        for attempt_id, count in _rejects_left(row).items():
            left[attempt_id] = min(count, left.get(attempt_id, count))
    return left


def erasures(rows: Iterable[MaintenanceRow]) -> list[str]:
    """The erasures that took rejects last: each ends those before it, so they are enough."""
    commits = sorted((row.finished_at_ms, row.attempt_id) for row in rows if _rejects_left(row))
    return [attempt_id for _, attempt_id in commits[-_RECENT:]]


def erasures_of(rejects_of: str, rows: Iterable[MaintenanceRow]) -> list[str]:
    """The erasures that took rejects of an attempt."""
    return [row.attempt_id for row in rows if rejects_of in _rejects_left(row)]


def _rejects_left(row: MaintenanceRow) -> dict[str, int]:
    """How many rejects an erasure left of each attempt that lost some."""
    counts: dict[str, int] = (
        json.loads(row.report)["rejects_left"] if row.operation == ERASE else {}
    )
    return counts
