"""`seglake maintain` as a job: spark-submit jobs/maintain.py lake. Schedule it daily.

It expires, compacts and merges each topic by its settings, removes expired rejects, and then
vacuums the lake.

Exit codes: 0 done; 1 a part failed, the others are done; 2 bad arguments, or no such lake or topic.
"""

from functools import partial

from seglake.cli.lifecycle import maintain
from seglake.cli.submit import submit

main = partial(submit, maintain)

if __name__ == "__main__":
    raise SystemExit(main())
