"""Format counts, sizes, times and paths for people, and suggest similar names."""

import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from functools import partial
from shlex import quote
from textwrap import fill
from typing import IO

from seglake.times.instants import format_ms


def nearest(name: str, names: Iterable[str], most: int = 1) -> list[str]:
    """Return up to `most` names similar to `name`, ignoring case, the most similar name first."""
    by_lower = {each.lower(): each for each in names}
    return [by_lower[each] for each in get_close_matches(name.lower(), by_lower, most)]


def suggest(name: str, names: Iterable[str], lists: str) -> str:
    """Return a suggestion of the most similar name, or `lists` (where to find all names)."""
    near = nearest(name, names)
    return f"Did you mean {near[0]!r}?" if near else lists


def suggest_or_list(name: str, names: Sequence[str], prefix: str = "") -> str:
    """Return a suggestion of the name most similar to `name`, or else a list of all names."""
    close = nearest(name, names) or get_close_matches(name.replace("_", "."), names, 1, 0.4)
    if close:
        return f"Did you mean {prefix}{close[0]}?"
    return f"Use one of {', '.join(prefix + other for other in names)}"


def printable(text: str) -> str:
    """Return `text` with escaped control characters, so that it is one line in a terminal."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def counted(count: int, noun: str) -> str:
    """Return a number and its noun, as in "1 file" and "1,000 files"."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def short_bytes(count: float) -> str:
    """Return a size as text, such as "1.5 MiB", in the largest unit that gives at least 1."""
    units = ["TiB", "GiB", "MiB", "KiB", "B"]
    while count >= 1024 and len(units) > 1:
        count /= 1024
        units.pop()
    return f"{count:,.1f}".removesuffix(".0") + f" {units[-1]}"


def wrap(text: str, file: IO[str] | None = None) -> str:
    """Wrap a line to the width of the terminal. Return it unchanged if there is no terminal.

    `file` is the stream that the caller writes to, by default standard output.
    """
    width = terminal_width(file)
    if width is None or len(text) <= width:
        return text
    begin = " " * (len(text) - len(text.lstrip()) + 2)
    return fill(
        text, width, subsequent_indent=begin, break_on_hyphens=False, break_long_words=False
    )


def duration(ms: int) -> str:
    """Return a time span in at most two units, as in "3 d 4 h"."""
    if ms < 1000:
        return f"{ms} ms"
    units = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000))
    parts = [(ms // size if i == 0 else ms % units[i - 1][1] // size, name)
             for i, (name, size) in enumerate(units)]  # fmt: skip
    first = next(i for i, (count, _) in enumerate(parts) if count)
    return " ".join(f"{count} {name}" for count, name in parts[first : first + 2] if count)


def short_time(ms: int) -> str:
    """Return a time as ISO 8601 in UTC, without zero milliseconds. Return "-" if it is negative."""
    return format_ms(ms).replace(".000Z", "Z") if ms >= 0 else "-"


def terminal_width(file: IO[str] | None = None) -> int | None:
    """Return the width of the terminal, or None if the stream is not a terminal.

    The stream is `file`, by default standard output.
    """
    # An object that replaces standard output may have no `isatty`.
    isatty = getattr(file or sys.stdout, "isatty", bool)
    return shutil.get_terminal_size().columns if isatty() else None


def path_ends(paths: Iterable[str]) -> Callable[[str], str]:
    """Return a function that shortens a path to its last parts.

    It keeps as many parts as are needed to distinguish all of `paths`.
    """
    all_paths = {*paths}
    deepest = max((path.count("/") for path in all_paths), default=0)
    depths = range(1, deepest + 2)
    differ = (d for d in depths if len({_end(path, d) for path in all_paths}) == len(all_paths))
    return partial(_end, depth=next(differ, 1))


def _end(path: str, depth: int) -> str:
    """Return the last `depth` parts of a path."""
    return "/".join(path.split("/")[-depth:])


def history_command(root: str, topic: str) -> str:
    """Return a hint with the command that lists the runs of a topic."""
    return f"`seglake history {quote(root)} --topic {topic}` lists the runs"
