"""Tables in a terminal of 80 columns: no number and no time may be folded or cut."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from typing import IO, Any
from unittest.mock import patch

from rich.cells import cell_len

from seglake.shown import Column, draw

LARGE = 1_234_567_890_123
_HINTS = ("all 0: ", "no room for: ", "… is where a text is cut")


@contextmanager
def narrow_terminal(width: int = 80, *, shown: int | None = None) -> Iterator[list[str]]:
    """In the block commands draw for a terminal; gives the headings of each table, checked.

    With `shown` they draw for a terminal of that width.
    """
    drawn: list[str] = []

    def checked(
        columns: Sequence[Column],
        rows: Iterable[Sequence[object]],
        file: IO[str],
        _: Any,
        **how: Any,
    ) -> None:
        values = [list(row) for row in rows]
        for each in (values, [[_large(*cell) for cell in zip(columns, row, strict=True)]
                              for row in values]):  # fmt: skip
            assert_whole(columns, each, width)
        drawn.append(" ".join(column.heading for column in columns))
        draw(columns, values, file, shown or width, **how)

    with patch("seglake.cli.terminal.tables.draw", checked):
        yield drawn


def _large(column: Column, value: object) -> object:
    return LARGE if column.right and isinstance(value, int) else value


def assert_whole(columns: Sequence[Column], rows: Sequence[Sequence[object]], width: int) -> None:
    """A table has no wider line, its numbers and times are whole, and each column is named.

    A column without a value may be left out.
    """
    page = StringIO()
    draw(columns, rows, page, width, rest="--json has all")
    lines = page.getvalue().splitlines()
    assert max(map(cell_len, lines), default=0) <= width, page.getvalue()
    hints = [at for at, line in enumerate(lines) if line.startswith(_HINTS)]
    body, hint = (lines[: hints[0]], " ".join(lines[hints[0] :])) if hints else (lines, "")
    below = [at for at, column in enumerate(columns) if column.fit == "below"]
    empty = [all(column.text(row[at]) == "-" for row in rows) for at, column in enumerate(columns)]
    hidden = [at for at, column in enumerate(columns) if empty[at] or _named(column, hint)]
    shown = [at for at in range(len(columns)) if at not in (*hidden, *below)]
    heads = 2 * any(column.heading for column in columns)
    assert all(columns[at].heading in body[0] for at in shown if heads)
    for at in shown:
        for row in rows if columns[at].fit == "whole" else ():
            text = columns[at].text(row[at])
            assert any(text in line for line in body[heads:]), text
    if all(columns[at].fit != "wrap" for at in shown) and not below:
        assert len(body) == len(rows) + heads, page.getvalue()


def _named(column: Column, hint: str) -> bool:
    lists = (hint.partition(what)[2].partition(";")[0] for what in _HINTS[:2])
    return bool(column.heading) and column.heading in ", ".join(lists).split(", ")
