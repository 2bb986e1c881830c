"""Tables of text, and objects that show themselves as one: in a notebook as HTML."""

# ruff: noqa: PLC0415  # a table is rarely needed, and its libraries take time to import

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from io import StringIO
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from rich.console import Console, OverflowMethod

_ROWS, _WIDTH, _CELL = 20, 160, 60


class Table(NamedTuple):
    """What an object shows: one line, headings, rows of values, and how many rows there are.

    Whole numbers get separators, None is shown as "-". `rows` may be only the first of `total`.
    """

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[object]]
    total: int

    @property
    def left_out(self) -> str:
        """A sentence about the rows that are not shown; empty if all are."""
        more = self.total - min(len(self.rows), _ROWS)
        return f"… and {more:,} more" if more > 0 else ""


class ShowsTable:
    """An object with a table."""

    __slots__ = ()

    def _table(self) -> Table:
        raise NotImplementedError

    def __repr__(self) -> str:
        return _text(self._table())

    def _repr_html_(self) -> str:
        return _html(self._table())


def draw(
    console: Console,
    columns: Iterable[tuple[str, bool]],
    rows: Iterable[Iterable[str]],
    overflow: OverflowMethod = "ellipsis",
    **look: Any,
) -> None:
    """Print rows of texts; a column has a heading, and whether it stands at the right.

    No text is markup, whatever brackets and colons it has. `look` is what Rich's tables take.
    """
    from rich.table import Table as RichTable
    from rich.text import Text

    drawn = RichTable(**look)
    for heading, right in columns:
        drawn.add_column(Text(heading), justify="right" if right else "left", overflow=overflow)
    for row in rows:
        drawn.add_row(*map(Text, row))
    console.print(drawn)


def _text(table: Table) -> str:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console

    def right(number: int) -> bool:
        return bool(table.rows) and all(isinstance(row[number], int) for row in table.rows)

    page = StringIO()
    console = Console(file=page, width=_WIDTH, color_system=None)
    columns = [(heading, right(number)) for number, heading in enumerate(table.headings)]
    rows = (map(_value, row) for row in islice(table.rows, _ROWS))
    draw(console, columns, rows, box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    lines = [table.title, *(line.rstrip() for line in page.getvalue().splitlines())]
    return "\n".join(filter(None, [*lines, table.left_out]))


def _html(table: Table) -> str:
    import html

    heads = "".join(f"<th>{html.escape(each)}</th>" for each in table.headings)
    rows = "".join(
        f"<tr>{''.join(f'<td>{html.escape(_value(value))}</td>' for value in row)}</tr>"
        for row in islice(table.rows, _ROWS)
    )
    return (
        f"<p>{html.escape(table.title)}</p><table><thead><tr>{heads}</tr></thead>"
        f"<tbody>{rows}</tbody></table><p>{html.escape(table.left_out)}</p>"
    )


def _value(value: object) -> str:
    if value is None:
        return "-"
    text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    return text if len(text) <= _CELL else f"{text[: _CELL - 1]}…"


def of_report(title: str, report: dict[str, object]) -> Table:
    """The table of a report: a row for each value that is not empty."""
    rows = [(name.replace("_", " "), _summed(value)) for name, value in filled(report).items()]
    return Table(title, ["", ""], rows, len(rows))


def filled(report: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a report that are not empty."""
    empty: tuple[object, ...] = ("", None, [], {}, 0, -1)
    return {name: value for name, value in report.items() if value not in empty}


def _summed(value: object) -> object:
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_value(each)}" for key, each in value.items())
    if isinstance(value, list):
        plain = all(isinstance(each, str) for each in value) and len(value) <= 3
        return ", ".join(value) if plain else f"{len(value):,} items"
    return value
