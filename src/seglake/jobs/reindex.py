"""`seglake reindex` as a job: spark-submit jobs/reindex.py lake web --index-interval-bytes 1024.

It writes new offset, time and zone index files for the topic's segments, and adds them to the
catalog in one commit. Without an interval, every segment keeps its index interval.

Exit codes: 0 done; 1 a log is damaged, or anything else; 2 bad arguments, or no such lake, topic or
partition.
"""

from functools import partial

from seglake.cli.health import reindex
from seglake.cli.submit import submit

main = partial(submit, reindex)

if __name__ == "__main__":
    raise SystemExit(main())
