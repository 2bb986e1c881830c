"""Which records a read wants, and what can hold one of them: segments, and blocks of a segment."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from seglake.format.records import Int64s
from seglake.log.piece import Window
from seglake.log.zones.kernels import meeting

_NO_WINDOWS = np.empty((2, 0), np.int64)


class Bounds(NamedTuple):
    """Which records of a log partition a read wants: those in `window` and in one of `windows`.

    The timestamps of windows[i] are windows[0, i] to windows[1, i] (exclusive), in ms; windows
    ascend, with a hole between any two. Without any, `window` decides alone. `limits` are its own.
    """

    window: Window
    limits: Int64s
    windows: Int64s

    @staticmethod
    def of(window: Window, windows: Int64s | None = None) -> Bounds:
        """Records in `window`, and in one of `windows` if these are given."""
        limits = np.array(window.limits(), np.int64)
        return Bounds(window, limits, _NO_WINDOWS if windows is None else windows)

    def meet(
        self, lows: Int64s, highs: Int64s, firsts: Int64s, ends: Int64s, base: int = 0
    ) -> Int64s:
        """The items that can hold a wanted record, and whether all their records are wanted.

        Item i has timestamps lows[i] to highs[i] (inclusive), and offsets base + firsts[i] to
        base + ends[i] (exclusive). The result has two rows: numbers of items, and 1 or 0.
        """
        rows = np.empty((2, len(lows)), np.int64)
        count = meeting(lows, highs, firsts, ends, base, self.limits, self.windows, rows)
        return rows[:, :count]


def union(starts: Int64s, ends: Int64s) -> Int64s:
    """The windows that the intervals [starts[i], ends[i]) cover together, as `Bounds` has them.

    Starts and ends must ascend, and no interval may be empty.
    """
    begins = np.append(True, starts[1:] > ends[:-1])[: len(starts)]
    finishes = np.append(begins[1:], True)[: len(starts)]
    return np.array([starts[begins], ends[finishes]])
