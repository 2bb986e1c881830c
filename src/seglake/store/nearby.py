"""Folders beside a local root, for a path that was misspelt."""

import contextlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from seglake.spelling import nearest
from seglake.store.interface import Reader
from seglake.store.local import is_local

_LOOKED_AT = 1000  # names beside the root


def nearby_root(store: Reader, key: str) -> str | None:
    """A folder beside the root of a local store that has nearly its name, and `key` in it.

    None if there is none, or the store is not local.
    """
    if not is_local(store):
        return None
    root = Path(store.uri)
    names = (folder.name for folder in _folders(root.parent) if folder != root)
    near = (root.with_name(name) for name in nearest(root.name, names, 5))
    return next((str(folder) for folder in near if _is_there(folder / key)), None)


def _folders(parent: Path) -> Iterator[Path]:
    with contextlib.suppress(OSError):
        yield from filter(_is_there, islice(parent.iterdir(), _LOOKED_AT))


def _is_there(folder: Path) -> bool:
    with contextlib.suppress(OSError):
        return folder.is_dir()
    return False
