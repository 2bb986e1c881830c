"""Which rejects have expired: those of runs that a commit of maintenance names.

Its row has the operation `expire-rejects`, and its report the list `attempts`. They no longer
count; a vacuum deletes their files.
"""

import json
from collections.abc import Iterable

from seglake.catalog.rows import MaintenanceRow

EXPIRE = "expire-rejects"


def expired_attempts(rows: Iterable[MaintenanceRow]) -> set[str]:
    """The attempts whose rejects have expired, given all rows of maintenance."""
    return {
        attempt_id
        for row in rows
        if row.operation == EXPIRE
        for attempt_id in json.loads(row.report)["attempts"]
    }
