"""`seglake redrive` as a job: spark-submit jobs/redrive.py --conf-file web.toml --run-id R1.

Run R1 rejected the rows; the file has corrected settings.

Exit codes: 0 done, or done before; 2 bad configuration, input or run; 3 no reject becomes a record,
or more are rejected again than the pipeline allows; 1 anything else.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from seglake.cli.ingest import redrive
from seglake.cli.submit import submit


def main(arguments: Sequence[str]) -> int:
    """Run the job; returns its exit code."""
    return submit(redrive, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
