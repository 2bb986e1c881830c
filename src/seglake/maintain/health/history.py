"""What the manifests of committed attempts tell: which of them count, and the rows that they leave.

All that chronicles tell count. Of the others:
A manifest counts if its attempt is marked as committed, if the readable part of the catalog has the
attempt, if the caller trusts it, or if another manifest that counts builds on it: only a commit
makes rows that another commit can take out. Nothing is guessed.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Collection, Mapping
from itertools import chain
from typing import NamedTuple

from seglake import layout
from seglake.catalog.chronicle import told
from seglake.catalog.manifest import Manifest, read_manifests
from seglake.catalog.retention import committed_attempts
from seglake.catalog.schema import Row, SegmentId, SegmentRow, SourceRow
from seglake.errors import CorruptData, UsageError
from seglake.store import Store


class History(NamedTuple):
    """The manifests that count, by attempt."""

    manifests: dict[str, Manifest]

    @staticmethod
    def of(store: Store, trust: Collection[str], untrusted: list[str]) -> History:
        """The history of a lake; `untrusted` gets the attempts whose manifest does not count.

        Raises UsageError if an attempt in `trust` has no manifest, CorruptData for a manifest that
        cannot be read, and for a mark without one, see `lone_marks`.
        """
        written, marked, told_ones = _attempts(store)
        if unknown := {*trust} - written.keys() - told_ones.keys():
            names = ", ".join(sorted(unknown))
            raise UsageError(f"there is no manifest of the attempts {names}")
        untrusted[:] = waiting = sorted(written.keys() - marked - {*trust})
        committed = {*waiting} & committed_attempts(store) if waiting else set[str]()
        first = written.keys() & {*marked, *trust, *committed}
        history = History({**told_ones, **_read(store, written, first)})
        history.add_what_others_build_on(_read(store, written, written.keys() - first))
        untrusted[:] = sorted(written.keys() - history.manifests.keys())
        history.check_marks(marked - written.keys() - told_ones.keys())
        return history

    def add_what_others_build_on(self, unknown: Mapping[str, Manifest]) -> None:
        """Add the manifests of attempts whose rows those that count take out, or name."""
        while unknown:
            names, gone = self.named(), self._replaced()
            needed = {
                name: manifest
                for name, manifest in unknown.items()
                if name in names or any(row.id in gone for row in manifest.segments)
            }
            if not needed:
                return
            self.manifests.update(needed)
            unknown = {name: manifest for name, manifest in unknown.items() if name not in needed}

    def named(self) -> set[str]:
        """The attempts that rows of the manifests name, or rows that they take out."""
        attempt_ids = set[str]()
        for manifest in self.manifests.values():
            attempt_ids.update(manifest.forgotten)
            attempt_ids.update(
                getattr(row, "attempt_id", manifest.attempt_id) for row in manifest.rows
            )
            segments: list[SegmentRow | SegmentId] = [*manifest.segments, *manifest.replaced]
            attempt_ids.update(
                chain.from_iterable((s.attempt_id, s.index_attempt_id) for s in segments)
            )
        return attempt_ids

    def check_marks(self, alone: Collection[str]) -> None:
        """Raise CorruptData if one of the marks without a manifest tells of an unknown commit."""
        for attempt_id in sorted({*alone} - self.named()) if alone else ():
            where = layout.manifest_key(attempt_id)
            what = "this attempt is marked as committed, and its manifest is gone: what it changed"
            key = layout.success_key(attempt_id)
            raise CorruptData(f"{what} is not known; restore {where}", file=key)

    def lake(self) -> str:
        """The lake's identity, "" without a manifest."""
        lakes = ((each.version, each.lake) for each in self.manifests.values())
        return max(lakes, default=(-1, ""))[1]

    def topics(self) -> dict[str, list[Row]]:
        """The live rows of every topic after all these commits, each once.

        The history needs no order: a segment is live if a manifest adds it and none takes it out.
        """
        replaced, forgotten = self._replaced(), set[str]()
        rows: dict[Row, None] = {}
        for manifest in self.manifests.values():
            rows |= dict.fromkeys(manifest.rows)
            forgotten.update(manifest.forgotten)
        topics: dict[str, list[Row]] = defaultdict(list)
        for row in rows:
            gone = isinstance(row, SegmentRow) and row.id in replaced
            gone |= isinstance(row, SourceRow) and row.attempt_id in forgotten
            if not gone:
                topics[row.topic].append(row)
        return dict(sorted(topics.items()))

    def _replaced(self) -> set[SegmentId]:
        return {segment for manifest in self.manifests.values() for segment in manifest.replaced}


def lone_marks(store: Store) -> list[str]:
    """The keys of marks without a manifest, but for those that a marked manifest explains.

    Segments that moved after a lost race once got such a mark; the manifest of their run has them.
    """
    written, marked, told_ones = _attempts(store)
    alone = marked - written.keys() - told_ones.keys()
    if not alone:
        return []
    history = History({**told_ones, **_read(store, written, written.keys() & marked)})
    return [layout.success_key(attempt_id) for attempt_id in sorted(alone - history.named())]


def _read(store: Store, written: Mapping[str, int], some: Collection[str]) -> dict[str, Manifest]:
    """The manifests of some attempts, by attempt."""
    return read_manifests(store, {name: written[name] for name in sorted(some)})


def _attempts(store: Store) -> tuple[dict[str, int], set[str], dict[str, Manifest]]:
    """The attempts with a manifest, each with the number of its last; those with a mark.

    Last the manifests that chronicles tell: of these attempts no other one counts.
    """
    written, marked, told_ones = dict[str, int](), set[str](), told(store)
    for item in store.list(layout.ATTEMPTS):
        with contextlib.suppress(CorruptData):  # a key that Seglake does not write
            attempt_id, name = layout.parse_attempt_key(item.key)
            if name == "success":
                marked.add(attempt_id)
            elif (number := layout.lost_races(name)) is not None:
                written[attempt_id] = max(number, written.get(attempt_id, 0))
    return {name: written[name] for name in written.keys() - told_ones.keys()}, marked, told_ones
