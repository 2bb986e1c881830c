"""Keep pyarrow from importing pandas, which no command needs."""

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
    """Declare that this process is the program `seglake`, in which no other code runs."""
    _ALONE.append(True)


def without_pandas() -> None:
    """Let pyarrow find no pandas at its first check, the only one in a process.

    Its import takes 0.4 s, only to check whether a list is a column of pandas. Other code, such as
    Spark, can still import pandas later. Does nothing where other code runs, as in tests.
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
