"""Rows to show: as a table for people, as JSON for machines."""

# ruff: noqa: PLC0415  # a command imports its modules when it runs

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from seglake.shown import draw, filled
from seglake.times.instants import format_ms


class Column(NamedTuple):
    """A column of a table: a field of the rows, its heading, and the text of a value."""

    field: str
    heading: str
    look: Callable[[Any], str] = str
    right: bool = False


class Listing(NamedTuple):
    """Rows to show. JSON has all their fields, a table only the `columns`."""

    columns: list[Column]
    rows: Iterable[dict[str, Any]]


def number(field: str, heading: str) -> Column:
    """A column of numbers."""
    return Column(field, heading, "{:,}".format, right=True)


def moment(field: str, heading: str) -> Column:
    """A column of times in ms; a negative one, which stands for none, is shown as "-"."""
    return Column(field, heading, lambda ms: format_ms(ms) if ms >= 0 else "-")


def show(title: str, shown: Listing, *, as_json: bool = False) -> None:
    """Print rows to standard output."""
    if as_json:
        print(json.dumps(list(shown.rows), ensure_ascii=False))
    else:
        _print_table(title, shown)


def show_report(title: str, report: Mapping[str, Any]) -> None:
    """Print a report as a table of two columns, without empty values."""
    rows = (
        {"name": name.replace("_", " "), "value": _text(name, value)}
        for name, value in filled(report).items()
    )
    show(title, Listing([Column("name", ""), Column("value", "", right=True)], rows))


def _text(name: str, value: Any) -> str:
    if name.endswith("timestamp"):
        return format_ms(value)
    if isinstance(value, dict):
        return "\n".join(f"{key}: {_text('', item)}" for key, item in value.items())
    if isinstance(value, list):
        many = name.endswith("_files")
        return f"{len(value):,} files" if many else "\n".join(_text("", item) for item in value)
    whole = isinstance(value, int) and not isinstance(value, bool)
    return f"{value:,}" if whole else str(value)


def stream_json(rows: Iterable[dict[str, Any]]) -> None:
    """Print rows as `show` does, one after another, however many they are."""
    between = "["
    for row in rows:
        sys.stdout.write(between + json.dumps(row, ensure_ascii=False))
        between = ", "
    print("[]" if between == "[" else "]")


def _print_table(title: str, shown: Listing) -> None:
    from rich.console import Console
    from rich.text import Text

    columns = [(column.heading, column.right) for column in shown.columns]
    rows = ([_look(column, row[column.field]) for column in shown.columns] for row in shown.rows)
    # without a terminal there is no width to which lines must be folded
    console = Console(width=None if sys.stdout.isatty() else 1000, highlight=False)
    heading = Text(title, "table.title")
    draw(console, columns, rows, "fold", title=heading, title_justify="left")


def _look(column: Column, value: Any) -> str:
    return "-" if value is None else column.look(value)
