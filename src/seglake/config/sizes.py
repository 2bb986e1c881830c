"""Sizes that people write: 512MiB, 1.5 GiB, 64 KiB, 100 B."""

import re
from fractions import Fraction

_POWERS = {"k": 1, "m": 2, "g": 3, "t": 4}
_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*(?:b|([kmgt])(ib|i|b|))")


def size_bytes(text: str) -> int | None:
    """The bytes of a size; None for any other text, also for a number without a unit.

    Raises ValueError with the remedy for a unit such as GB, which is a power of 1000 to some and of
    1024 to others, and for a part of a byte.
    """
    match = _SIZE.fullmatch(text.strip().lower())
    if match is None:
        return None
    number, prefix, end = match.groups()
    power = _POWERS.get(prefix, 0)
    size, other = (Fraction(number) * base**power for base in (1024, 1000))
    if prefix and end != "ib":
        raise ValueError(
            f"{text!r} may be {int(other):,} or {int(size):,} bytes: write "
            f"{number}{prefix.upper()}iB for the second, or the number of bytes"
        )
    if size.denominator != 1:
        raise ValueError(f"{text!r} has a part of a byte: write a whole number of bytes")
    return int(size)
