"""`seglake maintain` as a job: spark-submit jobs/maintain.py lake. What a schedule runs.

Retention, compaction, merge and the expiry of rejects, as the settings of each topic say, and then
a vacuum.

Exit codes: 0 done; 1 a part failed, the others are done; 2 bad arguments, or no such lake or topic.
"""

from functools import partial

from seglake.cli.lifecycle import maintain
from seglake.cli.submit import submit

main = partial(submit, maintain)

if __name__ == "__main__":
    raise SystemExit(main())
