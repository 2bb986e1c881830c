"""Errors as their sentence: Spark shows the whole traceback of what a data source raises."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from seglake.errors import SeglakeError


@contextmanager
def plain_errors() -> Iterator[None]:
    """Raises a SeglakeError without what led to it; a block, or a decorator of a function."""
    try:
        yield
    except SeglakeError as error:
        raise error.with_traceback(None) from None
