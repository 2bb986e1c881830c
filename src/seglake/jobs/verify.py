"""`seglake verify` as a job: spark-submit jobs/verify.py lake --deep.

Checks every file against the catalog, and with --deep every record and index entry against the
logs.

Exit codes: 0 everything is sound; 1 something is wrong, or the check failed; 2 bad arguments, or no
such lake or topic.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from seglake.cli.health import verify
from seglake.cli.submit import submit


def main(arguments: Sequence[str]) -> int:
    """Run the job; returns its exit code."""
    return submit(verify, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
