"""How many rejects of an attempt are left after erasures, by the rows of maintenance.

An erasure commits to the catalog first, and then to the quarantine. Its row has the operation
`erase`, and its report the counts that the quarantine has after both, of the attempts that lost
rejects:

    "rejects_left": {"<attempt>": 3}
"""

import json
from collections.abc import Iterable

from seglake.catalog.rows import MaintenanceRow

ERASE = "erase"


def rejects_left(rows: Iterable[MaintenanceRow]) -> dict[str, int]:
    """The count of each attempt that lost rejects, given all rows of maintenance.

    Of several erasures the last left the fewest.
    """
    left: dict[str, int] = {}
    for row in rows:
        told = json.loads(row.report)["rejects_left"] if row.operation == ERASE else {}
        for attempt_id, count in told.items():
            left[attempt_id] = min(count, left.get(attempt_id, count))
    return left
