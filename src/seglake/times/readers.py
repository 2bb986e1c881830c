"""Read the times in events as milliseconds since the epoch.

There are three readers, each one kernel over all items: for numbers, for ISO 8601, and for strptime
patterns, which are compiled to a table of steps. Common rules:

- A time is rounded down to a millisecond.
- The result must be in 1970 to 9999, otherwise the reason is "timestamp out of range": Kafka
  refuses negative timestamps.
- A second of 60 (a leap second) is the first second of the next minute, as in POSIX.
- A value without a zone is local time in `timestamp.zone` (see `zones`).
"""

import re
from typing import NamedTuple

import numpy as np

from seglake.errors import ConfigError
from seglake.format.records import Flags, Int64s, Spans, fixed
from seglake.times import grammar
from seglake.times import time_kernels as kernels
from seglake.times.zones import read_local


class Times(NamedTuple):
    """Times in milliseconds since the epoch, with a code for each: READ if it was read.

    If the code is not READ, the milliseconds are undefined. `local` marks READ times without a zone
    in their text. Numbers are never local.
    """

    ms: Int64s
    codes: kernels.Codes
    local: Flags


def read_times(texts: Spans, form: grammar.TimeFormat) -> Times:
    """Read texts in the format `form`. Null is UNREADABLE. `texts.data` must be padded."""
    if form.text is None:
        raise ConfigError(
            "timestamp.format is missing. Set it, because the field does not have "
            "an Arrow time type"
        )
    # `fixed` gives the array one type, so that each kernel is compiled only once.
    texts = Spans(fixed(texts.data), texts.starts, texts.lengths)
    if form.text in grammar.EPOCH_POWERS:
        ms, codes = kernels.read_numbers(*texts, grammar.EPOCH_POWERS[form.text])
        return in_range(ms, codes, np.zeros(len(ms), np.bool_))
    if form.text == grammar.ISO:
        ms, codes, local = kernels.read_iso(*texts)
    else:
        year = -1 if form.year is None else form.year
        first, *others = map(compile_pattern, grammar.alternatives(form.text))
        ms, codes, local = kernels.read_pattern(*texts, first, NAMES, year)
        for steps in others:
            left = np.flatnonzero(codes == kernels.UNREADABLE)
            if len(left):
                again = kernels.read_pattern(*texts.take(left), steps, NAMES, year)
                ms[left], codes[left], local[left] = again
    local &= codes == kernels.READ
    return in_range(read_local(ms, codes, local, form), codes, local)


def in_range(ms: Int64s, codes: kernels.Codes, local: Flags) -> Times:
    """Return the times, with OUT_OF_RANGE for times outside 1970 to 9999."""
    outside = (codes == kernels.READ) & ((ms < 0) | (ms > kernels.MAX_MS))
    codes = np.where(outside, np.int8(kernels.OUT_OF_RANGE), codes)
    return Times(ms, codes, local & (codes == kernels.READ))


# ---------------- patterns
# Compile strptime patterns to tables of steps, which `time_kernels.read_pattern` executes.

_NAMES = list(dict.fromkeys(d.names for d in grammar.DIRECTIVES.values() if d.names))
_WORDS = [word for names in _NAMES for word in names]
_BYTES = [bytes(byte | 0x20 for byte in word.encode()).ljust(9, b"\0") for word in _WORDS]
# The bit 0x20 is set, as in the bytes that are compared, so that the case is ignored.
NAMES: kernels.Names = np.array([list(word) for word in _BYTES], np.uint8)


def compile_pattern(pattern: str) -> kernels.Steps:
    """Compile a strptime pattern to steps: rows of (kind, part or byte, low, high).

    `low` and `high` are the smallest and largest number of digits, or the range of rows in NAMES.
    Names of months and days are English, in any case. Whitespace matches one or more blanks, as
    in Python. A number matches as many digits as it can, without backtracking.

    Raises:
        ConfigError: A directive is not supported. The message names it.
    """
    steps: list[tuple[int, ...]] = []
    for text in re.findall(r"%.|\s+|[^%\s]+|%", grammar.expanded(pattern), re.DOTALL):
        if text == "%%":
            steps.append((grammar.LITERAL, ord("%"), 0, 0))
        elif text[0] == "%":
            if text[1:] not in grammar.DIRECTIVES:
                raise ConfigError(f"timestamp.format has {text}, which is not supported. Remove it")
            steps.append(_step(grammar.DIRECTIVES[text[1]]))
        elif text.isspace():
            steps.append((grammar.BLANKS, 0, 0, 0))
        else:
            steps += [(grammar.LITERAL, byte, 0, 0) for byte in text.encode()]
    return np.array(steps, np.int64)


def _step(directive: grammar.Directive) -> tuple[int, ...]:
    kind, part, digits, names = directive
    if kind == grammar.NUMBER or not names:
        return kind, part, *digits
    first = sum(len(before) for before in _NAMES[: _NAMES.index(names)])
    return kind, part, first, first + len(names)
