"""What each commit removed, remembered in one object: a vacuum reads only the commits since then.

The object is one Zstandard frame with a checksum. Its first line says how many commits follow, each
on a line of its own with its number, the time at which storage has it, and the files it removed.
No other commit has the number and time of one that was cleaned up, so a line holds or is not asked.
What cannot be read tells nothing: the next vacuum writes it anew.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import zstandard

from seglake.catalog.delta.commit_log import DeltaLog
from seglake.errors import MissingObject
from seglake.layout import TOMBSTONES
from seglake.store import Store

FORMAT = 1
_FEW = 100  # commits that are read anew each time, rather than remembered
_log = logging.getLogger(__name__)


class Buried(NamedTuple):
    """What a commit removed: paths below the table's folder; and its time by storage's clock."""

    modified_ms: int
    paths: Collection[str]


def tombstones(log: DeltaLog) -> dict[int, Buried]:
    """What each commit that the log still has removed, by version.

    Reads the commits that are not remembered. Raises CorruptData for a damaged one, and StoreError.
    """
    there = dict(log.commit_times())
    found = _remembered(log.store, there) if len(there) > _FEW else {}
    for commit in log.read(sorted(there.keys() - found.keys())):
        found[commit.version] = Buried(there[commit.version], commit.removed.keys())
    return found


def remember(log: DeltaLog) -> None:
    """Write what each commit removed, if more than a few are new. Raises as `tombstones`."""
    there = dict(log.commit_times())
    if len(there) > _FEW and len(there) - len(_remembered(log.store, there)) > _FEW:
        log.store.put(TOMBSTONES, _spelled(tombstones(log)))


def _remembered(store: Store, there: Mapping[int, int]) -> dict[int, Buried]:
    """What is remembered of the commits that the log has at these times."""
    try:
        known = _parsed(bytes(store.read_all(TOMBSTONES)))
    except MissingObject:
        return {}
    except (zstandard.ZstdError, ValueError, KeyError, TypeError) as error:
        _log.warning("%s: a vacuum writes it anew, since it cannot be read: %r", TOMBSTONES, error)
        return {}
    return {version: each for version, each in known.items() if there.get(version) == each[0]}


def _spelled(known: Mapping[int, Buried]) -> bytes:
    head = {"format": FORMAT, "commits": len(known)}
    rows = ([version, each.modified_ms, sorted(each.paths)] for version, each in known.items())
    text = "\n".join(map(json.dumps, [head, *rows]))
    return zstandard.ZstdCompressor(write_checksum=True).compress(text.encode())


def _parsed(data: bytes) -> dict[int, Buried]:
    text = zstandard.ZstdDecompressor().decompress(data, allow_extra_data=False)
    head, *rows = map(json.loads, text.splitlines())
    if head != {"format": FORMAT, "commits": len(rows)}:
        raise ValueError(f"{head} has {len(rows)} commits")
    pairs: list[Any] = [(version, Buried(ms, paths)) for version, ms, paths in rows]
    return dict(pairs)
