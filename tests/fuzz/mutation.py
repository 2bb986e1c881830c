"""Inputs that are almost right: sound ones with a few bytes flipped, cut, doubled or exchanged."""

import random
from collections.abc import Iterator, Sequence

_EDGES = [
    number.to_bytes(size, order, signed=True)
    for size in (1, 2, 4, 8)
    for order in ("big", "little")
    for number in (0, 1, -1, 2 ** (8 * size - 1) - 1, -(2 ** (8 * size - 1)))
]


def almost_right(seeds: Sequence[bytes], count: int, chance: random.Random) -> Iterator[bytes]:
    """So many changed copies of the seeds, one to four changes each."""
    for _ in range(count):
        data = bytearray(chance.choice(seeds))
        for _ in range(chance.randint(1, 4)):
            _change(data, seeds, chance)
        yield bytes(data)


def _change(data: bytearray, seeds: Sequence[bytes], chance: random.Random) -> None:
    start = chance.randint(0, len(data))
    end = min(len(data), start + chance.choice((1, 1, 2, 4, 8, 40)))
    match chance.randrange(6):
        case 0 if start < len(data):
            data[start] ^= 1 << chance.randrange(8)
        case 1:
            del data[start:end]
        case 2:
            data[start:start] = data[start:end]
        case 3:
            data[start:start] = chance.randbytes(chance.randint(1, 8))
        case 4:
            edge = chance.choice(_EDGES)
            data[start : start + len(edge)] = edge
        case _:
            other = chance.choice(seeds)
            at = chance.randint(0, len(other))
            data[start:end] = other[at : at + chance.choice((1, 8, 60))]
