"""Events to measure with: JSON lines in order of arrival whose event times lag behind.

Every line carries its number, so what a reader hands out can be compared with the plain list of
event times, which is the brute-force truth here.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Int64s = npt.NDArray[np.int64]

START_MS = 1_780_272_000_000  # 2026-06-01T00:00:00Z
EVENTS_PER_SECOND = 278
USERS = 50_000
BLOCK = 1 << 17  # lines that are made at once

_METHODS = pa.array(["GET", "GET", "GET", "POST"])
_PATHS = pa.array(["/", "/search", "/cart"] + [f"/product/{1000 + 37 * n}" for n in range(120)])
_BROWSERS = ("firefox/148 linux", "chrome/152 android", "edge/152 windows")
_AGENTS = pa.array([f"Mozilla/5.0 {name}" for name in _BROWSERS])
_NUMBER = slice(43, 55)  # the position of the number in each line


class Events(NamedTuple):
    """The files, and the event time in ms of event 0, 1, …, which are numbered by arrival."""

    files: list[Path]
    times: Int64s
    size_bytes: int

    @property
    def start_ms(self) -> int:
        """The time of the first arrival."""
        return START_MS

    @property
    def end_ms(self) -> int:
        """The time of the last arrival."""
        return START_MS + len(self.times) * 1000 // EVENTS_PER_SECOND

    def between(self, start_ms: int, end_ms: int) -> Int64s:
        """The numbers of the events with start <= time < end, ascending: all are looked at."""
        return np.flatnonzero((self.times >= start_ms) & (self.times < end_ms))


def generate(folder: Path, *, events: int, files: int, lateness_ms: int, seed: int = 1) -> Events:
    """Writes `events` lines of about 137 bytes into `files` files below `folder`.

    They arrive at a constant rate. How late they are is drawn from an exponential distribution with
    the mean `lateness_ms`; 0 puts them in order.
    """
    rng = np.random.default_rng(seed)
    numbers = np.arange(events, dtype=np.int64)
    arrivals = START_MS + numbers * 1000 // EVENTS_PER_SECOND
    late = rng.exponential(lateness_ms, events) if lateness_ms else np.zeros(events)
    times = arrivals - late.astype(np.int64)
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"events-{number:04d}.jsonl" for number in range(files)]
    for number, path in enumerate(paths):
        start, end = events * number // files, events * (number + 1) // files
        with path.open("wb") as out:
            for first in range(start, end, BLOCK):
                some = slice(first, min(first + BLOCK, end))
                out.write(_lines(rng, numbers[some], times[some]))
    return Events(paths, times, sum(path.stat().st_size for path in paths))


def numbers_in(lines: Any) -> Int64s:
    """The numbers of the events in a column of lines (text or bytes), ascending."""
    column = lines.combine_chunks() if isinstance(lines, pa.ChunkedArray) else lines
    data = column.cast(pa.large_binary())
    digits = pc.binary_slice(data, _NUMBER.start, _NUMBER.stop)
    found = digits.cast(pa.large_string()).cast(pa.int64())
    return np.sort(found.to_numpy(zero_copy_only=False))


def _lines(rng: np.random.Generator, numbers: Int64s, times: Int64s) -> Any:
    count = len(numbers)
    users = 100_000 + np.power(float(USERS), rng.random(count)).astype(np.int64)  # Zipf's law
    address = [_text(rng.integers(1, 255, count)) for _ in range(3)]
    took_ms = _text(1 + rng.lognormal(3, 1, count).astype(np.int64))
    lines = pc.binary_join_element_wise(
        '{"ts":', _text(times), ',"user":"u', _text(users),
        '","id":"', _text(10**12 + numbers, digits=12), '","msg":"', _pick(rng, _METHODS, count),
        " ", _pick(rng, _PATHS, count), " 200 ", took_ms, "ms 10.", address[0], ".", address[1],
        ".", address[2], " ", _pick(rng, _AGENTS, count), '"}\n', "",
    )  # fmt: skip
    _, offsets, data = lines.buffers()
    return data.slice(0, int(np.frombuffer(offsets, np.int32)[count]))


def _text(numbers: Int64s, digits: int | None = None) -> Any:
    """Decimal numbers; with `digits` only so many of the last ones."""
    text = pa.array(numbers).cast(pa.string())
    return text if digits is None else pc.utf8_slice_codeunits(text, -digits)


def _pick(rng: np.random.Generator, column: Any, count: int) -> Any:
    return column.take(pa.array(rng.integers(0, len(column), count)))
