"""pyarrow as commands use it: without pandas, which none of them needs."""

from __future__ import annotations

import sys
from typing import Any

_ALONE = list[bool]()


class _NoPandas:
    """A finder of modules that finds no pandas."""

    @staticmethod
    def find_spec(name: str, *_: Any) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name)


def run_alone() -> None:
    """From now on the process is that of the program `seglake`: nobody else's code runs in it."""
    _ALONE.append(True)


def without_pandas() -> None:
    """Let pyarrow find no pandas when it asks for the first time, as it does once in a process.

    It asks whether a list is a column of pandas, and to import it takes 0.4 s of each command.
    Others can import pandas afterwards, as Spark does for some of its functions. Where other code
    runs beside commands, as in tests, nothing changes.
    """
    if not _ALONE:
        return
    import pyarrow as pa  # noqa: PLC0415  # the help of a command needs none

    finders: list[Any] = sys.meta_path
    finders.insert(0, _NoPandas)
    try:
        pa.array([""])
    finally:
        finders.remove(_NoPandas)
