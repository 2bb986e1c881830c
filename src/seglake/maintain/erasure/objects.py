"""The objects that hold what is erased, and that the newest version does not need.

They are logs of the topic with one of the keys, with their index files; its old key indexes; files
of the quarantine
with a row that goes; and, of attempts that have ended, all blobs and all writes that a crash left:
nothing reads them. Objects of attempts that may still run are spared.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import NamedTuple

import pyarrow.compute as pc

from seglake import layout
from seglake.catalog.quarantine.files import read_all_rejects, writer_of
from seglake.catalog.quarantine.table import QuarantineTable
from seglake.catalog.table import CatalogTable
from seglake.engine import Amounts, Engine
from seglake.errors import CorruptData, MissingObject
from seglake.log.tasks import SegmentTasks
from seglake.maintain.erasure.attempts import Attempts
from seglake.maintain.erasure.logs import StoredLog, may_hold
from seglake.maintain.erasure.wanted import ErasureCriteria
from seglake.maintain.vacuum import TEMPORARY
from seglake.store import Listed, Store

_WITHOUT_EVENTS = re.compile(
    r"/(manifest\.json|success|fate|clock|rejects(-\d+)?)\.[0-9a-f]+\.tmp$"
)


class OldObjects:
    """What can go of a topic in a version, given the attempts and what is to be erased."""

    def __init__(
        self, table: CatalogTable, topic: str, criteria: ErasureCriteria, attempts: Attempts
    ) -> None:
        self._table, self._topic, self._criteria = table, topic, criteria
        self._attempts = attempts

    def find(self, tasks: SegmentTasks, engine: Engine, gone: Collection[str] = ()) -> list[Listed]:
        """The objects, each log after its index files.

        `gone` are the keys of files about to be replaced. Raises StoreError and CorruptData.
        """
        return [*self._logs(tasks, gone), *self._rejects(engine, gone), *self._left()]

    def _logs(self, tasks: SegmentTasks, gone: Collection[str]) -> Iterator[Listed]:
        if not self._criteria.keys:
            return
        listed = self._of_topic()
        live = self._live() - {*gone}
        logs = [
            item for key, item in listed.items()
            if key.endswith(".log") and key not in live and self._has_ended(key)
        ]  # fmt: skip
        yield from (  # of logs with other index files by now, too; they have hashes of keys
            item for key, item in listed.items()
            if key.endswith(f".{layout.KEY_INDEX}") and key not in live and self._has_ended(key)
        )  # fmt: skip
        work = partial(may_hold, self._criteria.keys)
        holds = tasks.map(work, [StoredLog(item.key, item.size) for item in logs])
        for log, goes in zip(logs, holds, strict=True):
            if goes:
                names = (f"{log.key.removesuffix('log')}{name}" for name in layout.SUFFIXES[::-1])
                yield from (listed[name] for name in names if name in listed and name not in live)

    def _of_topic(self) -> dict[str, Listed]:
        """The files of all segments of the topic, whoever wrote them."""
        by_key = {}
        for item in self._table.store.list(layout.TOPICS):
            try:
                if layout.parse_segment_key(item.key).topic == self._topic:
                    by_key[item.key] = item
            except CorruptData:  # not the file of a segment
                continue
        return by_key

    def _live(self) -> set[str]:
        """The keys of all files that the newest version names, or a tag."""
        table, topics = self._table, [self._topic]
        versions = [table.snapshot(), *map(table.tagged, table.tags())]
        lists = chain.from_iterable(table.segment_lists(each, topics) for each in versions)
        return {row.key(suffix) for rows in lists for row in rows for suffix in row.suffixes}

    def _has_ended(self, key: str) -> bool:
        return self._attempts.has_ended(layout.parse_segment_key(key).attempt_id)

    def _rejects(self, engine: Engine, gone: Collection[str]) -> Iterator[Listed]:
        store = self._table.store
        listed = list(store.list(f"{layout.QUARANTINE_TABLE}/topic={self._topic}"))
        live = {*QuarantineTable(store).all_keys(self._topic)} - {*gone}
        old = [item for item in listed if item.key not in live and self._is_old(item.key)]
        goes = engine.map(_HasRejects(store, self._criteria), old)
        yield from (item for item, had in zip(old, goes, strict=True) if had)

    def _is_old(self, key: str) -> bool:
        """Whether nobody will name this file of the quarantine, if it is not named."""
        if TEMPORARY.fullmatch(key):
            return False
        named = self._attempts.named_rejects
        return key in named or self._attempts.has_ended(writer_of(key) or "")

    def _left(self) -> Iterable[Listed]:
        return (
            item for item in self._attempts.left
            if "/blobs/" in item.key
            or (TEMPORARY.fullmatch(item.key) and not _WITHOUT_EVENTS.search(item.key))
        )  # fmt: skip


class _HasRejects(NamedTuple):
    """The task: whether a file that the quarantine does not name has a row that goes."""

    store: Store
    criteria: ErasureCriteria

    def __call__(self, file: Listed) -> bool:
        try:
            rows = read_all_rejects(self.store, file.key)
            return bool(pc.any(self.criteria.rejects(rows["raw"])).as_py())
        except MissingObject:
            return False
        except CorruptData:  # it may have one
            return True

    def amounts(self, files: Sequence[Listed]) -> Amounts:
        return Amounts("bytes of rejects", [file.size for file in files])
