"""Numbers of 100 ns since long ago, as Windows and .NET write times, which no format reads."""

from __future__ import annotations

import re
from typing import NamedTuple

_MOST = 0.95  # of the values must be such
_PER_S = 10_000_000
_NEAR_S = range(631_152_000, 4_102_444_800)  # 1990 to 2099
_NUMBER = re.compile(r"\d{18}")


class Ticks(NamedTuple):
    """A way to count, and what it counts at the beginning of 1970."""

    name: str
    epoch: int

    @property
    def remark(self) -> str:
        """What such numbers are, and what to do with them."""
        return (
            f"{self.name}, which Seglake does not read: write them as epoch_ms, "
            f"(n - {self.epoch}) / 10000, before the ingest; "
            "if they are nanoseconds since 1970, set timestamp.format = 'epoch_ns'"
        )


_KINDS = (
    Ticks("Windows FILETIME", 11_644_473_600 * _PER_S),
    Ticks(".NET ticks", 62_135_596_800 * _PER_S),
)


def ticks_of(values: list[str]) -> Ticks | None:
    """Which of the two nearly all values are; as nanoseconds they would be of 1974 or of 1990."""
    numbers = [int(value) for value in values if _NUMBER.fullmatch(value)]
    for kind in _KINDS:
        near = sum((number - kind.epoch) // _PER_S in _NEAR_S for number in numbers)
        if near and near >= _MOST * len(values):
            return kind
    return None
