"""Run PySpark's daemon of Python workers, which end in silence when Spark closes them.

Spark closes the socket of an idle worker a moment before it ends the daemon, which ends its
workers. In between, PySpark's own worker prints a traceback of its broken pipe, or the beginning
of one. Errors of tasks do not come this way: a worker sends them to Spark.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from pyspark import daemon

Worker = Callable[[Any, bool], int]  # a socket, and whether it is authenticated: an exit code


def ending_in_silence(worker: Worker) -> Any:
    """Return a worker that ends without output if its socket was closed by Spark."""

    @wraps(worker)
    def silent(socket: Any, authenticated: bool) -> int:
        try:
            return worker(socket, authenticated)
        except (BrokenPipeError, ConnectionResetError):
            return 1

    return silent


if __name__ == "__main__":
    daemon.worker = ending_in_silence(daemon.worker)
    daemon.manager()
