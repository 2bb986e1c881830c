"""Commands that draw their tables for a terminal of a chosen width."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch


@contextmanager
def narrow_terminal(width: int = 80) -> Iterator[None]:
    """In the block, tables and reports are drawn for a terminal that is `width` wide."""
    with patch("seglake.terminal.tables.terminal_width", lambda _=None: width):
        yield
