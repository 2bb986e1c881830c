"""Ingest: raw event files, or a DataFrame, become Kafka segments and one catalog commit.

`seglake.ingest(df, settings, …)` is `seglake.ingest.api.ingest`. A package in the place of that
function is set as an attribute of `seglake` as soon as anything imports it: so it can be called.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    """This package."""

    def __call__(self, *given: Any, **named: Any) -> Any:
        """See `seglake.ingest.api.ingest`."""
        from seglake.ingest.api import ingest  # noqa: PLC0415  # it imports Spark

        return ingest(*given, **named)


sys.modules[__name__].__class__ = _Callable
