"""`seglake maintain` as a job: spark-submit jobs/maintain.py lake. What a schedule runs.

Retention, compaction, merge and the expiry of rejects, as the settings of each topic say, and then
a vacuum.

Exit codes: 0 done; 1 a part failed, the others are done; 2 bad arguments, or no such lake or topic.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from seglake.cli.lifecycle import maintain
from seglake.cli.submit import submit


def main(arguments: Sequence[str]) -> int:
    """Run the job; returns its exit code."""
    return submit(maintain, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
