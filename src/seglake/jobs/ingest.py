"""Ingest what a pipeline file names: spark-submit jobs/ingest.py --conf-file web.toml --run-id R1.

The same run id again does nothing; with --replace, a corrected input takes the place of the old
records. Prints the run's report as one JSON object, on a line of its own; log lines and errors go
to standard error, which spark-submit joins to standard output.

Exit codes: 0 done, or done before; 2 bad configuration or input; 3 more rows rejected than the
pipeline allows; 1 anything else.
"""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

from seglake.config import load
from seglake.errors import SeglakeError
from seglake.reporting.run import ingest_or_replace


def main(arguments: list[str]) -> int:
    """Run the job; returns its exit code."""
    parser = argparse.ArgumentParser(prog="ingest.py", description=__doc__)
    parser.add_argument("--conf-file", type=Path, required=True, help="the pipeline's TOML file")
    parser.add_argument("--run-id", help="makes this run the same again, whenever it is repeated")
    parser.add_argument("--root", help="the lake, instead of the file's")
    parser.add_argument(
        "--source", action="append", help="input path or glob, instead of the file's"
    )
    parser.add_argument("--interval-start", help="start of what the run covers, with a zone")
    parser.add_argument("--interval-end", help="its end, exclusive")
    parser.add_argument(
        "--replace", dest="replaces", action="store_const", const="run",
        help="replace what the run ingested before",
    )  # fmt: skip
    parser.add_argument(
        "--replace-interval", dest="replaces", action="store_const", const="interval",
        help="replace that, and the pipeline's runs that lie wholly inside the interval",
    )  # fmt: skip
    parser.add_argument("--replace-with-nothing", action="store_true", help="even by no record")
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    changes = {"pipeline.root": given.root, "input.paths": given.source}
    interval = (given.interval_start, given.interval_end)
    try:
        pipeline = load(given.conf_file, {k: v for k, v in changes.items() if v is not None})
        how = {"run_id": given.run_id, "with_nothing": given.replace_with_nothing}
        report = ingest_or_replace(pipeline, given.replaces, interval=interval, **how)
    except SeglakeError as error:
        print(f"ingest: {error}", file=sys.stderr)
        return error.exit_code
    print(report.as_json())
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
