"""The job `seglake.jobs.redrive`, for spark-submit from a checkout."""

import sys

from seglake.jobs.redrive import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
