"""Run a command as a job: `spark-submit jobs/verify.py ARGS` is `seglake verify ARGS`.

A job works on Spark, even if the command uses threads. Log lines and errors go to standard error,
which spark-submit joins with standard output. The report is one JSON object, on the last line of
standard output.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence

import typer

from seglake.cli.arguments.help import Documented
from seglake.cli.terminal.frame import checked_output
from seglake.cli.terminal.progress import Job
from seglake.errors import SeglakeError

Command = Callable[..., None]

_EPILOG = "The report is always JSON."
_HELP = {"help_option_names": ["-h", "--help"]}
_AFTER_THE_REPORT = "py4j"  # a logger with lines about closed connections after the report


def submit(command: Command, arguments: Sequence[str] | None = None) -> int:
    """Run a command as a job, by default with the arguments in sys.argv. Return its exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    logging.getLogger(_AFTER_THE_REPORT).setLevel(logging.WARNING)
    job, app = Job(command.__name__), typer.Typer(add_completion=False)
    app.command(cls=Documented, epilog=_EPILOG, context_settings=_HELP)(command)
    arguments = ["--json", *arguments]
    try:
        with checked_output():
            typer.main.get_command(app).main(arguments, prog_name=f"{job.name}.py", obj=job)
    except SystemExit as end:
        return int(end.code or 0)
    except SeglakeError as error:
        print(f"{job.name}: {error}", file=sys.stderr)
        return error.exit_code
    return 0
