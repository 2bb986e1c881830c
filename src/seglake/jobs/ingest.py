"""`seglake ingest` as a job: spark-submit jobs/ingest.py --conf-file web.toml --run-id R1.

A run id that is already committed is not ingested again. With --replace, the new records replace
the old ones.

Exit codes: 0 done, or done before; 2 bad configuration or input; 3 more rows rejected than the
pipeline allows; 5 no record is in the declared interval, and the pipeline makes that an error; 6 a
file changed after it was ingested, unless `on_changed_source` allows it; 1 anything else.
"""

from functools import partial

from seglake.cli.ingest import ingest
from seglake.cli.submit import submit

main = partial(submit, ingest)

if __name__ == "__main__":
    raise SystemExit(main())
