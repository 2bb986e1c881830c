"""Ingest rejects again: spark-submit jobs/redrive.py --conf-file web.toml --run-id R1.

Run R1 rejected them; the file has corrected settings. Prints the report as one JSON object, on a
line of its own; log lines and errors go to standard error, which spark-submit joins to standard
output.

Exit codes: 0 done, or done before; 2 bad configuration, input or run; 3 no reject becomes a record,
or more are rejected again than the pipeline allows; 1 anything else.
"""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

from seglake.config import load
from seglake.errors import SeglakeError
from seglake.write.api import redrive_run


def main(arguments: list[str]) -> int:
    """Run the job; returns its exit code."""
    parser = argparse.ArgumentParser(prog="redrive.py", description=__doc__)
    parser.add_argument("--conf-file", type=Path, required=True, help="the pipeline's TOML file")
    parser.add_argument("--run-id", required=True, help="the run whose rejects are ingested")
    parser.add_argument("--root", help="the lake, instead of the file's")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be done")
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    changes = {} if given.root is None else {"pipeline.root": given.root}
    try:
        pipeline = load(given.conf_file, changes)
        report = redrive_run(pipeline, given.run_id, dry_run=given.dry_run)
    except SeglakeError as error:
        print(f"redrive: {error}", file=sys.stderr)
        return error.exit_code
    print(report.as_json())
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
