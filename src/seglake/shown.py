"""Tables of text, for commands and for objects that show themselves: in a notebook as HTML.

A table has a width. A number or a time stands in one piece; a text is cut, and prose goes on in the
next line, or has lines of its own below its row. Where even that has no room, columns leave, and a
line under the table names them.
"""

# ruff: noqa: PLC0415  # a table is rarely needed, and its libraries take time to import

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from io import StringIO
from itertools import chain, islice
from textwrap import fill
from typing import IO, TYPE_CHECKING, Any, Literal, NamedTuple

from seglake.times.instants import format_ms

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable

_ROWS, _WIDTH, _ITEMS, _GAP = 20, 160, 20, 2
_LEAST = {"cut": 20, "wrap": 24}  # characters of a column, if it has more
_NONE = "-"
_EMPTY: tuple[object, ...] = "", None, [], {}, 0, -1
_PLACES = "timestamp", "_at_ms", "lateness_ms", "offset", "partition", "position", "version"

Fit = Literal["whole", "cut", "wrap", "below"]
_EXACT, _LETTERS = 40, 5  # characters of a number or a time, and letters in it, as in 20/Nov/2026
_SEVERAL = re.compile(r"[;|\t]|,.*,")  # of values in a text, such as a line of CSV
_GROUPED = re.compile(r"-?\d{1,3}(,\d{3})+(?![\d,])")
_ZERO = re.compile(r"0(\.0+)?( B| ms)?")
_LINES = "wrap", "below"  # a text with several lines keeps them


class Column(NamedTuple):
    """A column of a table: a field of the rows, its heading, and the text of a value.

    None is shown as `none`. Where there is no room, the columns without a value leave, unnamed;
    then those of figures that are all 0, so that no figure leaves for a 0; then those of the
    largest `rank`, from the right; one that fits beside the rest stays. `fit` says whether a text
    always stays whole, and `least` how much of a longer one stays, if not the usual number of
    characters; of a table on a terminal one column may be "below", and then each row has one line,
    without prose. `shorten` cuts a text to so many characters, if the usual place is wrong.
    """

    field: str
    heading: str
    look: Callable[[Any], str] = str
    right: bool = False
    rank: int = 0
    fit: Fit = "cut"
    none: str = _NONE
    least: int = 0
    shorten: Callable[[str, int], str] | None = None

    def text(self, value: object) -> str:
        """A value as it is shown."""
        text = self.none if value is None else self.look(value)
        return (
            "\n".join(map(printable, text.split("\n"))) if self.fit in _LINES else printable(text)
        )


def printable(text: str) -> str:
    """A text in one line, and without what a terminal would obey."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def number(field: str, heading: str, rank: int = 0) -> Column:
    """A column of numbers, with separators."""
    return Column(field, heading, "{:,}".format, right=True, rank=rank, fit="whole")


def size(field: str, heading: str, rank: int = 0) -> Column:
    """A column of bytes, shown as KiB, MiB and so on."""
    return Column(field, heading, short_bytes, right=True, rank=rank, fit="whole")


def moment(field: str, heading: str, rank: int = 0) -> Column:
    """A column of times in ms; a negative one, which stands for none, is shown as "-"."""
    return Column(field, heading, short_time, rank=rank, fit="whole")


def second(field: str, heading: str, rank: int = 0) -> Column:
    """A column of times in ms that is shown in whole seconds."""
    return Column(field, heading, lambda ms: short_time(ms // 1000 * 1000), rank=rank, fit="whole")


def prose(field: str, heading: str, rank: int = 0) -> Column:
    """A column of sentences."""
    return Column(field, heading, rank=rank, fit="wrap")


def counted(count: int, noun: str) -> str:
    """A number and its noun, as in "1 file" and "1,000 files"."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def short_bytes(count: float) -> str:
    """A size in the largest unit that leaves at least one, as in "1.5 MiB"."""
    units = ["TiB", "GiB", "MiB", "KiB", "B"]
    while count >= 1024 and len(units) > 1:
        count /= 1024
        units.pop()
    return f"{count:,.1f}".removesuffix(".0") + f" {units[-1]}"


def folded(text: str, file: IO[str] | None = None) -> str:
    """A line for people, broken between words where the terminal ends; as it is elsewhere.

    It is written to `file`, or else to standard output.
    """
    width = terminal_width(file)
    if width is None or len(text) <= width:
        return text
    begin = " " * (len(text) - len(text.lstrip()) + _GAP)
    return fill(
        text, width, subsequent_indent=begin, break_on_hyphens=False, break_long_words=False
    )


def duration(ms: int) -> str:
    """A time span in two units at most, as in "3 d 4 h"."""
    if ms < 1000:
        return f"{ms} ms"
    units = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000))
    parts = [(ms // size if i == 0 else ms % units[i - 1][1] // size, name)
             for i, (name, size) in enumerate(units)]  # fmt: skip
    first = next(i for i, (count, _) in enumerate(parts) if count)
    return " ".join(f"{count} {name}" for count, name in parts[first : first + 2] if count)


def short_time(ms: int) -> str:
    """A time as ISO 8601 in UTC, without milliseconds if it has none; "-" for a negative one."""
    return format_ms(ms).replace(".000Z", "Z") if ms >= 0 else _NONE


class Table(NamedTuple):
    """What an object shows: a sentence, columns, rows of values, and how many rows there are.

    `rows` may be only the first of `total`.
    """

    title: str
    columns: Sequence[Column]
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


def keeping_ends(texts: Iterable[str]) -> Callable[[str, int], str]:
    """A `Column.shorten` that cuts what all these texts begin with, then what all end with."""
    distinct = {*texts}
    first = in_common(distinct)
    last = in_common({text[first:][::-1] for text in distinct})

    def shorten(text: str, width: int) -> str:
        if len(text) - first < width:
            return without_middle(text, width, width - 1)
        if len(text) - first - last < width - 1:
            begin = "…" * bool(first)
            return f"{begin}{text[first : first + width - 1 - len(begin)]}…"
        return without_middle(text, width, (width - 1) // 3)

    return shorten


def in_common(texts: Collection[str]) -> int:
    """How many letters all texts begin with; 0 for one text alone."""
    letters = enumerate(zip(*texts, strict=False))  # as long as the shortest
    return next((at for at, each in letters if len({*each}) > 1), 0)


def path_ends(paths: Iterable[str]) -> Callable[[str], str]:
    """A function that gives the end of a path: the name, and the folders that tell these apart."""
    all_paths = {*paths}
    deepest = max((path.count("/") for path in all_paths), default=0)
    depths = range(1, deepest + 2)
    differ = (d for d in depths if len({_end(path, d) for path in all_paths}) == len(all_paths))
    return partial(_end, depth=next(differ, 1))


def _end(path: str, depth: int) -> str:
    """The last parts of a path."""
    return "/".join(path.split("/")[-depth:])


def terminal_width(file: IO[str] | None = None) -> int | None:
    """The characters in a line of the terminal; None where `file`, or standard output, is none."""
    isatty = getattr(file or sys.stdout, "isatty", bool)  # what stands in for it may lack it
    return shutil.get_terminal_size().columns if isatty() else None


def draw(
    columns: Sequence[Column],
    rows: Iterable[Sequence[object]],
    file: IO[str],
    width: int | None,
    *,
    title: str = "",
    rest: str = "",
) -> None:
    """Write a table that is at most `width` wide; None is any width.

    `rest` says where all of it is, if columns left or texts were cut. No text is markup, whatever
    brackets and colons it has.
    """
    from rich.console import Console
    from rich.text import Text

    cells = [list(map(Column.text, columns, row)) for row in rows]
    below = list[str]()
    if width is not None:
        columns, cells, below = _apart(columns, cells)
    widths = _fit(columns, cells, width)
    total = max(1, sum(widths.values()) + _GAP * (len(widths) - 1))
    page = StringIO()  # of a table of any width
    console = Console(  # a notebook says that it takes colours, and shows what rich prints itself
        file=page if width is None else file,
        width=total,
        highlight=False,
        soft_wrap=True,
        color_system="auto" if file.isatty() else None,
        force_jupyter=False,
    )
    if title:
        console.print(Text(title, "table.title"))
    with console.capture() as captured:
        console.print(_rich(columns, cells, widths))
    drawn = captured.get()
    console.file.write(_with_below(drawn, below, console, width) if width and below else drawn)
    remark = _remark(columns, cells, widths, rest)
    if remark:
        console.print(Text(fill(remark, width or len(remark), break_on_hyphens=False)))
    text = page.getvalue()
    if not (getattr(file, "encoding", None) or "utf-8").lower().startswith("utf"):
        text = text.replace("─", "-")  # as rich does on a terminal
    file.writelines(map(_unpadded, text.splitlines()))


def _apart(
    columns: Sequence[Column], cells: list[list[str]]
) -> tuple[list[Column], list[list[str]], list[str]]:
    """The columns and cells without the one whose texts stand below the rows, and these texts."""
    below = next((at for at, column in enumerate(columns) if column.fit == "below"), len(columns))
    beside = [at for at in range(len(columns)) if at != below]
    texts = [row[below] for row in cells if below < len(row)]
    return [columns[at] for at in beside], [[row[at] for at in beside] for row in cells], texts


def _with_below(drawn: str, below: Sequence[str], console: Console, width: int) -> str:
    """A table whose rows have a line each, and folded below each of them a text."""
    from rich.text import Text

    lines = drawn.splitlines()
    heads = len(lines) - len(below)
    whole = lines[:heads]
    for line, text in zip(lines[heads:], below, strict=True):
        folded = Text(text).wrap(console, max(1, width - _GAP))
        whole += [line, *(f"{'':{_GAP}}{each.plain.rstrip()}" for each in folded)]
    return "".join(f"{line}\n" for line in whole)


def _unpadded(line: str) -> str:
    """A line of a table of any width without the spaces at its end; a rule has an end, too."""
    bare = line.rstrip()
    return (bare[:_WIDTH] if bare.strip("─- ") == "" else bare) + "\n"


def _rich(
    columns: Sequence[Column], cells: Iterable[Sequence[str]], widths: Mapping[int, int]
) -> RichTable:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as RichTable
    from rich.text import Text

    heads = any(column.heading for column in columns)
    drawn = RichTable(
        box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), show_header=heads
    )
    for at, width in widths.items():
        heading, wraps = Text(columns[at].heading), columns[at].fit in _LINES
        justify: Literal["left", "right"] = "right" if columns[at].right else "left"
        drawn.add_column(
            heading, justify=justify, width=width, no_wrap=not wraps, overflow="fold"
        )  # fmt: skip
    for row in cells:
        drawn.add_row(*(Text(_cut(row[at], columns[at], widths[at])) for at in widths))
    return drawn


def _fit(
    columns: Sequence[Column], cells: Sequence[Sequence[str]], width: int | None
) -> dict[int, int]:
    """The numbers of the columns that are shown, and how wide each is."""
    from rich.cells import cell_len

    heads = [cell_len(column.heading) for column in columns]
    full = [
        max(head, *(cell_len(line) for row in cells for line in row[at].split("\n")), 0)
        for at, head in enumerate(heads)
    ]
    if width is None:
        return dict(enumerate(full))
    least = [
        max(
            head, _exact(column, cells, at), min(want, column.least or _LEAST.get(column.fit, want))
        )
        for at, (column, head, want) in enumerate(zip(columns, heads, full, strict=True))
    ]
    ranks = [(_is_zero(cells, columns, at), each.rank, at) for at, each in enumerate(columns)]
    fitting = _fitting(ranks, _needed(cells, full, width), least, width)
    spare = width - sum(least[at] for at in fitting) - _GAP * (len(fitting) - 1)
    widths = {at: least[at] for at in fitting}
    for done, at in enumerate(sorted(fitting, key=lambda at: full[at] - least[at])):
        more = max(0, min(full[at] - least[at], spare // (len(fitting) - done)))
        widths[at] += more
        spare -= more
    return widths if len(fitting) > 1 else {at: min(width, widths[at]) for at in fitting}


def _needed(cells: Sequence[Sequence[str]], full: Sequence[int], width: int) -> list[int]:
    """The numbers of all columns, or of those with a value if there is no room for all."""
    every = list(range(len(full)))
    if sum(full) + _GAP * (len(full) - 1) <= width:
        return every
    return [at for at in every if not _has_no_value(cells, at)] or every[:1]


def _fitting(
    ranks: Sequence[tuple[bool, int, int]], needed: Sequence[int], least: Sequence[int], width: int
) -> list[int]:
    fitting, left = [*needed], list[int]()
    while len(fitting) > 1 and sum(least[at] + _GAP for at in fitting) - _GAP > width:
        left.append(max(fitting, key=ranks.__getitem__))
        fitting.remove(left[-1])
    for at in reversed(left):  # a narrow one may have room where a wide one had none
        if sum(least[each] + _GAP for each in (*fitting, at)) - _GAP <= width:
            fitting.append(at)
    return sorted(fitting)


def _exact(column: Column, cells: Sequence[Sequence[str]], at: int) -> int:
    """How wide the numbers and times of a column are, none of which is cut or folded.

    No word of prose is, either, such as the name of a setting, unless it is long.
    """
    if column.fit == "wrap":
        words = chain.from_iterable(row[at].split() for row in cells)
        return max((len(word) for word in words if len(word) <= _EXACT), default=0)
    texts = (row[at].split() if column.fit in _LINES else [row[at]] for row in cells)
    return max((len(text) for text in chain.from_iterable(texts) if _is_exact(text)), default=0)


def _is_exact(text: str) -> bool:
    if _SEVERAL.search(text) and not _GROUPED.match(text):
        return False
    letters, digits = sum(map(str.isalpha, text)), sum(map(str.isdigit, text))
    return len(text) <= _EXACT and letters <= _LETTERS and 2 * digits >= len(text)


def _has_no_value(cells: Sequence[Sequence[str]], at: int) -> bool:
    """Whether no row has a value in a column; False if there is no row."""
    return bool(cells) and all(row[at] == _NONE for row in cells)


def _is_zero(cells: Sequence[Sequence[str]], columns: Sequence[Column], at: int) -> bool:
    """Whether no row has more than 0 in a column of figures, which no offset or partition is."""
    if not cells or not columns[at].right or columns[at].field.endswith(_PLACES):
        return False
    return all(row[at] == _NONE or _ZERO.fullmatch(row[at]) for row in cells)


def _cut(text: str, column: Column, width: int) -> str:
    """A text with "…" in the place of its middle, if it is too long for its column."""
    from rich.cells import cell_len

    if column.fit in _LINES or cell_len(text) <= width:
        return text
    if column.shorten is not None:
        return column.shorten(text, width)
    return without_middle(text, width, (width - 1) // 3)


def without_middle(text: str, width: int, end: int) -> str:
    """A text of so many characters, of which the last `end` are its end."""
    from rich.cells import set_cell_size

    return f"{set_cell_size(text, width - 1 - end)}…{set_cell_size(text[::-1], end)[::-1]}"


def _remark(
    columns: Sequence[Column], cells: Sequence[Sequence[str]], widths: Mapping[int, int], rest: str
) -> str:
    """A sentence about what there was no room for; empty if there was."""
    left = [at for at in range(len(columns)) if at not in widths and not _has_no_value(cells, at)]
    zeros = [columns[at].heading for at in left if _is_zero(cells, columns, at)]
    more = [columns[at].heading for at in left if columns[at].heading not in zeros]
    cut = rest and any(_cut(row[at], columns[at], widths[at]) != row[at]
                       for row in cells for at in widths)  # fmt: skip
    said = [f"all 0: {', '.join(zeros)}"] * bool(zeros)
    said += [f"no room for: {', '.join(more)}"] * bool(more)
    said += ["… is where a text is cut"] * bool(cut)
    return "; ".join([*said, *([rest] if said and rest else [])])


def _text(table: Table) -> str:
    page = StringIO()
    width = terminal_width() or _WIDTH
    draw(table.columns, table.rows[:_ROWS], page, width)
    lines = [table.title, *(line.rstrip() for line in page.getvalue().splitlines())]
    return "\n".join(filter(None, [*lines, table.left_out]))


def _html(table: Table) -> str:
    import html

    heads = "".join(f"<th>{html.escape(each.heading)}</th>" for each in table.columns)
    rows = "".join(
        f"<tr>{''.join(map(_html_cell, table.columns, row))}</tr>"
        for row in islice(table.rows, _ROWS)
    )
    return (
        f"<p>{html.escape(table.title)}</p><table><thead><tr>{heads}</tr></thead>"
        f"<tbody>{rows}</tbody></table><p>{html.escape(table.left_out)}</p>"
    )


def _html_cell(column: Column, value: object) -> str:
    import html

    return f"<td>{html.escape(column.text(value))}</td>"


def of_report(title: str, report: Mapping[str, Any]) -> Table:
    """The table of a report: a row for each value that is not empty."""
    rows = [(name.removesuffix("_ms").replace("_", " "), _reported(name, value))
            for name, value in filled(report).items()]  # fmt: skip
    columns = [Column("name", "", fit="whole"), prose("value", "")]
    return Table(title, columns, rows, len(rows))


def filled(report: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a report that are not empty."""
    return {name: value for name, value in report.items() if not _is_empty(name, value)}


def _is_empty(name: str, value: object) -> bool:
    """Whether a value of a report says nothing: a count of 0, but no time and no place of 0."""
    empty: tuple[object, ...] = ("", None, [], {}, -1) if name.endswith(_PLACES) else _EMPTY
    return value in empty


def _reported(name: str, value: Any) -> str:
    """A value of a report, by its name; an item of a list or of a dictionary has a line."""
    if isinstance(value, dict):
        return _lines([f"{key}: {_reported('', item)}" for key, item in value.items()])
    if isinstance(value, Sequence) and not isinstance(value, str):
        many = name.endswith("_files")
        return counted(len(value), "file") if many else _lines([_reported("", v) for v in value])
    if not isinstance(value, int) or isinstance(value, bool):
        return str(value)
    if name.endswith(("timestamp", "_at_ms")):
        return short_time(value)
    if name.endswith("_ms"):
        return duration(value)
    return short_bytes(value) if "bytes" in name.split("_") else f"{value:,}"


def _lines(items: Sequence[str]) -> str:
    more = len(items) - _ITEMS
    return "\n".join([*items[:_ITEMS], *([f"… and {more:,} more"] if more > 0 else [])])
