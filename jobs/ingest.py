"""The job `seglake.jobs.ingest`, for spark-submit from a checkout."""

import sys

from seglake.jobs.ingest import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
