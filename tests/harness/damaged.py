"""A lake whose objects stand in memory, where one of them may be other than it was written."""

from collections.abc import Iterable, Iterator, Sequence

from seglake.errors import MissingObject
from seglake.store import Listed, Stat, Store
from seglake.store.interface import check_length


class DamagedStore:
    """The objects of a lake, read once; `replaced` has what stands there now, None if it is gone.

    Only what reading and verifying need.
    """

    def __init__(self, store: Store, prefix: str = "topics") -> None:
        self.uri, self.remote = store.uri, store.remote
        self.storage_options, self.public_options = store.storage_options, store.public_options
        self.sound = {found.key: bytes(store.read_all(found.key)) for found in store.list(prefix)}
        self.replaced: dict[str, bytes | None] = {}

    def keys(self, suffix: str) -> list[str]:
        """The keys of one kind of files."""
        return sorted(key for key in self.sound if key.endswith(f".{suffix}"))

    def read_all(self, key: str) -> bytes:
        data = self.replaced.get(key, b"") if key in self.replaced else self.sound.get(key)
        if data is None:
            raise MissingObject(f"{self.uri}/{key} does not exist")
        return data

    def read(self, key: str, start: int, end: int) -> bytes:
        data = self.read_all(key)[start:end]
        check_length(self.uri, key, data, start, end)
        return data

    def read_ranges(self, key: str, starts: Sequence[int], ends: Sequence[int]) -> list[bytes]:
        return [self.read(key, start, end) for start, end in zip(starts, ends, strict=True)]

    def size(self, key: str) -> int:
        return len(self.read_all(key))

    def stat(self, key: str) -> Stat:
        return Stat(self.size(key), 0, None)

    def list(self, prefix: str = "", after: str = "") -> Iterator[Listed]:
        return (
            Listed(key, len(data), 0)
            for key, data in self.sound.items()
            if key > max(prefix, after)
        )


def flipped(data: bytes, places: Iterable[int], bits: Iterable[int] = range(8)) -> Iterator[bytes]:
    """`data` with one bit flipped: each of `bits` of each of the bytes at `places`."""
    bits = list(bits)
    for place in places:
        for bit in bits:
            changed = bytearray(data)
            changed[place] ^= 1 << bit
            yield bytes(changed)
