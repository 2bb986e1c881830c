"""The program `seglake`: its commands, in the order of their help.

Each command is declared in its own module, which imports what it needs when the command runs: so
`seglake --help` answers at once.
"""

from typing import Annotated

import typer

from seglake.cli.arguments.spelling import Command
from seglake.cli.check import check
from seglake.cli.demo.run import demo
from seglake.cli.examples import epilog
from seglake.cli.history import history
from seglake.cli.ingest import ingest
from seglake.cli.init import init
from seglake.cli.jobs import jobs
from seglake.cli.kafka.archive import archive
from seglake.cli.kafka.export import export
from seglake.cli.kafka.logs import attach, import_
from seglake.cli.kafka.replay import replay
from seglake.cli.lifecycle.alter import alter
from seglake.cli.lifecycle.compact import compact
from seglake.cli.lifecycle.delete_records import delete_records
from seglake.cli.lifecycle.describe import describe
from seglake.cli.lifecycle.erase import erase
from seglake.cli.lifecycle.maintain import maintain
from seglake.cli.lifecycle.merge import merge
from seglake.cli.lifecycle.retain import retain
from seglake.cli.lifecycle.tag import tag
from seglake.cli.lifecycle.tags import tags
from seglake.cli.lifecycle.undo import undo
from seglake.cli.metrics import metrics
from seglake.cli.offsets import offsets
from seglake.cli.records.dump import dump
from seglake.cli.records.find import find
from seglake.cli.records.read import read
from seglake.cli.redrive import redrive
from seglake.cli.reindex import reindex
from seglake.cli.repair import repair
from seglake.cli.report import report
from seglake.cli.runs.quarantine import quarantine
from seglake.cli.runs.run_status import run_status
from seglake.cli.segments import segments
from seglake.cli.serve import serve
from seglake.cli.topics import topics
from seglake.cli.vacuum import vacuum
from seglake.cli.verify import verify
from seglake.cli.warm import warm

GROUPS = {
    "Begin": (demo, init, check, warm),
    "Ingest": (ingest, redrive, undo, jobs, run_status, quarantine),
    "Look and read": (topics, segments, offsets, read, find, dump, history, report, metrics),
    "The life of a topic": (
        *(describe, alter, maintain, retain, compact, delete_records, erase, merge),
    ),
    "Care of a lake": (tag, tags, verify, repair, reindex, vacuum),
    "Kafka": (serve, import_, attach, archive, export, replay),
}
COMMANDS = tuple(command for commands in GROUPS.values() for command in commands)

app = typer.Typer(
    no_args_is_help=True,
    invoke_without_command=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)
for group, commands in GROUPS.items():
    for command in commands:
        name = command.__name__.strip("_").replace("_", "-")
        app.command(name, cls=Command, rich_help_panel=group, epilog=epilog(name))(command)


@app.callback()
def about(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version of this program.")
    ] = False,
) -> None:
    """Seekable, Kafka-format event logs on shared storage."""
    if version:
        from importlib.metadata import version as version_of  # noqa: PLC0415  # see above

        typer.echo(f"seglake {version_of('seglake')}")
        raise typer.Exit
