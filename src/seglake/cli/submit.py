"""Run a command as a job: `spark-submit jobs/verify.py ARGS` is `seglake verify ARGS`.

A job works on Spark, even if the command uses threads. Log lines and errors go to standard error,
which spark-submit joins with standard output. The report is one JSON object, on the last line of
standard output. A scheduler may pass the command's arguments by name: `--root lake`.
"""

from __future__ import annotations

import inspect
import logging
import sys
from collections.abc import Callable, Collection, Sequence
from functools import wraps
from typing import Annotated, Any, get_args

import typer
from typer.models import ArgumentInfo

from seglake.cli.arguments.help import Documented
from seglake.cli.terminal.frame import checked_output
from seglake.cli.terminal.progress import Job
from seglake.errors import SeglakeError

Command = Callable[..., None]

_EPILOG = "Arguments can also be given by name, as in --root lake. The report is always JSON."
_HELP = {"help_option_names": ["-h", "--help"]}
_AFTER_THE_REPORT = "py4j"  # a logger with lines about closed connections after the report


def submit(command: Command, arguments: Sequence[str] | None = None) -> int:
    """Run a command as a job, by default with the arguments in sys.argv. Return its exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    logging.getLogger(_AFTER_THE_REPORT).setLevel(logging.WARNING)
    job, app = Job(command.__name__), typer.Typer(add_completion=False)
    names = {each.partition("=")[0].removeprefix("--") for each in arguments}
    app.command(cls=Documented, epilog=_EPILOG, context_settings=_HELP)(make_job(command, names))
    try:
        with checked_output():
            typer.main.get_command(app).main([*arguments], prog_name=f"{job.name}.py", obj=job)
    except SystemExit as end:
        return int(end.code or 0)
    except SeglakeError as error:
        print(f"{job.name}: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def make_job(command: Command, names: Collection[str]) -> Command:
    """Return a command that always prints JSON, and whose arguments in `names` are options."""
    declared = inspect.signature(command, eval_str=True)

    @wraps(command)
    def job(**arguments: Any) -> None:
        command(**arguments | dict.fromkeys(arguments.keys() & {"json"}, True))

    parameters = {**declared.parameters}
    for name in parameters.keys() & names:
        match get_args(parameters[name].annotation):
            case kind, ArgumentInfo(help=text):
                option = typer.Option(f"--{name}", help=text)
                parameters[name] = parameters[name].replace(annotation=Annotated[kind, option])
    job.__annotations__ = {name: each.annotation for name, each in parameters.items()}
    job.__signature__ = declared.replace(  # type: ignore[attr-defined]
        parameters=[*parameters.values()]
    )
    return job
