"""The job `seglake.jobs.maintain`, for spark-submit from a checkout."""

import sys

from seglake.jobs.maintain import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
