"""Generate web events to try Seglake with, as JSON lines from many servers.

Lines are in order of arrival. Event times are seconds before the arrival, or minutes before it in
one line of a thousand. A few users and pages have most of the traffic. Some lines are broken. Equal
seeds generate equal lines.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Strings = Any  # pa.StringArray: the stubs do not type what pyarrow.compute returns

START_MS = 1_780_272_000_000  # 2026-06-01T00:00:00Z
SPAN_MS = 24 * 3_600_000
BROKEN_PER_MILLION = 500
LATE_SHARE = 0.001
USERS = 50_000
BLOCK_LINES = 1 << 16  # lines in memory at a time

_PATHS: Strings = pa.array(
    ["/", "/search", "/login", "/cart", "/checkout", "/account", "/help", "/api/v1/items"]
    + [f"/product/{1000 + 37 * number}" for number in range(120)]
)
_STATUSES: Strings = pa.array(["200", "304", "404", "500"])
_STATUS_LIMITS = [0.88, 0.95, 0.99]
_AGENTS: Strings = pa.array(
    ["firefox/148 linux", "chrome/152 android", "safari/27 ios", "edge/152 windows"]
)


class GenerateResult(NamedTuple):
    """The written files, and their counts of good lines and broken lines."""

    files: list[Path]
    events: int
    broken: int


class _Visitors(NamedTuple):
    """A name and an address for each user, the most active first."""

    names: Strings
    addresses: Strings

    @staticmethod
    def draw(rng: np.random.Generator) -> _Visitors:
        names = _join("u", _text(rng.permutation(USERS) + 100_000))
        octets = [_text(rng.integers(1, 255, USERS)) for _ in range(3)]
        return _Visitors(names, pc.binary_join_element_wise("10", *octets, "."))


def generate(
    folder: str | Path, *, events: int = 1_000_000, files: int = 16, seed: int = 1
) -> GenerateResult:
    """Write `events` good lines, and 500 broken lines per million, to `files` files in `folder`.

    One day is divided equally among the files, and a file has the lines that arrive in its part.
    Every fourth file is a .gz. Files with the same names are replaced.

    Raises:
        ValueError: `files` is below 1, or `events` is below `files`.
    """
    if not 1 <= files <= events:
        raise ValueError(f"{events} events cannot fill {files} files. Make more events")
    broken = events * BROKEN_PER_MILLION // 1_000_000
    visitors = _Visitors.draw(np.random.default_rng([seed]))
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for number in range(files):
        rng = np.random.default_rng([seed, number])
        is_broken = _scatter(rng, _share(events, number, files), _share(broken, number, files))
        arrivals = _arrivals(rng, len(is_broken), number, files)
        written.append(folder / f"events-{number:04d}.jsonl{'.gz' if number % 4 == 3 else ''}")
        with _opened(written[-1]) as out:
            for start in range(0, len(arrivals), BLOCK_LINES):
                block = slice(start, start + BLOCK_LINES)
                block_times = arrivals[block] - _lateness(rng, len(arrivals[block]))
                out.write(_lines(rng, visitors, block_times, is_broken[block]))
    return GenerateResult(written, events, broken)


def _share(total: int, number: int, files: int) -> int:
    """Divide `total` items evenly among `files` files. Return the number of items of one file."""
    return total * (number + 1) // files - total * number // files


def _scatter(rng: np.random.Generator, good: int, broken: int) -> Bools:
    """Return which lines of a file are broken."""
    is_broken = np.zeros(good + broken, np.bool_)
    is_broken[rng.choice(good + broken, broken, replace=False)] = True
    return is_broken


def _arrivals(rng: np.random.Generator, lines: int, number: int, files: int) -> Int64s:
    """Return the sorted arrival times of a file's lines in ms, all in the file's part of a day."""
    start = START_MS + SPAN_MS * number // files
    return start + np.sort(rng.integers(0, SPAN_MS // files, lines))


def _lateness(rng: np.random.Generator, lines: int) -> Int64s:
    """Return the time in ms between each event and its arrival."""
    usual = rng.exponential(2_000, lines).astype(np.int64)
    stalled = rng.integers(60_000, 600_000, lines)
    return np.where(rng.random(lines) < LATE_SHARE, stalled, usual)


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for writing. A .gz has no time or name, so equal lines give equal bytes."""
    with path.open("wb") as out:
        if path.suffix != ".gz":
            yield out
            return
        with gzip.GzipFile("", "wb", compresslevel=1, fileobj=out, mtime=0) as packed:
            yield packed  # type: ignore[misc]  # GzipFile has the methods of IO[bytes]


def _lines(
    rng: np.random.Generator, visitors: _Visitors, times: Int64s, broken: Bools
) -> pa.Buffer:
    """Return the bytes of lines, one for each of `times`. Lines that are `broken` are damaged."""
    stamp, rest = _join('"ts":', _text(times), ","), _without_time(rng, visitors, len(times))
    damage = np.where(broken, rng.integers(1, 4, len(times)), 0)
    cut, missing, nonsense = (pa.array(damage == kind) for kind in (1, 2, 3))
    rest = pc.replace_with_mask(rest, cut, pc.utf8_slice_codeunits(rest.filter(cut), 0, 40))
    stamp = pc.replace_with_mask(stamp, missing, "")
    stamp = pc.replace_with_mask(stamp, nonsense, '"ts":"soon",')
    return _bytes(_join("{", stamp, rest, "\n"))


def _without_time(rng: np.random.Generator, visitors: _Visitors, count: int) -> Strings:
    """Return the rest of each line, after its opening brace and its time."""
    user = _few(rng, USERS, count)
    path = _pick(_PATHS, _few(rng, len(_PATHS), count))
    status = _pick(_STATUSES, np.searchsorted(_STATUS_LIMITS, rng.random(count), side="right"))
    took_ms = _text(1 + rng.lognormal(3, 1, count).astype(np.int64))
    name, address = _pick(visitors.names, user), _pick(visitors.addresses, user)
    agent = _pick(_AGENTS, user % len(_AGENTS))
    request = _join('"user":"', name, '","path":"', path, '","status":', status)
    return _join(request, ',"ms":', took_ms, ',"ip":"', address, '","agent":"', agent, '"}')


def _pick(column: Strings, rows: Int64s) -> Strings:
    return column.take(pa.array(rows))


def _few(rng: np.random.Generator, kinds: int, count: int) -> Int64s:
    """Draw `count` numbers below `kinds`. 0 is about k + 1 times as frequent as k (Zipf's law)."""
    return np.power(float(kinds), rng.random(count)).astype(np.int64) - 1


def _text(numbers: Int64s) -> Strings:
    return pa.array(numbers).cast(pa.string())


def _join(*parts: Strings) -> Strings:
    """Join the parts, which are columns or constants, in each row."""
    return pc.binary_join_element_wise(*parts, "")


def _bytes(lines: Strings) -> pa.Buffer:
    """Return the contiguous bytes of a new column's strings, without a copy."""
    _, offsets, data = lines.buffers()
    length = int(np.frombuffer(offsets, np.int32)[len(lines)])
    return pa.py_buffer(data).slice(0, length)
