"""Define the command `demo`: ingest a million events and look some up, in a minute or two."""

# ruff: noqa: PLC0415  # a command imports its modules when it runs

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seglake.cli.ingest import print_report
from seglake.cli.terminal.output import complete
from seglake.cli.terminal.progress import display, steps
from seglake.terminal.tables import show
from seglake.times.instants import format_ms

if TYPE_CHECKING:
    from seglake.write.driver.report import Report

RUN_ID = "demo"
TOPIC = "web"
WINDOW_MS = 10_000

PIPELINE: dict[str, dict[str, Any]] = {
    "pipeline": {"name": "web", "order": "time", "max_quarantine_ratio": 0.05},
    "input": {"format": "jsonl"},
    "timestamp": {"field": "ts", "format": "epoch_ms"},
    "key": {"fields": ["user"]},
    "topic": {"name": TOPIC, "partitions": 4},
}


def demo(
    root: Annotated[Path, typer.Argument()] = Path("demo-lake"),
    events: Path = Path("demo-events"),
    count: Annotated[int, typer.Option(min=1000)] = 1_000_000,
) -> None:
    """Generate events, ingest them with Spark, and look some up.

    Args:
        root: Folder of the new lake.
        events: Folder of the generated events.
        count: Number of events to generate.

    Example:
        seglake demo ./lake
    """
    _generate(events, count)  # unless the folder exists
    report = _ingest(root, events)
    if report.status == "committed":
        print_report(report, str(root), as_json=False)
    else:
        print(f"Run {RUN_ID!r} is already committed. Nothing was ingested again.")
    _questions(root)
    called = Path(sys.argv[0])
    program = str(called) if called.name == "seglake" else "seglake"
    print(_NEXT.format(root=root, program=program))


def _generate(folder: Path, count: int) -> None:
    from seglake.cli.demo.events import generate

    if folder.exists():
        print(f"The events are already in {folder}.")
        return
    with display(f"generating {count:,} web events"), complete(folder) as temporary:
        made = generate(temporary, events=count)
    print(
        f"Made {made.events:,} web events in {len(made.files)} files below {folder}, some of "
        f"them compressed. The events are out of order, and {made.broken:,} lines are broken."
    )


def _ingest(root: Path, events: Path) -> Report:
    from seglake.config import from_tables
    from seglake.reporting.run import report_run
    from seglake.write.api import run_pipeline

    tables = {name: dict(table) for name, table in PIPELINE.items()}
    tables["pipeline"]["root"], tables["input"]["paths"] = str(root), [str(events)]
    print("Ingesting with Spark on this machine …")
    pipeline = from_tables(tables)
    with steps() as progress, report_run(pipeline) as run:
        run.report = run_pipeline(pipeline, run_id=RUN_ID, progress=progress)
    return run.report


def _questions(root: Path) -> None:
    import seglake
    from seglake.cli.inspect import segment_rows

    log = seglake.open(str(root)).topic(TOPIC)
    show(f"segments of {TOPIC}", segment_rows(log, None), as_json=False)
    offset = log.end_offsets()[0] // 2
    record = log.record_at(0, offset)
    _ask(f"Which record has offset {offset:,} in partition 0?")
    print(f"  {format_ms(record.timestamp)}  key {_text(record.key)}  value {_text(record.value)}")
    first = log.record_at(0, log.beginning_offsets()[0]).timestamp
    last = log.record_at(0, log.end_offsets()[0] - 1).timestamp
    noon = (first + last) // 2 // 1000 * 1000
    _ask(f"What is the first record of each partition at or after {format_ms(noon)}?")
    for partition, found in log.offsets_for_times(dict.fromkeys(log.partitions(), noon)).items():
        place = "nowhere"
        if found is not None:
            place = f"offset {found.offset:,}, at {format_ms(found.timestamp)}"
        print(f"  partition {partition}: {place}")
    count = len(log.read_range(noon, noon + WINDOW_MS).read_all())
    _ask(f"What happened in the {WINDOW_MS // 1000} seconds after that?")
    exact = "all of them, and no others, although the events arrived out of order"
    print(f"  {count:,} records: {exact}.")


def _text(value: bytes | None) -> str:
    return "-" if value is None else value.decode("utf-8", "replace")


def _ask(question: str) -> None:
    typer.secho(f"\n{question}", bold=True)


_NEXT = """
Try next:
  {program} topics {root}
  {program} offsets {root} web --time latest
  {program} read {root} web --partition 0 --offset 1000 --max-records 3
  {program} history {root}
and from Python:
  import seglake; seglake.open("{root}").topic("web").end_offsets()"""
