"""The archive of live topics: spark-submit jobs/archive.py --root lake --bootstrap h:1 --topic web.

Reads what the broker has of each topic and the lake has not, committed records only, and keeps
their offsets; no checkpoint is needed. spark-submit needs the jars of Spark's Kafka source: --jars
"$(python -m seglake.session kafka-jars)". Prints its report as one JSON object, on a line of its
own; log lines and errors go to standard error, which spark-submit joins to standard output.

Exit codes: 0 done, or nothing was new; 4 done, but the broker had deleted records that were not
archived yet; 2 bad arguments, or a topic that is gone or was made again; 1 anything else.
"""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

from seglake.config.properties import client_settings
from seglake.errors import SeglakeError
from seglake.write.live import archive as work


def main(arguments: list[str]) -> int:
    """Run the job; returns its exit code."""
    parser = argparse.ArgumentParser(prog="archive.py", description=__doc__.split("\n\n")[1])
    parser.add_argument("--root", required=True, help="the lake")
    parser.add_argument("--bootstrap", required=True, help="servers of the broker, HOST:PORT,…")
    parser.add_argument(
        "--topic", action="append", required=True, help="repeatable; NAME:TOPIC renames it"
    )
    parser.add_argument("--kafka", action="append", default=[], help="KEY=VALUE for the client")
    parser.add_argument("--kafka-file", type=Path, help="a properties file with more of them")
    parser.add_argument("--run-id", help="makes a repeated run the same run")
    parser.add_argument(
        "--quarantine", action="store_true", help="for records that cannot be archived"
    )
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    tell = logging.getLogger("seglake.archive").info
    try:
        options = client_settings(given.kafka, given.kafka_file)
        options["bootstrap.servers"] = given.bootstrap
        report = work.archive(
            given.root, given.topic, options, run_id=given.run_id,
            quarantine=given.quarantine, progress=tell,
        )  # fmt: skip
    except SeglakeError as error:
        print(f"archive: {error}", file=sys.stderr)
        return error.exit_code
    print(report.as_json())
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
