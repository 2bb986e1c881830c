"""Check a lake: spark-submit jobs/verify.py --root lake --deep.

Checks every file against the catalog, and with --deep every record and index entry against the
logs. Prints its findings as one JSON object, on a line of its own; log lines and errors go to
standard error, which spark-submit joins to standard output.

Exit codes: 0 everything is sound; 1 something is wrong, or the check failed; 2 bad arguments, or no
such lake or topic.
"""

from __future__ import annotations

import argparse
import logging
import sys

from seglake.errors import SeglakeError
from seglake.log.tasks import logged
from seglake.maintain.health.verify import verify


def main(arguments: list[str]) -> int:
    """Run the job; returns its exit code."""
    parser = argparse.ArgumentParser(prog="verify.py", description=__doc__.split("\n\n")[1])
    parser.add_argument("--root", required=True, help="the lake")
    parser.add_argument("--topic", action="append", help="repeatable; default all")
    parser.add_argument("--deep", action="store_true", help="decode every record")
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    try:
        from seglake.session import spark_session  # noqa: PLC0415  # it may be missing

        session = spark_session("seglake verify", delta=False)
        report = verify(
            given.root, deep=given.deep, topics=given.topic, spark=session, progress=logged
        )
    except SeglakeError as error:
        print(f"verify: {error}", file=sys.stderr)
        return error.exit_code
    print(report.as_json())
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
