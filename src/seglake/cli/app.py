"""Define the program `seglake`: its commands, in the order of its help.

The module of a command imports what the command needs only when the command runs, so that
`seglake --help` is fast.
"""

from pathlib import Path
from typing import Annotated, Any

import typer

import seglake
from seglake.cli import health, ingest, inspect, kafka, lifecycle, read
from seglake.cli.arguments.help import Command, Program
from seglake.cli.arguments.options import Json
from seglake.cli.demo.run import demo
from seglake.errors import UsageError
from seglake.terminal.tables import Column, Listing, show


def jobs(name: Annotated[str | None, typer.Argument()] = None, json: Json = False) -> None:
    """Show the files of the jobs, for spark-submit.

    Args:
        name: Print only the path of this job, as in spark-submit "$(seglake jobs ingest)".

    Examples:
        seglake jobs
        seglake jobs ingest
    """
    folder = Path(seglake.__file__).resolve().parent / "jobs"
    files = {path.stem: str(path) for path in sorted(folder.glob("[a-z]*.py"))}
    if name is None:
        columns = [Column(field, field) for field in ("job", "module", "file")]
        rows = [{"job": job, "module": f"seglake.jobs.{job}", "file": files[job]} for job in files]
        show("jobs", Listing(columns, rows), as_json=json)
    elif name in files:
        typer.echo(files[name])
    else:
        raise UsageError(f"unknown job {name!r}. The jobs are {', '.join(files)}")


def help_(
    context: typer.Context,
    everything: Annotated[
        bool, typer.Option("--all", help="Show the commands for experts, too.")
    ] = False,
) -> None:
    """Show the commands of this program.

    Example:
        seglake help --all
    """
    parent: Any = context.parent
    parent.command.show_help(parent, everything=everything)


GROUPS = {
    "Begin": (demo, ingest.init, ingest.check, health.warm, help_),
    "Ingest": (
        *(ingest.append, ingest.ingest, ingest.redrive, lifecycle.undo, jobs),
        *(inspect.run_status, inspect.quarantine),
    ),
    "Inspect and read": (
        *(inspect.topics, inspect.segments, inspect.offsets, read.read, read.find, read.dump),
        *(inspect.history, inspect.report, inspect.metrics),
    ),
    "Lifecycle of a topic": (
        *(inspect.describe, lifecycle.alter, lifecycle.maintain, lifecycle.retain),
        *(lifecycle.compact, lifecycle.delete_records, lifecycle.erase, lifecycle.merge),
        lifecycle.publish,
    ),
    "Maintenance of a lake": (
        *(lifecycle.tag, health.verify, health.repair, health.reindex, health.vacuum),
    ),
    "Kafka": (kafka.serve, kafka.import_, kafka.attach, kafka.export, kafka.replay),
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
