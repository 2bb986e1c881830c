"""The line of names at the top of CSV, and what separates its cells."""

from __future__ import annotations

import re
from collections.abc import Sequence

DELIMITERS = (",", ";", "\t", "|")
_WORDS = 4  # at least are a header with blanks, rather than a sentence
_MOST = 0.9  # of a column are values, if others are mistakes
_NAME = re.compile(r"[^\W\d][\w .#/()*€$£%&'+°²³-]*")  # of a column, whatever stands below


def is_header(first: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first line names the columns: by its names, or because others have values.

    A name that is there twice, or is empty, names none.
    """
    if not all(cell.isprintable() for cell in first) or not any(map(str.strip, first)):
        return False
    if has_names(first):
        return True
    even = [row for row in rows if len(row) == len(first)]
    columns = zip(first, *even, strict=True)
    valued = any(_are_values(column) for name, *column in columns if name.strip())
    return valued and not any(map(_is_value, first))


def has_names(cells: Sequence[str]) -> bool:
    """Whether cells look like names of columns, each another one."""
    return len({*cells}) == len(cells) and all(map(_NAME.fullmatch, cells))


def has_words(line: str) -> bool:
    """Whether a line is names between single blanks, as a flow log of AWS begins with them."""
    words = line.split(" ")
    return len(words) >= _WORDS and has_names(words)


def _are_values(column: Sequence[str]) -> bool:
    cells = [cell for cell in column if cell]
    return bool(cells) and sum(map(_is_value, cells)) >= _MOST * len(cells)


def _is_value(cell: str) -> bool:
    """Whether a text is a number or a time rather than words: it has more digits than letters."""
    return sum(map(str.isdecimal, cell)) > sum(map(str.isalpha, cell))
