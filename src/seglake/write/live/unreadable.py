"""Which records of a broker Spark cannot deliver.

Spark's Kafka source turns each timestamp into microseconds of 64 bits, and fails at one that does
not fit: of a producer that writes nanoseconds for milliseconds, say. Its error names no record, so
they are found by reading less and less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

MOST = 100  # records of one partition that are looked for


def is_overflow(error: BaseException) -> bool:
    """Whether a read failed since a timestamp is too large for Spark."""
    return "ArithmeticException" in str(error) and "overflow" in str(error)


def unreadable(reads: Callable[[int, int], bool], start: int, end: int) -> Iterator[int]:
    """The offsets [start, end) that cannot be read, in order.

    `reads` says of offsets [start, end) whether all records there can be read. It is asked some
    two times the logarithm of the count for each that cannot.
    """
    while start < end and not reads(start, end):
        low, high = start, end
        while high - low > 1:
            middle = (low + high) // 2
            if reads(low, middle):
                low = middle
            else:
                high = middle
        yield low
        start = low + 1


def around(start: int, end: int, gone: list[int]) -> Iterator[tuple[int, int]]:
    """The ranges of [start, end) between the offsets `gone`, which ascend; none is empty."""
    for offset in [*gone, end]:
        if start < offset:
            yield start, offset
        start = offset + 1
