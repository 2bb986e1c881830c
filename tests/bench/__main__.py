"""`python -m tests.bench`: run the benchmark, or parts of it; `--help` lists the options."""

import argparse
import json
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from tests.bench import cold, compaction, find, ingest, lookup, remote, report, scan, serve, windows
from tests.bench.measure import Section, choose_order, say
from tests.bench.workbench import Sizes, Workbench

PARTS = {
    "ingest": ingest.run, "lookup": lookup.run, "window": windows.run, "scan": scan.run,
    "remote": remote.run, "compaction": compaction.run, "cold": cold.run, "serve": serve.run,
    "find": find.run,
}  # fmt: skip


def main(arguments: list[str]) -> int:
    """Run; results go to standard output as Markdown, and where the options say.

    A part that fails is named there, and the exit code is 1.
    """
    options = _options(arguments)
    sizes = Sizes(**{field.name: getattr(options, field.name) for field in fields(Sizes)})
    choose_order(sizes.seed)
    about = report.environment(asdict(sizes))
    sections: list[Section] = []
    with tempfile.TemporaryDirectory(prefix="seglake-bench-", dir=options.folder) as folder:
        for section in _run(sizes, Path(folder), options.only):
            sections.append(section)
            _write(options, about, sections)  # so that nothing is lost if a later part fails
    print(report.as_markdown(about, sections))
    return int(any(section.failure for section in sections))


def _run(sizes: Sizes, folder: Path, parts: list[str]) -> Iterator[Section]:
    with Workbench(sizes, folder) as bench:
        for name in parts:
            say(f"{name} …")
            section = _part(name, bench)
            say(f"{name} took {section.seconds:.0f} s")
            if name == parts[-1]:
                section.notes += bench.skipped
            yield section


def _part(name: str, bench: Workbench) -> Section:
    """The results of one part; what it was about to say, if it fails."""
    begun = time.monotonic()
    try:
        section = PARTS[name](bench)
    except Exception as error:  # the other parts still have their say
        traceback.print_exc()
        what = " ".join(str(error).split())[:500]
        section = Section(name, name.capitalize(), "", failure=f"{type(error).__name__}: {what}")
    section.seconds = time.monotonic() - begun
    return section


def _write(options: argparse.Namespace, about: dict[str, Any], sections: list[Section]) -> None:
    if options.json:
        results = report.as_json(about, sections)
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    if options.tables:
        options.tables.write_text(report.as_markdown(about, sections))
    if options.document:
        options.document.write_text(report.as_page(about, sections))


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    for field in fields(Sizes):
        flag = "--" + field.name.replace("_", "-")
        parser.add_argument(flag, type=int, default=field.default, metavar="N", help="%(default)s")
    parser.add_argument("--only", type=_parts, default=list(PARTS), metavar="PART,…",
                        help="of " + ", ".join(PARTS))  # fmt: skip
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results as JSON")
    parser.add_argument("--tables", type=Path, metavar="FILE", help="write all tables as Markdown")
    parser.add_argument("--document", type=Path, metavar="FILE", help="write docs/benchmarks.md")
    parser.add_argument(
        "--folder", type=Path, help="where the temporary files go (a disk with room)"
    )
    options = parser.parse_args(arguments)
    if options.document and set(options.only) != set(PARTS):
        parser.error("--document needs all parts: leave out --only")
    return options


def _parts(text: str) -> list[str]:
    chosen = text.split(",")
    if unknown := set(chosen) - set(PARTS):
        raise argparse.ArgumentTypeError(f"there is no part {', '.join(sorted(unknown))}")
    return [name for name in PARTS if name in chosen]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
