"""Jobs as tests run them: in this process, where the Spark session is."""

from importlib import import_module


def run_job(name: str, *arguments: str) -> int:
    """The exit code of a job's `main`; also if it ends the process."""
    try:
        return int(import_module(f"seglake.jobs.{name}").main(list(arguments)))
    except SystemExit as ended:
        return int(ended.code or 0)
