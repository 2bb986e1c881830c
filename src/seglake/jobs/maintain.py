"""The upkeep of a lake: spark-submit jobs/maintain.py --root lake. What a schedule runs.

Retention, compaction, merge and the expiry of rejects, as the settings of each topic say, and then
a vacuum. Prints one report as one JSON object, on a line of its own; log lines and errors go to
standard error, which spark-submit joins to standard output.

Exit codes: 0 done; 1 a part failed, the others are done; 2 bad arguments, or no such lake or topic.
"""

from __future__ import annotations

import argparse
import logging
import sys

from seglake.errors import SeglakeError
from seglake.maintain.schedule import maintain_lake
from seglake.maintain.vacuum import GRACE_HOURS


def main(arguments: list[str]) -> int:
    """Run the job; returns its exit code."""
    parser = argparse.ArgumentParser(prog="maintain.py", description=__doc__.split("\n\n")[1])
    parser.add_argument("--root", required=True, help="the lake")
    parser.add_argument("--topic", help="one topic; default all")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be done")
    parser.add_argument(
        "--grace-hours", type=float, default=GRACE_HOURS, help="spare attempts younger than this"
    )
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    try:
        from seglake.session import spark_session  # noqa: PLC0415  # it may be missing

        report = maintain_lake(
            given.root,
            given.topic,
            dry_run=given.dry_run,
            grace_hours=given.grace_hours,
            spark=spark_session("seglake maintain", delta=False),
            told=logging.getLogger("seglake.maintain").info,
        )
    except SeglakeError as error:
        print(f"maintain: {error}", file=sys.stderr)
        return error.exit_code
    print(report.as_json())
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
