"""The job `seglake.jobs.archive`, for spark-submit from a checkout."""

import sys

from seglake.jobs.archive import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
