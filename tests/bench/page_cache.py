"""The system's page cache, which on some machines has no file that was not read for seconds."""

from collections.abc import Iterable, Iterator
from pathlib import Path

_BYTES = 4 * 2**20  # read at a time


def hold(places: Iterable[str | Path]) -> None:
    """Have these files in the page cache, and those in these folders."""
    buffer = bytearray(_BYTES)
    for place in places:
        for path in _files(Path(place)):
            with path.open("rb", buffering=0) as file:
                while file.readinto(buffer):
                    pass


def _files(place: Path) -> Iterator[Path]:
    if place.is_dir():
        yield from (path for path in place.rglob("*") if path.is_file())
    else:
        yield place
