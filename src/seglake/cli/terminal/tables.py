"""Rows to show: as a table for people, as JSON for machines."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from seglake.shown import Column, draw, of_report, terminal_width

_REST = "--json has all"


class Listing(NamedTuple):
    """Rows to show. JSON has all their fields, a table only the `columns`."""

    columns: Sequence[Column]
    rows: Iterable[dict[str, Any]]


def show(title: str, shown: Listing, *, as_json: bool = False) -> None:
    """Print rows to standard output; for people "<title>: none" where there is no row."""
    if as_json:
        print(json.dumps(list(shown.rows), ensure_ascii=False))
        return
    rows = [[row[column.field] for column in shown.columns] for row in shown.rows]
    if not rows:
        print(f"{title}: none")
        return
    draw(shown.columns, rows, sys.stdout, terminal_width(), title=title, rest=_REST)


def show_report(title: str, report: Mapping[str, Any]) -> None:
    """Print a report as a table of two columns, without empty values."""
    table = of_report(title, report)
    draw(table.columns, table.rows, sys.stdout, terminal_width(), title=title, rest=_REST)


def stream_json(rows: Iterable[dict[str, Any]]) -> None:
    """Print rows as `show` does, one after another, however many they are."""
    between = "["
    for row in rows:
        sys.stdout.write(between + json.dumps(row, ensure_ascii=False))
        between = ", "
    print("[]" if between == "[" else "]")
