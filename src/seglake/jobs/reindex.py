"""Re-index: spark-submit jobs/reindex.py --root lake --topic web --index-interval-bytes 1024.

Rebuilds the offset, time and zone index files of the topic's segments, as new files, which one
commit names in the catalog. Without an interval every segment keeps its policy. Prints its report
as one JSON object, on a line of its own; log lines and errors go to standard error, which
spark-submit joins to standard output.

Exit codes: 0 done; 2 bad arguments, or no such lake, topic or partition; 1 anything else.
"""

from __future__ import annotations

import argparse
import logging
import sys

from seglake.errors import SeglakeError
from seglake.format.index import POLICIES, IndexPolicy
from seglake.log.tasks import logged
from seglake.maintain.health.reindex import reindex


def main(arguments: list[str]) -> int:
    """Run the job; returns its exit code."""
    parser = argparse.ArgumentParser(prog="reindex.py", description=__doc__.split("\n\n")[1])
    parser.add_argument("--root", required=True, help="the lake")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partition", type=int, action="append", help="repeatable; default all")
    by = parser.add_mutually_exclusive_group()
    helps = ("bytes between entries; 0: every batch", "records between entries, at least")
    for unit, text in zip(POLICIES, (*helps, "an entry for each interval of time"), strict=True):
        by.add_argument(f"--index-interval-{unit}", type=int, help=text)
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    chosen = {name: getattr(given, f"index_interval_{name}") for name in POLICIES}
    try:
        from seglake.session import spark_session  # noqa: PLC0415  # it may be missing

        policies = [IndexPolicy(name, size) for name, size in chosen.items() if size is not None]
        report = reindex(
            given.root,
            given.topic,
            *policies,
            spark=spark_session("seglake reindex", delta=False),
            partitions=given.partition,
            progress=logged,
        )
    except SeglakeError as error:
        print(f"reindex: {error}", file=sys.stderr)
        return error.exit_code
    print(report.as_json())
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
