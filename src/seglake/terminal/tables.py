r"""Print tables of text in commands, and display them in notebooks.

A table that is too wide for the terminal is shown record by record, one field a line, as psql does
with `\x auto`. A notebook shows HTML.
"""

# ruff: noqa: PLC0415  # a table is rarely needed, and its libraries take time to import

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from io import StringIO
from itertools import islice, zip_longest
from textwrap import wrap
from typing import IO, Any, NamedTuple

from seglake.terminal.wording import (
    counted,
    duration,
    printable,
    short_bytes,
    short_time,
    terminal_width,
)

_ROWS, _WIDTH, _ITEMS, _GAP = 20, 160, 20, 2
_NARROWEST = 20  # characters of wrapped text, even if the terminal is narrower
_NONE = "-"
_EMPTY: tuple[object, ...] = "", None, [], {}, 0, -1
_DURATIONS = "lateness_ms", "lag_ms", "interval_ms", "retention_ms"  # other values in ms are times
_PLACES = "timestamp", "_ms", "offset", "partition", "position", "version"


class Column(NamedTuple):
    """A column of a table, with the field of the rows, the heading, and the format of the values.

    `look` converts a value to text. A value of None is shown as the text `none`. If `right`, text
    is right-aligned. A `prose` column keeps line breaks, and is wrapped if the table is shown field
    by field.
    """

    field: str
    heading: str
    look: Callable[[Any], str] = str
    right: bool = False
    none: str = _NONE
    prose: bool = False

    def text(self, value: object) -> str:
        """Return the text of a value, without control characters."""
        text = self.none if value is None else self.look(value)
        return "\n".join(map(printable, text.split("\n"))) if self.prose else printable(text)


def number(field: str, heading: str) -> Column:
    """Return a column of right-aligned numbers, such as 1,000."""
    return Column(field, heading, "{:,}".format, right=True)


def size(field: str, heading: str) -> Column:
    """Return a column of sizes in bytes, shown as KiB, MiB and so on."""
    return Column(field, heading, short_bytes, right=True)


def moment(field: str, heading: str) -> Column:
    """Return a column of times in ms. A negative time is shown as "-"."""
    return Column(field, heading, short_time)


def second(field: str, heading: str) -> Column:
    """Return a column of times in ms, shown in whole seconds."""
    return Column(field, heading, lambda ms: short_time(ms // 1000 * 1000))


def prose(field: str, heading: str) -> Column:
    """Return a column of sentences, which may be wrapped."""
    return Column(field, heading, prose=True)


class Listing(NamedTuple):
    """Rows to show. JSON has all their fields, and a table only the `columns`."""

    columns: Sequence[Column]
    rows: Iterable[dict[str, Any]]


def show(title: str, listing: Listing, *, as_json: bool = False) -> None:
    """Print rows to standard output, as JSON or as a table. A table without rows is one line."""
    if as_json:
        print(json.dumps(list(listing.rows), ensure_ascii=False))
        return
    rows = [[row[column.field] for column in listing.columns] for row in listing.rows]
    if rows:
        draw(listing.columns, rows, sys.stdout, terminal_width(), title=title)
    else:
        print(f"{title}: none")


def show_report(title: str, report: Mapping[str, Any]) -> None:
    """Print a report to standard output, with one value in each line and without empty values."""
    table = report_table(title, report)
    draw(table.columns, table.rows, sys.stdout, terminal_width(), title=title)


def stream_json(rows: Iterable[dict[str, Any]]) -> None:
    """Print rows as JSON, like `show`, but one by one, so that memory need not hold all rows."""
    between = "["
    for row in rows:
        sys.stdout.write(between + json.dumps(row, ensure_ascii=False))
        between = ", "
    print("[]" if between == "[" else "]")


class Table(NamedTuple):
    """The table of an object: a sentence as its title, its columns, and its rows of values.

    `rows` may be only the first rows of `total` rows.
    """

    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[object]]
    total: int

    @property
    def left_out(self) -> str:
        """Return a sentence about the rows that are not shown, or "" if all are shown."""
        more = self.total - min(len(self.rows), _ROWS)
        return f"… and {more:,} more" if more > 0 else ""


class ShowsTable:
    """Base class of objects that are shown as a table, as text or in notebooks."""

    __slots__ = ()

    def _table(self) -> Table:
        """Return the table of the object. Each class implements this."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return _text(self._table())

    def _repr_html_(self) -> str:
        return _html(self._table())


def draw(
    columns: Sequence[Column],
    rows: Iterable[Sequence[object]],
    file: IO[str],
    width: int | None,
    *,
    title: str = "",
) -> None:
    """Write a table to `file`, or its records field by field if it is wider than `width`.

    `width` is in characters, or None for any width. A table without headings must have two columns,
    for names and values.
    """
    from rich.cells import cell_len

    cells = [list(map(Column.text, columns, row)) for row in rows]
    if not any(column.heading for column in columns):
        lines = list(_fields([(name, text, True) for name, text in cells], width))
    else:
        lines = _grid(columns, cells)
        if width is not None and max(map(cell_len, lines)) > width:
            lines = list(_records(columns, cells, width))
    text = "".join(f"{line.rstrip()}\n" for line in ([title] if title else []) + lines)
    if not (getattr(file, "encoding", None) or "utf-8").lower().startswith("utf"):
        text = text.replace("─", "-")
    file.write(text)


def _grid(columns: Sequence[Column], cells: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table, which are the headings, a rule, and the rows."""
    from rich.cells import cell_len

    rows = [tuple(column.heading for column in columns)]
    for row in cells:
        rows += zip_longest(*(cell.split("\n") for cell in row), fillvalue="")
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        pads = [" " * (width - cell_len(cell)) for width, cell in zip(widths, row, strict=True)]
        parts = [pad + cell if column.right else cell + pad
                 for column, cell, pad in zip(columns, row, pads, strict=True)]  # fmt: skip
        lines.append((" " * _GAP).join(parts).rstrip())
    rule = "─" * min(_WIDTH, sum(widths) + _GAP * (len(widths) - 1))
    return [lines[0], rule, *lines[1:]]


def _records(
    columns: Sequence[Column], cells: Iterable[Sequence[str]], width: int
) -> Iterator[str]:
    """Yield a rule with the number of each record, then its fields."""
    heads = [(column.heading, column.prose) for column in columns]
    for number_, row in enumerate(cells, 1):
        yield f"─[ {number_} ]".ljust(min(width, 40), "─")
        fields = [(name, text, prose) for (name, prose), text in zip(heads, row, strict=True)]
        yield from _fields(fields, width)


def _fields(fields: Sequence[tuple[str, str, bool]], width: int | None) -> Iterator[str]:
    """Yield the lines of each (name, text, is prose).

    Only prose is wrapped, and its next lines are indented like the first. Other text remains on one
    line, so that it can be copied.
    """
    head = max((len(name) for name, *_ in fields), default=0)
    room = None if width is None else max(_NARROWEST, width - head - _GAP)
    for name, text, is_prose in fields:
        lines = text.split("\n")
        if is_prose and room is not None:
            lines = [part for line in lines for part in wrap(
                line, room, break_long_words=False, break_on_hyphens=False) or [""]]  # fmt: skip
        for at, line in enumerate(lines):
            yield f"{'' if at else name:{head}}{'':{_GAP}}{line}"


def _text(table: Table) -> str:
    page = StringIO()
    width = terminal_width() or _WIDTH
    draw(table.columns, table.rows[:_ROWS], page, width)
    lines = [table.title, *(line.rstrip() for line in page.getvalue().splitlines())]
    return "\n".join(filter(None, [*lines, table.left_out]))


def _html(table: Table) -> str:
    import html

    heads = "".join(f"<th>{html.escape(each.heading)}</th>" for each in table.columns)
    rows = ""
    for row in islice(table.rows, _ROWS):
        texts = map(Column.text, table.columns, row)
        rows += f"<tr>{''.join(f'<td>{html.escape(text)}</td>' for text in texts)}</tr>"
    return (
        f"<p>{html.escape(table.title)}</p><table><thead><tr>{heads}</tr></thead>"
        f"<tbody>{rows}</tbody></table><p>{html.escape(table.left_out)}</p>"
    )


def report_table(title: str, report: Mapping[str, Any]) -> Table:
    """Return the table of a report, with a row for each value that is not empty."""
    rows = [(name.removesuffix("_ms").replace("_", " "), _reported(name, value))
            for name, value in report.items() if not _is_empty(name, value)]  # fmt: skip
    columns = [Column("name", ""), prose("value", "")]
    return Table(title, columns, rows, len(rows))


def _is_empty(name: str, value: object) -> bool:
    """Return whether a value is empty, like a count of 0. A time or a position of 0 is a value."""
    empty: tuple[object, ...] = ("", None, [], {}, -1) if name.endswith(_PLACES) else _EMPTY
    return value in empty


def _reported(name: str, value: Any) -> str:
    """Return the text of a report's value, with one line for each item of a list or dictionary."""
    if isinstance(value, dict):
        return _lines([f"{key}: {_reported('', item)}" for key, item in value.items()])
    if isinstance(value, Sequence) and not isinstance(value, str):
        many = name.endswith("_files")
        return counted(len(value), "file") if many else _lines([_reported("", v) for v in value])
    if not isinstance(value, int) or isinstance(value, bool):
        return str(value)
    if name.endswith(_DURATIONS):
        return duration(value)
    if name.endswith(("timestamp", "_ms")):
        return short_time(value)
    return short_bytes(value) if "bytes" in name.split("_") else f"{value:,}"


def _lines(items: list[str]) -> str:
    more = len(items) - _ITEMS
    return "\n".join(items[:_ITEMS] + [f"… and {more:,} more"] * (more > 0))
