"""Define the grammar of times in events: formats by name, and the directives of strptime patterns.

`seglake.config` checks settings against these tables, and `readers` compiles patterns with them. To
add a directive, add a row to DIRECTIVES. `candidates` has the formats that Seglake recognises
without a setting.
"""

import re
from typing import NamedTuple

EPOCH_POWERS = {"epoch_s": 3, "epoch_ms": 0, "epoch_us": -3, "epoch_ns": -6}
"""Formats of numbers: a number times this power of ten is milliseconds."""
ISO = "iso8601"

# Parts of a clock time, which directives fill.
YEAR, MONTH, DAY, HOUR, MINUTE, SECOND, MILLISECOND, OFFSET, HAS_ZONE = range(9)
YEAR_DAY, SHORT_YEAR, HALF_HOUR, HALF, WEEKDAY = range(9, 14)
PARTS = 14

# Kinds of steps: how the text of a directive is read.
LITERAL, BLANKS, NUMBER, FRACTION, NAME, ZONE, UTC = range(7)

MONTHS = ("january", "february", "march", "april", "may", "june", "july", "august", "september",
          "october", "november", "december")  # fmt: skip
SHORT_MONTHS = tuple(name[:3] for name in MONTHS)
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
SHORT_WEEKDAYS = tuple(name[:3] for name in WEEKDAYS)
_BLANKS = ("", " ", "\u00a0", "\u202f")
HALVES = ("am", "pm", *(f"{half}.{blank}m." for blank in _BLANKS for half in "ap"))
UTC_NAMES = ("utc", "gmt", "z")


class TimeFormat(NamedTuple):
    """The format of the times of a field.

    `text` is a format by name, a strptime pattern, or None for columns of a time type. Times
    without a zone are local to `zone` (IANA); patterns without a year use `year`. With `any_year`,
    times of a time type may be after the year 9999, or -1 (no timestamp). `ambiguous` selects the
    instant for a local time that clocks show twice, and `nonexistent` for one that clocks skip.
    """

    text: str | None
    zone: str = "UTC"
    year: int | None = None
    any_year: bool = False
    ambiguous: str = "earliest"
    nonexistent: str = "latest"


class Directive(NamedTuple):
    """The texts that a directive matches: NUMBERs with `digits` (fewest, most), or `names`."""

    kind: int
    part: int
    digits: tuple[int, int] = (0, 0)
    names: tuple[str, ...] = ()


DIRECTIVES = {
    "Y": Directive(NUMBER, YEAR, (4, 4)),
    "y": Directive(NUMBER, SHORT_YEAR, (2, 2)),
    "m": Directive(NUMBER, MONTH, (1, 2)),
    "d": Directive(NUMBER, DAY, (1, 2)),
    "e": Directive(NUMBER, DAY, (1, 2)),
    "H": Directive(NUMBER, HOUR, (1, 2)),
    "I": Directive(NUMBER, HALF_HOUR, (1, 2)),
    "M": Directive(NUMBER, MINUTE, (1, 2)),
    "S": Directive(NUMBER, SECOND, (1, 2)),
    "f": Directive(FRACTION, MILLISECOND),
    "p": Directive(NAME, HALF, names=HALVES),
    "b": Directive(NAME, MONTH, names=SHORT_MONTHS),
    "B": Directive(NAME, MONTH, names=MONTHS),
    "h": Directive(NAME, MONTH, names=SHORT_MONTHS),
    "a": Directive(NAME, WEEKDAY, names=SHORT_WEEKDAYS),
    "j": Directive(NUMBER, YEAR_DAY, (1, 3)),
    "A": Directive(NAME, WEEKDAY, names=WEEKDAYS),
    "z": Directive(ZONE, OFFSET),
    "Z": Directive(UTC, HAS_ZONE, names=UTC_NAMES),
}
SHORTHANDS = {"T": "%H:%M:%S", "D": "%m/%d/%y", "F": "%Y-%m-%d", "R": "%H:%M"}
SUPPORTED = (*DIRECTIVES, *SHORTHANDS, "%")


_OPTIONAL = re.compile(r"\[((?:[^\[\]%]|%[SfzZ%])*%[SfzZ](?:[^\[\]%]|%[SfzZ%])*)\]")


def alternatives(pattern: str) -> list[str]:
    """Return the patterns that a pattern with optional parts stands for.

    A part in brackets may be missing if it has no more than seconds, a fraction and a zone. The
    brackets may also be in the text, so that patterns which have them as plain text stay valid.

    Example:
        >>> alternatives("%H:%M[:%S]")
        ['%H:%M:%S', '%H:%M', '%H:%M[:%S]']
    """
    part = _OPTIONAL.search(pattern)
    if part is None:
        return [pattern.replace("\1", "[").replace("\2", "]")]
    before, after = pattern[: part.start()], pattern[part.end() :]
    texts = (part[1], "", f"\1{part[1]}\2")  # \1 and \2: brackets that are not optional parts
    found = (each for text in texts for each in alternatives(f"{before}{text}{after}"))
    return [*dict.fromkeys(found)]


def expanded(pattern: str) -> str:
    """Return the pattern with its shorthands spelled out."""
    return re.sub(r"%(.)", lambda match: SHORTHANDS.get(match[1], match[0]), pattern)


def unsupported(pattern: str) -> list[str]:
    """Return the unsupported directives of the pattern. A % at its end gives ""."""
    return [d for d in re.findall(r"%(.?)", pattern, re.DOTALL) if d not in SUPPORTED]


def parts_of(pattern: str) -> set[int]:
    """Return the parts of a clock time that the pattern fills."""
    letters = re.findall(r"%(.)", expanded(pattern))
    return {DIRECTIVES[letter].part for letter in letters if letter in DIRECTIVES}
