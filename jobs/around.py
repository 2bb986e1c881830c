"""The job `seglake.jobs.around`, for spark-submit from a checkout."""

import sys

from seglake.jobs.around import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
