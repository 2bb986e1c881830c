"""`seglake publish` as a job: spark-submit jobs/publish.py lake web --fields user,status:int32.

It decodes the segments that the table does not have yet, and commits their files.

Exit codes: 0 done; 1 a log is damaged, or anything else; 2 bad arguments, or no such lake or topic.
"""

from functools import partial

from seglake.cli.lifecycle import publish
from seglake.cli.submit import submit

main = partial(submit, publish)

if __name__ == "__main__":
    raise SystemExit(main())
