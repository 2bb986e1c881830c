"""Strptime patterns as tables of steps, which `time_kernels.read_pattern` carries out."""

import re

import numpy as np

from seglake.errors import ConfigError
from seglake.times.grammar import BLANKS, DIRECTIVES, LITERAL, NUMBER, Directive, expanded
from seglake.times.time_kernels import Names, Steps

_NAMES = list(dict.fromkeys(d.names for d in DIRECTIVES.values() if d.names))
_WORDS = [word for names in _NAMES for word in names]
_BYTES = [bytes(byte | 0x20 for byte in word.encode()).ljust(9, b"\0") for word in _WORDS]
NAMES: Names = np.array([list(word) for word in _BYTES], np.uint8)  # in any case, as is compared


def compile_pattern(pattern: str) -> Steps:
    """The steps of a strptime pattern: rows of (kind, part or byte, low, high).

    `low` and `high` are the fewest and the most digits of a number, or the range of rows in NAMES.
    Names of months and days are English, in any case. Whitespace stands for one or more blanks, as
    in Python. A number takes as many digits as it can; nothing tries it again with fewer.

    Raises:
        ConfigError: a directive is not supported; the message names it.
    """
    steps: list[tuple[int, ...]] = []
    for text in re.findall(r"%.|\s+|[^%\s]+|%", expanded(pattern), re.DOTALL):
        if text == "%%":
            steps.append((LITERAL, ord("%"), 0, 0))
        elif text[0] == "%":
            if text[1:] not in DIRECTIVES:
                raise ConfigError(f"timestamp.format: {text} is not supported")
            steps.append(_step(DIRECTIVES[text[1]]))
        elif text.isspace():
            steps.append((BLANKS, 0, 0, 0))
        else:
            steps += [(LITERAL, byte, 0, 0) for byte in text.encode()]
    return np.array(steps, np.int64)


def _step(directive: Directive) -> tuple[int, ...]:
    kind, part, digits, names = directive
    if kind == NUMBER or not names:
        return kind, part, *digits
    first = sum(len(before) for before in _NAMES[: _NAMES.index(names)])
    return kind, part, first, first + len(names)
