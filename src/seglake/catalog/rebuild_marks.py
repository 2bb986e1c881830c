"""The two marks of a rebuild of the catalog: that one has begun, and that one has ended.

While a rebuild is under way, a catalog that can be opened may lack rows. A mark that says so cannot
just be deleted at the end: storage may carry out a late request that writes it again. So the end
has a mark of its own, which stays. Each names a version of the catalog:

- begun: the highest version of the catalog that goes;
- ended: the lowest version of the one that came, which is higher.
"""

import json

from seglake.errors import MissingObject
from seglake.layout import REBUILDING, REBUILT
from seglake.store import Store

_NONE = -2  # below every version: there is no mark
_UNREADABLE = 1 << 63  # above every version: older Seglakes wrote an empty mark


def begin(store: Store, last_version: int) -> None:
    """Say that the catalog, which never went beyond `last_version`, is about to be replaced.

    Raises StoreError.
    """
    store.delete([REBUILT])  # so that a late mark of an earlier begin does not look ended
    store.put(REBUILDING, json.dumps({"last_version": last_version}).encode())


def end(store: Store, first_version: int) -> None:
    """Say that the catalog is whole, whose versions begin at `first_version`. Raises StoreError."""
    store.put(REBUILT, json.dumps({"first_version": first_version}).encode())
    store.delete([REBUILDING])


def replaced_version(store: Store) -> int:
    """The version that the mark of a begin names, -1 if none does. Raises StoreError."""
    version = _version(store, REBUILDING, "last_version")
    return max(version, -1) if version < _UNREADABLE else -1


def is_under_way(store: Store) -> bool:
    """Whether a rebuild has begun, and not ended. Raises StoreError."""
    begun = _version(store, REBUILDING, "last_version")
    if begun == _NONE:
        return False
    ended = _version(store, REBUILT, "first_version")
    return not begun < ended < _UNREADABLE


def _version(store: Store, key: str, name: str) -> int:
    try:
        return int(json.loads(bytes(store.read_all(key)))[name])
    except MissingObject:
        return _NONE
    except (ValueError, KeyError, TypeError):
        return _UNREADABLE
