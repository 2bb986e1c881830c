"""`seglake verify` as a job: spark-submit jobs/verify.py lake --deep.

It compares every file with the catalog and, with --deep, every record and index entry with the
logs.

Exit codes: 0 everything is sound; 1 something is wrong, or the check failed; 2 bad arguments, or no
such lake or topic.
"""

from functools import partial

from seglake.cli.health import verify
from seglake.cli.submit import submit

main = partial(submit, verify)

if __name__ == "__main__":
    raise SystemExit(main())
