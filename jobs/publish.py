"""The job `seglake.jobs.publish`, for spark-submit from a checkout."""

import sys

from seglake.jobs.publish import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
