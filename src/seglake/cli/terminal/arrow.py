"""Keep pyarrow from importing pandas, which no command needs."""

from __future__ import annotations

import sys
from typing import Any

_ALONE = list[bool]()


class _NoPandas:
    """A module finder that refuses to import pandas."""

    @staticmethod
    def find_spec(name: str, *_: Any) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name)


def run_alone() -> None:
    """Record that this process runs only `seglake`, so that no other code needs pandas."""
    _ALONE.append(True)


def without_pandas() -> None:
    """Hide pandas from pyarrow, which checks for it once in a process.

    The import of pandas takes 0.4 s, and pyarrow only uses it to check whether a list is a pandas
    column. Other code, such as Spark, can still import pandas later. Without `run_alone`, as in
    tests, this does nothing.
    """
    if not _ALONE:
        return
    import pyarrow as pa  # noqa: PLC0415  # the help of a command does not need it

    finders: list[Any] = sys.meta_path
    finders.insert(0, _NoPandas)
    try:
        pa.array([""])
    finally:
        finders.remove(_NoPandas)
