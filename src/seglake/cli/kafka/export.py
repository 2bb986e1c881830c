"""`seglake export`: a topic as partition folders of a broker."""

# ruff: noqa: PLC0415  # a command imports when it runs; an option is an argument

from typing import Annotated

import typer

from seglake.cli.arguments.options import Json, Root, Topic, Version, Zone
from seglake.cli.arguments.window import absolute
from seglake.cli.kafka.groups import print_groups
from seglake.cli.terminal.progress import bar
from seglake.cli.terminal.tables import Listing, show
from seglake.shown import Column, number, size

_COLUMNS = [
    Column("folder", "folder"),
    number("log_start_offset", "begins at"),
    number("end_offset", "ends at"),
    number("segments", "segments", rank=1),
    size("log_bytes", "bytes"),
]


def export(
    root: Root,
    topic: Topic,
    dest: Annotated[str, typer.Argument(help="An empty folder: a path or a URI.")],
    start: Annotated[str | None, typer.Option(help="Only from this time on.")] = None,
    end: Annotated[str | None, typer.Option(help="Only up to this time, exclusive.")] = None,
    zone: Zone = None,
    topic_id: Annotated[
        str | None, typer.Option(help="The topic's id on the broker, for partition.metadata.")
    ] = None,
    version: Version = None,
    json: Json = False,
) -> None:
    """Write a topic as partition folders that a broker mounts, every record at its offset."""
    from seglake.kafka.exporting import export_logs

    start, end = absolute(start, zone), absolute(end, zone)
    with bar("exporting") as progress:
        report = export_logs(
            root, topic, dest, start=start, end=end, topic_id=topic_id, version=version,
            progress=progress,
        )  # fmt: skip
    if json:
        print(report.as_json())
        return
    rows = Listing(_COLUMNS, [part.as_dict() for part in report.partitions])
    show(f"{topic}, version {report.version}, for a broker", rows)
    print_groups(report.groups)
