"""The events around each row of a Delta table, as a Delta table: here the minute before an alert.

    spark-submit jobs/around.py --root lake --topic events --rows alerts --at raised \
        --before-ms 60000 --key user --columns offset,timestamp,value --output minute_before

Prints the number of pairs as one JSON object, on a line of its own; the rest is on standard error.

Exit codes: 0 done; 2 bad arguments, or no such lake, topic, table or column; 1 anything else.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys

import seglake
from seglake.errors import SeglakeError


def main(arguments: list[str]) -> int:
    """Run the job; returns its exit code."""
    parser = argparse.ArgumentParser(prog="around.py", description=__doc__.split("\n\n")[0])
    parser.add_argument("--root", required=True, help="the lake")
    parser.add_argument("--topic", required=True, help="the topic with the events")
    parser.add_argument("--version", type=int, help="a version of the lake; default the newest")
    parser.add_argument("--rows", required=True, help="the Delta table that is read")
    parser.add_argument("--at", required=True, help="its column with the time")
    parser.add_argument("--key", help="its column with the key; default events of any key")
    for side in ("before", "after"):
        parser.add_argument(f"--{side}-ms", type=int, default=0, help=f"milliseconds {side} it")
    parser.add_argument("--columns", type=lambda text: text.split(","), help="of the events: A,B,…")
    parser.add_argument("--output", required=True, help="the Delta table that is made")
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    try:
        from seglake.datasource.around_table import make_table  # noqa: PLC0415  # needs Spark

        log = seglake.open(given.root, given.version).topic(given.topic)
        around = {n: getattr(given, n) for n in ("before_ms", "after_ms", "key", "columns")}
        pairs = make_table(given.rows, given.output, log, given.at, **around)
    except SeglakeError as error:
        print(f"around: {error}", file=sys.stderr)
        return error.exit_code
    print(json.dumps({"version": log.version, "pairs": pairs}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
