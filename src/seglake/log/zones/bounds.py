"""Describe the records of a read, and find segments and index blocks that can contain them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from seglake.format.records import Int64s
from seglake.log.piece import Window
from seglake.log.zones.zone_kernels import meeting

_NO_WINDOWS = np.empty((2, 0), np.int64)


class Bounds(NamedTuple):
    """The wanted records of a log partition: in `window` and in one of `windows`.

    Window i of `windows` has the timestamps windows[0, i] to windows[1, i] (inclusive), in ms.
    These windows ascend, with a hole between any two. If `windows` is empty, only `window` decides.
    `limits` are the limits of `window`.
    """

    window: Window
    limits: Int64s
    windows: Int64s

    @staticmethod
    def of(window: Window, windows: Int64s | None = None) -> Bounds:
        """Return the bounds for `window`, and for `windows` unless None."""
        limits = np.array(window.limits(), np.int64)
        return Bounds(window, limits, _NO_WINDOWS if windows is None else windows)

    def meet(
        self, lows: Int64s, highs: Int64s, firsts: Int64s, ends: Int64s, base: int = 0
    ) -> Int64s:
        """Return the items that can contain a wanted record, and if all their records are wanted.

        Item i has timestamps lows[i] to highs[i] (inclusive), and offsets base + firsts[i] to base
        + ends[i] (exclusive). The result has two rows: the numbers of the items, and 1 if all
        records of an item are wanted, else 0.
        """
        rows = np.empty((2, len(lows)), np.int64)
        count = meeting(lows, highs, firsts, ends, base, self.limits, self.windows, rows)
        return rows[:, :count]


def union(starts: Int64s, lasts: Int64s) -> Int64s:
    """Return the windows that the intervals starts[i] to lasts[i] cover together, for `Bounds`.

    Starts and lasts must ascend; starts are not negative, and no interval is empty.
    """
    begins = np.append(True, starts[1:] - 1 > lasts[:-1])[: len(starts)]
    finishes = np.append(begins[1:], True)[: len(starts)]
    return np.array([starts[begins], lasts[finishes]])
