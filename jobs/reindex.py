"""The job `seglake.jobs.reindex`, for spark-submit from a checkout."""

import sys

from seglake.jobs.reindex import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
