"""The events around the rows of a Delta table: for each alert the minute before it, as a table.

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
from seglake.errors import SeglakeError, UsageError
from seglake.extras import extra


def main(arguments: list[str]) -> int:
    """Run the job; returns its exit code."""
    parser = argparse.ArgumentParser(prog="around.py", description=__doc__.split("\n\n")[0])
    parser.add_argument("--root", required=True, help="the lake")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--version", type=int, help="of the lake; default the newest")
    parser.add_argument("--rows", required=True, help="the Delta table that is read")
    parser.add_argument("--at", required=True, help="its column with the time")
    parser.add_argument("--key", help="its column with the key; default events of any key")
    for side in ("before", "after"):
        parser.add_argument(f"--{side}-ms", type=int, default=0, help=f"how long {side}")
    parser.add_argument("--columns", type=lambda text: text.split(","), help="of the events")
    parser.add_argument("--output", required=True, help="the Delta table that is made")
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    try:
        pairs = _write_pairs(given)
    except SeglakeError as error:
        print(f"around: {error}", file=sys.stderr)
        return error.exit_code
    print(json.dumps(pairs))
    return 0


def _write_pairs(given: argparse.Namespace) -> dict[str, int]:
    """Make the table; returns its number of pairs, and the version of the lake."""
    with extra("spark", "this job"):
        from pyspark.errors import AnalysisException  # noqa: PLC0415  # they may be missing
        from pyspark.sql import Observation  # noqa: PLC0415
        from pyspark.sql.functions import count, lit  # noqa: PLC0415
    from seglake.datasource import events_around  # noqa: PLC0415
    from seglake.session import spark_session  # noqa: PLC0415

    around = {name: getattr(given, name) for name in ("before_ms", "after_ms", "key", "columns")}
    counted = Observation()
    try:
        log = seglake.open(given.root, given.version).topic(given.topic)
        rows = spark_session("seglake around").read.format("delta").load(given.rows)
        rows = rows.repartitionByRange(given.at)  # what lies near in time shares what it reads
        found = events_around(rows, log, given.at, **around)
        found = found.observe(counted, count(lit(1)).alias("pairs"))
        found.write.format("delta").save(given.output)
    except AnalysisException as error:
        raise UsageError(str(error)) from error
    return {"version": log.version, **counted.get}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
