"""The job `seglake.jobs.verify`, for spark-submit from a checkout."""

import sys

from seglake.jobs.verify import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
