"""The program `seglake`: its commands, in the order of their help.

Each command is declared in its own module, which imports what it needs when the command runs: so
`seglake --help` answers at once.
"""

from typing import Annotated, Any

import typer

from seglake.cli.arguments.spelling import Command, Program
from seglake.cli.demo.run import demo
from seglake.cli.health import reindex, repair, vacuum, verify, warm
from seglake.cli.ingest import check, ingest, init, redrive
from seglake.cli.inspect import (
    describe,
    history,
    metrics,
    offsets,
    quarantine,
    report,
    run_status,
    segments,
    topics,
)
from seglake.cli.jobs import jobs
from seglake.cli.kafka import archive, attach, export, import_, replay
from seglake.cli.lifecycle import (
    alter,
    compact,
    delete_records,
    erase,
    maintain,
    merge,
    retain,
    tag,
    undo,
)
from seglake.cli.read import dump, find, read
from seglake.cli.serve import serve


def help_(
    context: typer.Context,
    everything: Annotated[bool, typer.Option("--all", help="Also those for experts.")] = False,
) -> None:
    """Show the commands of this program.

    Example:
        seglake help --all
    """
    parent: Any = context.parent
    parent.command.show_help(parent, everything=everything)


GROUPS = {
    "Begin": (demo, init, check, warm, help_),
    "Ingest": (ingest, redrive, undo, jobs, run_status, quarantine),
    "Look and read": (topics, segments, offsets, read, find, dump, history, report, metrics),
    "The life of a topic": (
        *(describe, alter, maintain, retain, compact, delete_records, erase, merge),
    ),
    "Care of a lake": (tag, verify, repair, reindex, vacuum),
    "Kafka": (serve, import_, attach, archive, export, replay),
}
COMMANDS = tuple(command for commands in GROUPS.values() for command in commands)

app = typer.Typer(
    cls=Program,
    epilog="More commands, for experts: seglake help --all",
    no_args_is_help=True,
    invoke_without_command=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)
for group, commands in GROUPS.items():
    for command in commands:
        name = command.__name__.strip("_").replace("_", "-")
        app.command(name, cls=Command, rich_help_panel=group)(command)


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
