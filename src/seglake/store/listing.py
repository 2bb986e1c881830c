"""Listings of object stores; the parts of a long one are listed side by side.

A page has 1,000 objects, and the next one begins behind it, so a listing waits for one page after
another. Folders of a long one are found by a delimiter, and streams begin behind some of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import chain, islice, pairwise, takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

import obstore
from obstore.exceptions import BaseError, GenericError

from seglake.store.interface import Listed, asked, may_ask_again

if TYPE_CHECKING:
    from obstore import ObjectMeta

_ALONE = 10_000  # objects that one stream lists before others come
_STREAMS = 8
_AT_ONCE = 20_000  # objects of a part that are held: 6 MB
_ENOUGH = 64  # folders; with fewer, those below them are found, down to those of files
_PARTS = 256  # at most: each may ask for a page more


class _Part(NamedTuple):
    """The keys behind `after`, up to `until`, which is one of them."""

    after: str | None
    until: str | None


class Listing:
    """The objects below a prefix, by key.

    `cuts` says whether the store can begin behind a key without listing what is in front of it. One
    whose keys do not ascend is listed by one stream.
    """

    def __init__(self, client: Any, prefix: str, *, cuts: bool) -> None:
        self._client, self._prefix, self._cuts = client, prefix, cuts

    def __iter__(self) -> Iterator[Listed]:
        objects, key, count, ascends = self._behind(None), "", 0, self._cuts
        for count, listed in enumerate(islice(objects, _ALONE), 1):  # noqa: B007  used behind it
            ascends &= key < listed.key
            key = listed.key
            yield listed
        if ascends and count == _ALONE:
            yield from self._side_by_side(key)
        else:
            yield from objects

    def _side_by_side(self, after: str) -> Iterator[Listed]:
        """The objects behind a key. Each stream lists a bounded number ahead of the reader."""
        running = deque[Future[tuple[list[Listed], _Part | None]]]()
        with ThreadPoolExecutor(_STREAMS) as pool:
            parts = iter(self._parts(after, pool))
            while True:
                new = islice(parts, _STREAMS - len(running))
                running.extend(pool.submit(self._some, part) for part in new)
                if not running:
                    return
                some, rest = running.popleft().result()
                if rest:
                    running.appendleft(pool.submit(self._some, rest))
                yield from some

    def _some(self, part: _Part) -> tuple[list[Listed], _Part | None]:
        """The first objects of a part, and what is left of it, if anything may be."""
        behind = self._behind(part.after)
        until = part.until
        mine = behind if until is None else takewhile(lambda each: each.key <= until, behind)
        some = list(islice(mine, _AT_ONCE))
        return some, part._replace(after=some[-1].key) if len(some) == _AT_ONCE else None

    def _parts(self, after: str, pool: ThreadPoolExecutor) -> Sequence[_Part]:
        """The keys behind `after`, cut at folders."""
        folders = self._folders(after, pool)
        cuts = folders[:: -(-len(folders) // _PARTS) or 1]
        return [_Part(*ends) for ends in pairwise([after, *cuts, None])]

    def _folders(self, after: str, pool: ThreadPoolExecutor) -> list[str]:
        """Folders behind the key `after`, none of them below another.

        They are as deep as the folder of that key at most: a level lower, each of its files would
        be listed.
        """
        folders = [self._prefix]
        for _ in range(after.removeprefix(f"{self._prefix}/").count("/")):
            found = sorted(chain.from_iterable(pool.map(self._below, folders)))
            folders = [each for each in found if each > after or after.startswith(f"{each}/")]
            if len(folders) >= _ENOUGH:
                break
        return [each for each in folders if each > after]

    def _below(self, folder: str) -> Sequence[str]:
        """The folders in a folder."""
        ask = partial(obstore.list_with_delimiter, self._client, folder or None)
        return asked(ask, GenericError)["common_prefixes"]

    def _behind(self, last: str | None, failures: int = 0) -> Iterator[Listed]:
        """The objects behind `last`, after so many replies that ended early and brought nothing."""
        pages = obstore.list(self._client, self._prefix or None, offset=last)
        try:
            for meta in chain.from_iterable(pages):
                last, failures = meta["path"], 0
                yield Listed(last, meta["size"], modified_ms(meta), meta["e_tag"])
        except BaseError as error:
            if not may_ask_again(error, failures + 1):
                raise
            yield from self._behind(last, failures + 1)


def modified_ms(meta: ObjectMeta) -> int:
    """When an object was written."""
    return int(meta["last_modified"].timestamp() * 1000)
