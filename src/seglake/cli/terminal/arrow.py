"""Keep pyarrow from importing pandas, which no command needs."""

from __future__ import annotations

import sys
from typing import Any

_ALONE = list[bool]()


def run_alone() -> None:
    """Declare that this process is the program `seglake`, in which no other code runs."""
    _ALONE.append(True)


def without_pandas() -> None:
    """Let pyarrow find no pandas at its first check, the only one in a process.

    Its import takes 0.4 s, only to check whether a list is a column of pandas. Other code, such as
    Spark, can still import pandas later. Does nothing where other code runs, as in tests.
    """
    if not _ALONE or "pandas" in sys.modules:
        return
    import pyarrow as pa  # noqa: PLC0415  # the help of a command needs none

    modules: dict[str, Any] = sys.modules
    modules["pandas"] = None  # an import of it raises ModuleNotFoundError
    try:
        pa.array([""])
    finally:
        del modules["pandas"]
