"""`seglake redrive` as a job: spark-submit jobs/redrive.py --conf-file web.toml --run-id R1.

It ingests the rows that run R1 rejected, with the corrected settings in the file.

Exit codes: 0 done, or done before; 2 bad configuration, input or run; 3 no reject becomes a record,
or more are rejected again than the pipeline allows; 1 anything else.
"""

from functools import partial

from seglake.cli.ingest import redrive
from seglake.cli.submit import submit

main = partial(submit, redrive)

if __name__ == "__main__":
    raise SystemExit(main())
