"""Run PySpark's daemon of Python workers, without tracebacks when Spark closes a worker.

Spark closes the socket of an idle worker a moment before it ends the daemon, which ends its
workers. In between, PySpark's own worker prints at least a part of a traceback of a broken pipe.
Errors of tasks are not affected, because a worker sends them to Spark.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from pyspark import daemon

Worker = Callable[[Any, bool], int]  # (socket, is authenticated) -> exit code


def ending_in_silence(worker: Worker) -> Any:
    """Return a worker that ends without output if Spark has closed its socket."""

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
