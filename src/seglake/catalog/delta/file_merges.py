"""Which data files of the catalog are to become one: a rule that looks at nothing but their rows.

Every commit leaves a small file for each kind of row. As in a log-structured merge tree, files of
about one size wait until there are enough of them, and what they become is larger by a size. So a
row is written again once for each size that there is, and n commits leave some log n files.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from seglake.catalog.rows import DataFile

FAN_IN = 16  # files of one size that become one
ENOUGH_ROWS = 100_000  # a file that has so many is left alone: a merge has to fit into memory

_Sizes = dict[int, list[DataFile]]


def due(files: Iterable[DataFile], fan_in: int) -> list[list[DataFile]]:
    """The groups of files that are to be merged now, each of one kind and topic.

    Files are of size s if they have fan_in**s to fan_in**(s + 1) rows (exclusive). The largest size
    of which there are `fan_in` files is due, and with it everything that is smaller.
    """
    groups: dict[tuple[str, str], dict[int, list[DataFile]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for file in sorted(files):
        if file.rows < ENOUGH_ROWS:
            groups[file.kind, file.topic][_size(file.rows, fan_in)].append(file)
    return [found for sizes in groups.values() if (found := _due(sizes, fan_in))]


def _due(sizes: _Sizes, fan_in: int) -> list[DataFile]:
    largest = max((size for size, files in sizes.items() if len(files) >= fan_in), default=-1)
    return [file for size, files in sizes.items() if size <= largest for file in files]


def _size(rows: int, fan_in: int) -> int:
    size = 0
    while rows >= fan_in:
        rows, size = rows // fan_in, size + 1
    return size
